"""Run programs: once, as Python would run a script, or block by block in one namespace."""

from __future__ import annotations

import atexit
import builtins
import contextlib
import io
import linecache
import os
import sys
import traceback
import types
from typing import Any, NoReturn

from foretrace.sandbox.inside.wire import FrameChannel, describe_error

FILE = "main.py"
_STREAMS = (sys.stdout, sys.stderr)
_exit = os._exit
"""Kept here, like the streams, since code may replace them."""
_STDIN = "/dev/stdin"
_plain_open: Any = io.open


def run(channel: FrameChannel, request: dict[str, Any]) -> int:
    """Run the code of a request as `__main__`, with its threads and exit handlers, and return the exit code."""
    source = request["code"]
    if _STDIN in source:
        builtins.open = io.open = _open  # the jail has no /proc, which /dev/stdin links to
    namespace = main_module()
    code, error = execute(source, FILE, namespace)
    import threading

    for finish in (threading._shutdown, atexit._run_exitfuncs, flush):  # type: ignore[attr-defined]
        try:
            finish()
        except BaseException as raised:
            error = error or describe_error(raised)
            code = code or 1
    if code is None or error is not None:  # it completed or failed; a program that called exit sends nothing
        channel.send(["ended", error])
    return code or 0


def _open(file: Any, *args: Any, **options: Any) -> Any:
    return _plain_open(os.dup(0) if file == _STDIN else file, *args, **options)


def replay(channel: FrameChannel, request: dict[str, Any]) -> None:
    """Run the blocks of a request one after another in this process. The output of all but the last is discarded;
    before that one, ["begins"] is sent."""
    namespace, blocks = main_module(), request["blocks"]
    outputs = [os.dup(1), os.dup(2)]
    null = os.open("/dev/null", os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)
    for number, block in enumerate(blocks, 1):
        if number == len(blocks):
            os.dup2(outputs[0], 1)
            os.dup2(outputs[1], 2)
            channel.send(["begins"])
        if not run_block(channel, block, number, namespace):
            break


def run_block(channel: FrameChannel, source: str, number: int, namespace: dict[str, Any]) -> bool:
    """Run one block of a session, send how it ended, and return whether it completed. If it exits, the process
    exits."""
    code, error = execute(source, f"block_{number}.py", namespace)
    if code is not None and error is None:
        with contextlib.suppress(BaseException):
            flush()
        exit_process(code)
    try:
        flush()
    except BaseException as raised:
        error = error or describe_error(raised)
    channel.send(["ended", error])
    return error is None


def exit_process(code: int) -> NoReturn:
    """Exit this process, even if its code has patched `os`."""
    _exit(code & 0xFF)


def flush() -> None:
    """Flush `sys.stdout` and `sys.stderr`, which code may have replaced or set to None, and the original streams."""
    for stream in (sys.stdout, sys.stderr, *_STREAMS):
        if stream is not None and not stream.closed:
            stream.flush()


def main_module() -> dict[str, Any]:
    module = types.ModuleType("__main__")
    module.__dict__["__file__"] = FILE
    module.__dict__["__builtins__"] = __builtins__
    sys.modules["__main__"] = module
    return module.__dict__


def execute(source: str, file: str, namespace: dict[str, Any]) -> tuple[int | None, dict[str, Any] | None]:
    """Run source text; return the exit code (None if it completed), and the error if it raised one, after printing its
    traceback."""
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    try:
        exec(compile(source, file, "exec", dont_inherit=True), namespace)
    except SystemExit as leaving:
        if leaving.code is None or isinstance(leaving.code, int):
            code = int(leaving.code or 0)
            return (code & 0xFF if abs(code) < 1 << 31 else 255), None
        _print(str(leaving.code) + "\n")
        return 1, None
    except BaseException as raised:
        error = describe_error(raised)
        own = raised.__traceback__.tb_next if raised.__traceback__ else None
        try:
            _print("".join(traceback.format_exception(type(raised), raised, own)))
        except BaseException as again:  # getting the exception's text raised
            _print(f"{error['kind']}: (its text raised {describe_error(again)['kind']})\n")
        return 1, error
    return None, None


def _print(text: str) -> None:
    try:
        sys.stderr.write(text)
    except BaseException:
        os.write(2, text.encode("utf-8", "backslashreplace"))
