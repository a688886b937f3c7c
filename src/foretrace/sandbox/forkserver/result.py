"""From a child's end and its own words to a `RunResult`."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from foretrace.core.problem import Ending, RunError, RunResult
from foretrace.core.trace import Isolation
from foretrace.sandbox.base import Limits
from foretrace.sandbox.forkserver.channel import Ended, Open

MOST_SOURCE = 1 << 20
"""Longest source text that is run, characters."""
MOST_INPUT = 16_000_000
"""Longest input that a run is given, characters."""
OUT_OF_TURN = "the code's process broke the protocol, so nothing that it said counts"


async def run(open_: Open, code: str, stdin: str, limits: Limits, isolation: Isolation) -> RunResult:
    """Run `code` once, in a fresh child."""
    if len(code) > MOST_SOURCE:
        return too_large(code, isolation)
    if len(stdin) > MOST_INPUT:
        message = f"the input has {len(stdin):,} characters, which is more than the {MOST_INPUT:,} that are given"
        return RunResult(ending="error", error=RunError(kind="InputTooLarge", message=message), isolation=isolation)
    async with open_({"mode": "run", "code": code, "stdin": stdin}, limits) as child:
        frame = await child.receive()
        ended = await child.finish()
    found = run_result(ended, frame, limits, isolation)
    return replace(found, error=out_of_turn()) if child.broken and found.ending == "killed" else found


def out_of_turn() -> RunError:
    """What a process is told of that has said what it may not say."""
    return RunError(kind="OutOfTurn", message=OUT_OF_TURN)


def too_large(code: str, isolation: Isolation) -> RunResult:
    """What a source gets that is not run for its length."""
    message = f"the source has {len(code):,} characters, which is more than the {MOST_SOURCE:,} that are run"
    return RunResult(ending="error", error=RunError(kind="SourceTooLarge", message=message), isolation=isolation)


def run_result(ended: Ended, frame: Any, limits: Limits, isolation: Isolation) -> RunResult:
    """The result of a run whose child said `frame` at its end (null where it said nothing)."""
    whole = isinstance(frame, list) and len(frame) > 1 and frame[0] == "ended"
    said = frame[1] if whole else None
    error = read_error(said)
    ending: Ending = ended.ending
    exit_code = ended.exit_code
    if ending in ("ok", "exit"):
        if error is not None:
            if error.kind == "MemoryError" and not error.message:
                error = msgspec.structs.replace(error, message=f"it needs more than {limits.memory_mb} MiB")
            ending, exit_code = ("memory" if error.kind == "MemoryError" else "error"), None
        elif ending == "exit" or not whole:  # it left by itself, whatever it says
            ending = "exit"
        else:
            ending, exit_code = "ok", None
    else:
        error = limit_error(ended, limits)
    return RunResult(
        ending=ending,
        stdout=ended.stdout,
        stderr=ended.stderr,
        truncated=ended.truncated,
        exit_code=exit_code,
        error=error,
        seconds=ended.seconds,
        cpu_s=ended.cpu_s,
        isolation=isolation,
    )


def read_error(said: Any) -> RunError | None:
    """An error as a child describes it, believed in nothing but its size."""
    if not isinstance(said, dict) or not isinstance(said.get("kind"), str):
        return None
    line = said.get("line")
    return RunError(
        kind=_text(said["kind"])[:100] or "Exception",
        message=_text(said.get("message"))[:500],
        line=line if type(line) is int and 0 < line < 1 << 31 else None,
        traceback=_text(said.get("traceback"))[:2000],
    )


def _text(said: Any) -> str:
    """Text that can be encoded: no lone surrogates."""
    return said.encode("utf-8", "replace").decode("utf-8") if isinstance(said, str) else ""


def limit_error(ended: Ended, limits: Limits) -> RunError:
    """What a run is told that was ended from outside."""
    if ended.ending == "timeout":
        by_cpu = ended.signal is not None
        used = f"{limits.cpu_s:g} s of CPU time" if by_cpu else f"{limits.wall_s:g} s"
        return RunError(kind="Timeout", message=f"it ran for longer than {used}")
    if ended.ending == "output":
        return RunError(kind="OutputLimit", message=f"it printed more than {limits.output_mb} MiB")
    if ended.ending == "memory":
        return RunError(kind="ProcessLimit", message=f"it made more than {limits.processes} threads or processes")
    if ended.ending == "lost":
        return RunError(kind="WorkerLost", message="the process that ran it died from outside; run it again")
    by = f"by signal {ended.signal}" if ended.signal else "since it did not end when it had to, or broke its channel"
    return RunError(kind="Killed", message=f"it was killed {by}")
