"""The interface of a sandbox: run untrusted Python, judge it, hold sessions, and report how well it is isolated.

To add one, write a module in this folder whose `PLUGIN` has the members of `Sandbox`, and name it in `BUILT_IN` of
`core/plugins.py`. It is constructed with `SandboxSettings`. See docs/sandbox.md.
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
    wall_s: float = 5.0
    """Wall-clock seconds of a run, a session block, or one judged process."""
    cpu_s: float = 2.0
    """CPU seconds of one process."""
    memory_mb: int = 512
    """Address space of one process, MiB. With preloaded packages the default is 1024, which numpy needs."""
    file_mb: int = 8
    """Largest file that can be written, MiB."""
    scratch_mb: int = 16
    """Size of the scratch folder, MiB; not enforced below level 3."""
    processes: int = 64
    """Most threads and processes at a time."""
    open_files: int = 64
    stdout_kb: int = 64
    """How much of stdout and of stderr is kept, KiB each."""
    output_mb: int = 16
    """How much a run may print to stdout and stderr before it is killed, MiB."""
    reply_kb: int = 16384
    """Largest encoded return value of a call, KiB."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if not 0 <= value <= 1 << 31:  # also rejects NaN
                raise UsageError(Setting(name, value), f": a limit is between 0 and {1 << 31:,}")


class SandboxSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    workers: int = 0
    """Most runs at a time; 0 is one per core."""
    min_level: int = 2
    """Lowest isolation level that is accepted."""
    allow_weak_isolation: bool = False
    """Allow levels 0 and 1, with a warning."""
    level: int | None = None
    """Use this level even if a higher one is available; None takes the highest."""
    preload: str = "none"
    """Modules to import once, before the runs: `none`, `numpy`, `science`, or names joined by `+`."""
    interpreter: str | None = None
    """Path of the Python that runs the code; None is the current one."""
    limits: Limits = Limits()
    max_sessions: int = 64
    """Most sessions at a time."""
    forms: tuple[str, ...] = FORMS
    """Forms of judging that may be used; without `together`, tests that need it are an error or fail."""

    def __post_init__(self) -> None:
        if not self.forms or not {*self.forms} <= {*FORMS}:
            raise UsageError(Setting("forms", ",".join(self.forms)), f": choose from {', '.join(FORMS)}")


class Guard(msgspec.Struct, frozen=True, kw_only=True):
    """One guard of a sandbox, with the result of its self-test."""

    name: str
    """E.g. `network`, `filesystem_read`."""
    on: bool
    level: int
    """The isolation level that needs it."""
    reason: str = ""
    """What was observed: what was denied, or which call failed and how."""
    remedy: str = ""
    """What the user can do if it is off."""


class CpuMeter:
    seconds = 0.0


_cpu_meter: ContextVar[CpuMeter | None] = ContextVar("cpu_meter", default=None)


def measure_cpu() -> CpuMeter:
    """A meter of the CPU seconds that sandboxes use from now on for this task and the tasks it creates, including those
    of cancelled runs, which have no result."""
    meter = CpuMeter()
    _cpu_meter.set(meter)
    return meter


def count_cpu(seconds: float | None) -> None:
    """Add the CPU seconds of a process that has ended to the task's meter, if any. Sandboxes call this."""
    if (meter := _cpu_meter.get()) is not None:
        meter.seconds += seconds or 0.0


class Session(Protocol):
    """Blocks of code that accumulate: each runs on the state that the blocks before it left."""

    mode: str
    """`fork` (checkpoints by fork) or `replay` (earlier blocks are run again after an error or for a branch)."""
    head: int
    """Number of the state that the next block starts from; 0 is the empty state."""

    async def run(self, block: str, *, at: int | None = None, early: bool = False) -> RunResult:
        """Run `block` on the state `at` (default: the head). If it completes, the result's `step` is the number of the
        new state, which becomes the head. After an error or when cancelled, the session is as it was.

        An `early` block runs on a guess: it does not affect later blocks until `keep` is called with its result;
        `forget` undoes it. Files that it writes would stay, so it must not write any.

        Raises:
            SandboxError: the session is closed, or has no state with that number.
        """
        ...

    def next_number(self, at: int) -> int:
        """The number in the file name of the next block on the state `at`, which its tracebacks show."""
        ...

    def keep(self, result: RunResult, at: int) -> None:
        """Keep the effects of an early block on the state `at`."""

    async def forget(self, result: RunResult, at: int) -> None:
        """Undo an early block on the state `at`. No other block may have run on its result."""

    async def close(self) -> None:
        """End all processes of the session. May be called twice."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()


class Sandbox(Protocol):
    """Runs untrusted Python."""

    name: str

    async def start(self) -> Isolation:
        """Start, test the guards, and return how well runs are isolated. May be called twice.

        Raises:
            SandboxError: it cannot run, or not at the required level; says which call failed and what to do.
        """
        ...

    async def guards(self) -> list[Guard]:
        """All guards, on or off."""
        ...

    async def run(self, code: str, *, stdin: str = "", limits: Limits | None = None) -> RunResult:
        """Run `code` as `__main__` in a fresh process. Never raises because of what the code does.

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
        """Judge `code` against `tests`, all in the same form: the strongest that works for all of them, or `form`.

        Args:
            setup: code that the tests need: imports and helpers.
            prompt: code that the answer continues or builds on; the answer can use its imports and helpers.

        Raises:
            ProblemError: the tests cannot be parsed, or mix programs and functions.
            SandboxError: no fork server can be started.
        """
        ...

    async def session(self, *, limits: Limits | None = None) -> Session: ...

    async def close(self) -> None:
        """End all processes. May be called twice."""

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()
