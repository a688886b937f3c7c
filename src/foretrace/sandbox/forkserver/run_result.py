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
PROTOCOL_ERROR = RunError(
    kind="OutOfTurn", message="the code's process broke the protocol, so nothing that it said counts"
)


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
    **dict.fromkeys(("timeout", "cpu"), "timeout"),
    **dict.fromkeys(("output", "reply"), "output"),
    **dict.fromkeys(("threads", "fork"), "memory"),
}
"""By the reason why the fork server killed the child; for all others it is `killed`."""


def read_child_exit(report: dict[str, Any], limits: Limits, printed: dict[str, Any]) -> ChildExit:
    """How a child ended, by the fork server's `report`: `killed` (why it killed the child, or None), `status` (as of
    `os.waitpid`), `seconds` and `cpu_s`. A session that ended before its first block reports none of these."""
    killed, cpu_s, seconds = report.get("killed"), report.get("cpu_s"), float(report.get("seconds", 0.0))
    code = 0 if killed else os.waitstatus_to_exitcode(int(report.get("status", 0)))
    out_of_cpu = killed == "cpu" or (-code in _CPU_SIGNALS and (cpu_s or 0) >= limits.cpu_s)
    ending: Ending = "timeout" if out_of_cpu else "killed" if code < 0 else "exit" if code else "ok"
    if killed:
        ending = _ENDING_OF_REASON.get(killed, "killed")
    return ChildExit(
        ending=ending,
        exit_code=None if killed or code < 0 else code,
        signal=-code if code < 0 else None,
        out_of_cpu=out_of_cpu,
        seconds=seconds,
        cpu_s=cpu_s,
        **printed,
    )


def make_exit_error(child_exit: ChildExit, limits: Limits) -> RunError:
    match child_exit:
        case ChildExit(ending="timeout", out_of_cpu=True):
            kind, message = "Timeout", f"it used more than {limits.cpu_s:g} s of processor time"
        case ChildExit(ending="timeout"):
            kind, message = "Timeout", f"it ran for longer than {limits.wall_s:g} s"
        case ChildExit(ending="output"):
            kind, message = "OutputLimit", f"it printed more than {limits.output_mb} MiB"
        case ChildExit(ending="memory"):
            kind, message = "ProcessLimit", f"it made more than {limits.processes} threads or processes"
        case ChildExit(ending="lost"):
            kind, message = "WorkerLost", "the process that ran it died from outside; run it again"
        case ChildExit(signal=None):
            kind, message = "Killed", "it was killed since it did not end when it had to, or broke its channel"
        case ChildExit(signal=signal.SIGSYS):
            kind, message = "Killed", "it was killed for a system call that is not allowed"
        case _:
            name = signal.strsignal(child_exit.signal or 0) or "unknown"
            kind, message = "Killed", f"it was killed by signal {child_exit.signal} ({name})"
    return RunError(kind=kind, message=message)


def find_size_error(code: str, stdin: str = "") -> RunError | None:
    """The error if the source text or the input is too long."""
    if len(code) > MAX_SOURCE_CHARS:
        message = f"the source has {len(code):,} characters, which is more than the {MAX_SOURCE_CHARS:,} that are run"
        return RunError(kind="SourceTooLarge", message=message)
    if len(stdin) > MAX_INPUT_CHARS:
        message = f"the input has {len(stdin):,} characters, which is more than the {MAX_INPUT_CHARS:,} that are given"
        return RunError(kind="InputTooLarge", message=message)
    return None


def make_run_result(child_exit: ChildExit, frame: Any, limits: Limits, isolation: Isolation) -> RunResult:
    """The result of a run whose child sent `frame` at its end (None if it sent nothing)."""
    has_ended = isinstance(frame, list) and len(frame) > 1 and frame[0] == "ended"
    error = read_error(frame[1]) if has_ended else None
    ending, exit_code = child_exit.ending, child_exit.exit_code
    if ending not in ("ok", "exit"):
        error = make_exit_error(child_exit, limits)
    elif error is not None:
        if error.kind == "MemoryError" and not error.message:
            error = msgspec.structs.replace(error, message=f"it needs more than {limits.memory_mb} MiB")
        ending, exit_code = ("memory" if error.kind == "MemoryError" else "error"), None
    elif ending == "exit" or not has_ended:  # it exited on its own, whatever it sent
        ending = "exit"
    else:
        exit_code = None
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
