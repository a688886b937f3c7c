"""How a child of a fork server ended: read from what the fork server saw, and explained where a limit ended it."""

from __future__ import annotations

import os
import signal
from typing import Any

import msgspec

from foretrace.core.problem import Ending, RunError
from foretrace.sandbox.base import Limits


class ChildExit(msgspec.Struct, frozen=True, kw_only=True):
    """How a child ended, as seen from outside of it."""

    ending: Ending
    exit_code: int | None = None
    signal: int | None = None
    out_of_cpu: bool = False
    """Whether it was the limit of processor time that ended it."""
    seconds: float = 0.0
    cpu_s: float | None = None
    stdout: str = ""
    stderr: str = ""
    truncated: bool = False


_CPU_SIGNALS = (signal.SIGXCPU, signal.SIGPROF, signal.SIGVTALRM, signal.SIGKILL)
"""Signals by which a process ends that has used too much processor time."""
_ENDING_OF_REASON: dict[str, Ending] = {
    "timeout": "timeout",
    "cpu": "timeout",
    "output": "output",
    "reply": "output",
    "threads": "memory",
    "fork": "memory",
}
"""By why the fork server killed the child; for all other reasons it is `killed`."""


def read_child_exit(report: dict[str, Any], limits: Limits, output: dict[str, Any]) -> ChildExit:
    """How a child ended.

    Args:
        report: What the fork server says: `killed` (why it killed the child, or None), `status` (as of `os.waitpid`),
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
    """The error of a run whose child did not end by itself."""
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
