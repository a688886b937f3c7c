"""How a child of a fork server ended, and the `RunResult` made from that and from its last frame."""

from __future__ import annotations

import os
import signal
from typing import Any

import msgspec

from foretrace.core.problem import Ending, RunError, RunResult
from foretrace.core.trace import Isolation
from foretrace.sandbox.base import Limits

MAX_SOURCE_CHARS = 1 << 20
"""Longest source text that may run, characters."""
MAX_INPUT_CHARS = 16_000_000
"""Longest stdin of a run, characters."""
PROTOCOL_ERROR_TEXT = "the code's process broke the protocol, so nothing that it said counts"


class ChildExit(msgspec.Struct, frozen=True, kw_only=True):
    """How a child ended, as seen from outside."""

    ending: Ending
    exit_code: int | None = None
    signal: int | None = None
    out_of_cpu: bool = False
    """Whether it was ended by the CPU limit."""
    seconds: float = 0.0
    cpu_s: float | None = None
    stdout: str = ""
    stderr: str = ""
    truncated: bool = False


_CPU_SIGNALS = (signal.SIGXCPU, signal.SIGPROF, signal.SIGVTALRM, signal.SIGKILL)
"""Signals that end a process that has used too much CPU time."""
_ENDING_OF_REASON: dict[str, Ending] = {
    "timeout": "timeout",
    "cpu": "timeout",
    "output": "output",
    "reply": "output",
    "threads": "memory",
    "fork": "memory",
}
"""By the reason why the fork server killed the child; for all others it is `killed`."""


def read_child_exit(report: dict[str, Any], limits: Limits, output: dict[str, Any]) -> ChildExit:
    """How a child ended.

    Args:
        report: The fork server's report: `killed` (why it killed the child, or None), `status` (as of `os.waitpid`),
            `seconds` and, for runs, `cpu_s`.
        output: `stdout`, `stderr` and `truncated`.
    """
    status, killed, cpu_s = int(report["status"]), report["killed"], report.get("cpu_s")
    exit_code = os.waitstatus_to_exitcode(status) if not killed else None
    ending: Ending = "ok"
    number, out_of_cpu = None, killed == "cpu"
    if killed:
        ending = _ENDING_OF_REASON.get(killed, "killed")
    elif exit_code is not None and exit_code < 0:
        number, exit_code = -exit_code, None
        out_of_cpu = number in _CPU_SIGNALS and (cpu_s or 0) >= limits.cpu_s
        ending = "timeout" if out_of_cpu else "killed"
    elif exit_code:
        ending = "exit"
    seconds = float(report["seconds"])
    how = {"ending": ending, "exit_code": exit_code, "signal": number, "out_of_cpu": out_of_cpu}
    return ChildExit(**how, seconds=seconds, cpu_s=cpu_s, **output)


def make_exit_error(child_exit: ChildExit, limits: Limits) -> RunError:
    """The error of a run whose child did not exit on its own."""
    if child_exit.ending == "timeout":
        by_cpu = f"it used more than {limits.cpu_s:g} s of processor time"
        by_clock = f"it ran for longer than {limits.wall_s:g} s"
        return RunError(kind="Timeout", message=by_cpu if child_exit.out_of_cpu else by_clock)
    if child_exit.ending == "output":
        return RunError(kind="OutputLimit", message=f"it printed more than {limits.output_mb} MiB")
    if child_exit.ending == "memory":
        return RunError(kind="ProcessLimit", message=f"it made more than {limits.processes} threads or processes")
    if child_exit.ending == "lost":
        return RunError(kind="WorkerLost", message="the process that ran it died from outside; run it again")
    if child_exit.signal is None:
        return RunError(
            kind="Killed", message="it was killed since it did not end when it had to, or broke its channel"
        )
    if child_exit.signal == signal.SIGSYS:
        return RunError(kind="Killed", message="it was killed for a system call that is not allowed")
    what = signal.strsignal(child_exit.signal) or "unknown"
    return RunError(kind="Killed", message=f"it was killed by signal {child_exit.signal} ({what})")


def make_protocol_error() -> RunError:
    """The error of code whose process sent a message that is not allowed."""
    return RunError(kind="OutOfTurn", message=PROTOCOL_ERROR_TEXT)


def make_too_large_result(code: str, isolation: Isolation) -> RunResult:
    """The result for source text that is too long to run."""
    message = f"the source has {len(code):,} characters, which is more than the {MAX_SOURCE_CHARS:,} that are run"
    return RunResult(ending="error", error=RunError(kind="SourceTooLarge", message=message), isolation=isolation)


def make_run_result(child_exit: ChildExit, frame: Any, limits: Limits, isolation: Isolation) -> RunResult:
    """The result of a run whose child sent `frame` at its end (None if it sent nothing)."""
    has_ended = isinstance(frame, list) and len(frame) > 1 and frame[0] == "ended"
    error = read_error(frame[1]) if has_ended else None
    ending: Ending = child_exit.ending
    exit_code = child_exit.exit_code
    if ending in ("ok", "exit"):
        if error is not None:
            if error.kind == "MemoryError" and not error.message:
                error = msgspec.structs.replace(error, message=f"it needs more than {limits.memory_mb} MiB")
            ending, exit_code = ("memory" if error.kind == "MemoryError" else "error"), None
        elif ending == "exit" or not has_ended:  # it exited on its own, whatever it sent
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
    """An error as described by a child, cut to the limits; None if it is not a valid description."""
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
    """The text without lone surrogates, which cannot be encoded."""
    return value.encode("utf-8", "replace").decode("utf-8") if isinstance(value, str) else ""
