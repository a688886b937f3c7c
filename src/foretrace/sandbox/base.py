"""The contract of a sandbox: run untrusted Python, judge it, keep a session of it, and say how well it is isolated.

To add one, write a module in this folder whose `PLUGIN` has the members of `Sandbox`, and name it in `BUILT_IN` of
`core/plugins.py`. It is made from `SandboxSettings`. See docs/sandbox.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from typing import Protocol, Self, get_args

import msgspec

from foretrace.core.errors import Setting, UsageError
from foretrace.core.problem import Integrity, RunResult, Test, Verdict
from foretrace.core.trace import Isolation

FORMS: tuple[Integrity, ...] = get_args(Integrity)
"""Forms of judging, from the strongest to the weakest."""


class Limits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one run may use."""

    wall_s: float = 5.0
    """Wall-clock seconds of a run, a block of a session, or one judged process."""
    cpu_s: float = 2.0
    """CPU seconds of one process."""
    memory_mb: int = 512
    """Address space of one process, MiB. Preloaded numpy needs 1024, which the preload set asks for by itself."""
    file_mb: int = 8
    """Largest file that can be written, MiB."""
    scratch_mb: int = 16
    """Size of the scratch folder, MiB (level 3 only; below, there is no scratch folder)."""
    processes: int = 64
    """Threads and processes at one time."""
    open_files: int = 64
    stdout_kb: int = 64
    """How much of stdout, and of stderr, is kept, KiB."""
    output_mb: int = 16
    """How much stdout and stderr a run may print before it is killed, MiB."""
    reply_kb: int = 16384
    """Largest value that a call may give back, encoded, KiB."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if not 0 <= value <= 1 << 31:  # false for what is not a number, too
                raise UsageError(Setting(name, value), f": a limit is between 0 and {1 << 31:,}")


class SandboxSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a sandbox is to be set up."""

    workers: int = 0
    """How many runs at one time; 0 means one per core."""
    min_level: int = 2
    """Isolation below this is an error."""
    allow_weak_isolation: bool = False
    """Allow levels 0 and 1, with a warning."""
    level: int | None = None
    """Use this level although a higher one may be there; None takes the highest."""
    preload: str = "none"
    """Modules that are imported once, before the runs: `none`, `numpy`, `science`, or names joined by `+`."""
    interpreter: str | None = None
    """Path of the Python that runs the code; None is the running one."""
    limits: Limits = Limits()
    max_sessions: int = 64
    """Sessions at one time."""
    forms: tuple[str, ...] = FORMS
    """Forms of judging that may decide; without `together`, what needs it is an error or a failed test."""

    def __post_init__(self) -> None:
        if not self.forms or not {*self.forms} <= {*FORMS}:
            raise UsageError(Setting("forms", ",".join(self.forms)), f": choose from {', '.join(FORMS)}")


class Guard(msgspec.Struct, frozen=True, kw_only=True):
    """One guard of a sandbox, as its self-test found it."""

    name: str
    """E.g. `network`, `filesystem_read`."""
    on: bool
    level: int
    """The isolation level that needs it."""
    reason: str = ""
    """What was observed: what was denied, or which call failed and how."""
    remedy: str = ""
    """What the user can do where it is off."""


class CpuMeter:
    """Adds up CPU seconds."""

    seconds = 0.0


_cpu_meter: ContextVar[CpuMeter | None] = ContextVar("cpu_meter", default=None)


def measure_cpu() -> CpuMeter:
    """Count from now on what a sandbox runs for this task and for those that it makes: also what is cancelled, and so
    gives no result."""
    meter = CpuMeter()
    _cpu_meter.set(meter)
    return meter


def count_cpu(seconds: float | None) -> None:
    """Count the CPU seconds of a process that has ended, where they are measured; a sandbox calls this."""
    if (meter := _cpu_meter.get()) is not None:
        meter.seconds += seconds or 0.0


class Session(Protocol):
    """Blocks of code that accumulate: each is run with everything before it in place."""

    mode: str
    """`fork` (checkpoints by fork) or `replay` (earlier blocks are run again after an error or for a branch)."""
    head: int
    """Number of the state that the next block starts from; 0 is the empty one."""

    async def run(self, block: str, *, at: int | None = None, early: bool = False) -> RunResult:
        """Run `block` on the state `at` (default: the head).

        When it comes to its end the result's `step` is the number of the new state, which becomes the head. After an
        error the state is as before, and the head stays. One that is cancelled leaves the session as it was.

        Args:
            early: on a guess: later blocks are as if it had not run, until `keep` or `forget` is called with its
                result. Files that it writes stay, so it must write none.

        Raises:
            SandboxError: the session is closed, or has no state of that number.
        """
        ...

    def next_number(self, at: int) -> int:
        """The number in the file's name of the next block on the state `at`: its tracebacks show it."""
        ...

    def keep(self, result: RunResult, at: int) -> None:
        """Keep what an early block on the state `at` did."""
        ...

    async def forget(self, result: RunResult, at: int) -> None:
        """Undo an early block on the state `at`, on which nothing was built."""
        ...

    async def close(self) -> None:
        """End all processes of the session. May be called twice."""
        ...

    async def __aenter__(self) -> Self: ...
    async def __aexit__(self, *error: object) -> None: ...


class Sandbox(Protocol):
    """Runs untrusted Python."""

    name: str

    async def start(self) -> Isolation:
        """Start, test the guards, and say how well runs are isolated. May be called twice.

        Raises:
            SandboxError: it cannot serve, or not at the level asked for; says which call failed and what to do.
        """
        ...

    async def guards(self) -> list[Guard]:
        """Each guard, on or off."""
        ...

    async def run(self, code: str, *, stdin: str = "", limits: Limits | None = None) -> RunResult:
        """Run `code` as `__main__` in a fresh process. Never raises for what the code does.

        Raises:
            SandboxError: no fork server can be started.
        """
        ...

    async def judge(
        self,
        code: str,
        tests: Sequence[Test],
        *,
        entry_point: str | None = None,
        setup: str = "",
        prompt: str = "",
        form: Integrity | None = None,
        limits: Limits | None = None,
    ) -> Verdict:
        """Judge `code` against `tests`, in one form for all of them: the strongest that serves, or `form`.

        Args:
            setup: code that the tests need: imports and helpers.
            prompt: code that the answer continues or builds on: its imports and helpers are there for the answer.

        Raises:
            ProblemError: the tests cannot be parsed, or mix programs and functions.
            SandboxError: no fork server can be started.
        """
        ...

    async def session(self, *, limits: Limits | None = None) -> Session:
        """Open a session of accumulating blocks."""
        ...

    async def close(self) -> None:
        """End all processes. May be called twice."""
        ...

    async def __aenter__(self) -> Self: ...
    async def __aexit__(self, *error: object) -> None: ...
