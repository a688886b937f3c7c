"""Describe an exception for the author of the code, in bounded size, whatever the exception's methods do."""

from __future__ import annotations

import os
import traceback
from typing import Any

_MESSAGE, _FRAMES, _TRACEBACK = 500, 12, 2000


def describe_error(error: BaseException) -> dict[str, Any]:
    """Kind, message (500 characters), line (1-based) and traceback (2,000 characters) of `error`.

    Only frames of untrusted code are included; they are recognized by their relative file names.
    """
    try:
        message = str(error.msg if isinstance(error, SyntaxError) else error)[:_MESSAGE]
    except BaseException as again:
        message = f"(its text raised {_describe_kind(again)})"
    try:
        line, shown = _describe_place(error)
    except BaseException:
        line, shown = None, ""
    return {"kind": _describe_kind(error), "message": message, "line": line, "traceback": shown[:_TRACEBACK]}


def _describe_kind(error: BaseException) -> str:
    try:
        return str(type.__getattribute__(type(error), "__name__"))[:100]
    except BaseException:
        return "Exception"


def _describe_place(error: BaseException) -> tuple[int | None, str]:
    if isinstance(error, SyntaxError) and error.lineno is not None and not os.path.isabs(error.filename or ""):
        return int(error.lineno), "".join(traceback.format_exception_only(type(error), error))
    frames: list[tuple[Any, int]] = []
    step = error.__traceback__
    while step is not None:
        if not os.path.isabs(step.tb_frame.f_code.co_filename):
            frames.append((step.tb_frame.f_code, step.tb_lineno))
        step = step.tb_next
    shown = [f'  File "{code.co_filename}", line {line}, in {code.co_name}' for code, line in frames[-_FRAMES:]]
    if len(frames) > _FRAMES:
        shown.insert(0, f"  ... {len(frames) - _FRAMES} more frames")
    return (frames[-1][1] if frames else None), "\n".join(shown)
