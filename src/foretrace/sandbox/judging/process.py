"""The processes of one verdict: their limits, how they ended, and what that means for the answer."""

from __future__ import annotations

import msgspec

from foretrace.core.problem import Ending, RunError
from foretrace.sandbox.base import Limits
from foretrace.sandbox.forkserver.child_channel import StartChild
from foretrace.sandbox.forkserver.run_result import PROTOCOL_ERROR, ChildExit, make_exit_error
from foretrace.sandbox.judging.plan import JudgePlan

EXIT_TIMEOUT_S = 1.0
"""Seconds that a process gets to exit on its own once it has nothing left to do."""
NOT_RUN = "not run"


class Judging(msgspec.Struct):
    """A verdict in the making: what is judged, and the totals of its processes so far."""

    start_child: StartChild
    plan: JudgePlan
    code: str
    limits: Limits
    """Limits of all processes of the verdict together."""
    ending: Ending = "ok"
    error: RunError | None = None
    stdout: str = ""
    stderr: str = ""
    seconds: float = 0.0
    cpu_s: float = 0.0
    flags: set[str] = set()

    def find_next_limits(self) -> Limits | None:
        """What is left of the limits for the next process; None if it is too little."""
        limits = self.limits
        wall_s = limits.wall_s - self.seconds
        # CPU time is limited in whole seconds.
        cpu_s = float(round(limits.cpu_s - self.cpu_s)) if self.cpu_s else limits.cpu_s
        if wall_s < limits.wall_s / 10 or cpu_s <= 0:
            return None
        return msgspec.structs.replace(limits, wall_s=wall_s, cpu_s=cpu_s)

    def add(self, ended: ChildExit, ending: Ending, error: RunError | None, *, beside: bool = False) -> None:
        """Add the exit of one process, which may have run `beside` the one before; the first ending other than `ok` is
        kept."""
        self.seconds += 0.0 if beside else ended.seconds
        self.cpu_s += ended.cpu_s or 0.0
        self.stdout = (self.stdout + ended.stdout)[: 1 << 20]
        self.stderr = (self.stderr + ended.stderr)[: 1 << 20]
        if self.ending == "ok":
            self.ending = ending
            self.error = error
        if ending == "exit":
            self.flags.add("exited")
        if error is not None and error == PROTOCOL_ERROR:
            self.flags.add("tampered")

    def add_unusable(self, ended: ChildExit, broken: object, failed: RunError | None) -> str | None:
        """Add a process that broke the protocol or could not load the code, and return why all its tests fail; None for
        any other, which is not added."""
        if broken:
            self.add(ended, "killed", PROTOCOL_ERROR)
            return PROTOCOL_ERROR.message
        if failed is not None:
            ending: dict[str, Ending] = {"MemoryError": "memory", "SystemExit": "exit"}
            self.add(ended, ending.get(failed.kind, "error"), failed)
            return format_error(failed)
        return None


def find_ending(ended: ChildExit, whole: bool, limits: Limits) -> tuple[Ending, RunError | None]:
    """The ending of a process that should have answered and then exited; `whole`: it gave all its answers."""
    if ended.ending not in ("ok", "exit"):
        return ended.ending, make_exit_error(ended, limits)
    if whole and ended.ending == "ok" and not ended.exit_code:
        return "ok", None
    return "exit", RunError(kind="Exit", message=f"the code left the process with exit code {ended.exit_code or 0}")


def format_error(error: RunError) -> str:
    return f"{error.kind}: {error.message}"[:500] if error.message else error.kind
