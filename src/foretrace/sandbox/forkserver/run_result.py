"""Run one program in a fresh child, and make a `RunResult` of how the child ended and what it said at its end."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from foretrace.core.problem import Ending, RunError, RunResult
from foretrace.core.trace import Isolation
from foretrace.sandbox.base import Limits
from foretrace.sandbox.forkserver.child_channel import StartChild
from foretrace.sandbox.forkserver.child_exit import ChildExit, make_exit_error

MAX_SOURCE_CHARS = 1 << 20
"""Longest source text that is run, characters."""
MAX_INPUT_CHARS = 16_000_000
"""Longest input that a run is given, characters."""
PROTOCOL_ERROR_TEXT = "the code's process broke the protocol, so nothing that it said counts"


async def run_program(
    start_child: StartChild, code: str, stdin: str, limits: Limits, isolation: Isolation
) -> RunResult:
    """Run `code` once, in a fresh child."""
    if len(code) > MAX_SOURCE_CHARS:
        return make_too_large_result(code, isolation)
    if len(stdin) > MAX_INPUT_CHARS:
        message = f"the input has {len(stdin):,} characters, which is more than the {MAX_INPUT_CHARS:,} that are given"
        return RunResult(ending="error", error=RunError(kind="InputTooLarge", message=message), isolation=isolation)
    async with start_child({"mode": "run", "code": code, "stdin": stdin}, limits) as child:
        frame = await child.receive()
        child_exit = await child.wait()
    result = make_run_result(child_exit, frame, limits, isolation)
    return replace(result, error=make_protocol_error()) if child.broken and result.ending == "killed" else result


def make_protocol_error() -> RunError:
    """The error of code whose process sent a message that it may not send."""
    return RunError(kind="OutOfTurn", message=PROTOCOL_ERROR_TEXT)


def make_too_large_result(code: str, isolation: Isolation) -> RunResult:
    """The result of a source that is too long to be run."""
    message = f"the source has {len(code):,} characters, which is more than the {MAX_SOURCE_CHARS:,} that are run"
    return RunResult(ending="error", error=RunError(kind="SourceTooLarge", message=message), isolation=isolation)


def make_run_result(child_exit: ChildExit, frame: Any, limits: Limits, isolation: Isolation) -> RunResult:
    """The result of a run whose child sent `frame` at its end (None where it sent nothing)."""
    has_ended = isinstance(frame, list) and len(frame) > 1 and frame[0] == "ended"
    error = read_error(frame[1]) if has_ended else None
    ending: Ending = child_exit.ending
    exit_code = child_exit.exit_code
    if ending in ("ok", "exit"):
        if error is not None:
            if error.kind == "MemoryError" and not error.message:
                error = msgspec.structs.replace(error, message=f"it needs more than {limits.memory_mb} MiB")
            ending, exit_code = ("memory" if error.kind == "MemoryError" else "error"), None
        elif ending == "exit" or not has_ended:  # it left by itself, whatever it says
            ending = "exit"
        else:
            ending, exit_code = "ok", None
    else:
        error = make_exit_error(child_exit, limits)
    return RunResult(
        ending=ending,
        stdout=child_exit.stdout,
        stderr=child_exit.stderr,
        truncated=child_exit.truncated,
        exit_code=exit_code,
        error=error,
        seconds=child_exit.seconds,
        cpu_s=child_exit.cpu_s,
        isolation=isolation,
    )


def read_error(message: Any) -> RunError | None:
    """An error as a child describes it, cut to its limits; None where it is not a description of an error."""
    if not isinstance(message, dict) or not isinstance(message.get("kind"), str):
        return None
    line = message.get("line")
    return RunError(
        kind=_clean_text(message["kind"])[:100] or "Exception",
        message=_clean_text(message.get("message"))[:500],
        line=line if type(line) is int and 0 < line < 1 << 31 else None,
        traceback=_clean_text(message.get("traceback"))[:2000],
    )


def _clean_text(value: Any) -> str:
    """Text that can be encoded: no lone surrogates."""
    return value.encode("utf-8", "replace").decode("utf-8") if isinstance(value, str) else ""
