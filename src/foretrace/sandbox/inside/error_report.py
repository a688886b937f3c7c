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
    return {"kind": _describe_kind(error), "message": _describe_message(error), **_describe_place(error)}


def _describe_kind(error: BaseException) -> str:
    try:
        return str(type.__getattribute__(type(error), "__name__"))[:100]
    except BaseException:
        return "Exception"


def _describe_message(error: BaseException) -> str:
    try:
        if isinstance(error, SyntaxError):
            return str(error.msg)[:_MESSAGE]
        return str(error)[:_MESSAGE]
    except BaseException as again:
        return f"(its text raised {_describe_kind(again)})"


def _describe_place(error: BaseException) -> dict[str, Any]:
    try:
        if isinstance(error, SyntaxError) and error.lineno is not None and not os.path.isabs(error.filename or ""):
            text = "".join(traceback.format_exception_only(type(error), error))
            return {"line": int(error.lineno), "traceback": text[:_TRACEBACK]}
        frames: list[tuple[Any, int]] = []
        step = error.__traceback__
        while step is not None:
            if not os.path.isabs(step.tb_frame.f_code.co_filename):
                frames.append((step.tb_frame.f_code, step.tb_lineno))
            step = step.tb_next
        shown = [f'  File "{code.co_filename}", line {line}, in {code.co_name}' for code, line in frames[-_FRAMES:]]
        if len(frames) > _FRAMES:
            shown.insert(0, f"  ... {len(frames) - _FRAMES} more frames")
        return {"line": frames[-1][1] if frames else None, "traceback": "\n".join(shown)[:_TRACEBACK]}
    except BaseException:
        return {"line": None, "traceback": ""}
