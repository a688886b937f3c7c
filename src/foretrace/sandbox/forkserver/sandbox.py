"""What sandboxes made of fork servers share, wherever these run: a tested pool, and the contract on top of it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from typing import NamedTuple, Self

from foretrace.core.errors import UsageError
from foretrace.core.problem import Integrity, RunResult, Test, Verdict
from foretrace.core.trace import Isolation
from foretrace.sandbox.base import Guard, Limits, Session, Settings
from foretrace.sandbox.forkserver import result, selftest
from foretrace.sandbox.forkserver.interpreter import preload_names
from foretrace.sandbox.forkserver.pool import Pool
from foretrace.sandbox.forkserver.session import ForkSession, ReplaySession

WEAK = 2
"""Levels below this one need the explicit flag."""
_JAILED = 3
_NUMPY_MB = 1024


class Serving(NamedTuple):
    """A pool that passed its self-test, and what that found."""

    pool: Pool
    isolation: Isolation
    guards: list[Guard]


class ServedSandbox:
    """The methods of `base.Sandbox`, on a pool that `_establish` makes."""

    name = ""

    def __init__(self, settings: Settings | None = None) -> None:
        self._settings = settings or Settings()
        self._preload = preload_names(self._settings.preload)
        self._limits = self._settings.limits
        if self._preload and self._limits.memory_mb < _NUMPY_MB and self._limits == Limits():
            self._limits = Limits(memory_mb=_NUMPY_MB)
        self._workers = self._settings.workers or len(_cores())
        self._serving: Serving | None = None
        self._turn = asyncio.Lock()

    async def start(self) -> Isolation:
        """Start and self-test (see `base.Sandbox.start`)."""
        return (await self._started()).isolation

    async def _establish(self) -> Serving:
        """Start fork servers and test them, or raise why that cannot be."""
        raise NotImplementedError

    async def _started(self) -> Serving:
        async with self._turn:  # the first runs may come together
            if self._serving is None:
                self._serving = await self._establish()
            return self._serving

    def _lowest(self) -> int:
        """The lowest level that the user accepts."""
        asked, weak = self._settings.min_level, self._settings.allow_weak_isolation
        if asked < WEAK and not weak:
            raise UsageError(f"min_level={asked} isolates weakly: say allow_weak_isolation=True if that is meant")
        return 0 if weak and asked == WEAK else asked

    async def _test(self, pool: Pool, interpreter: str, kinds: Sequence[str] = selftest.SPACES) -> list[Guard]:
        nobody = Isolation(level=-1)

        async def attempt(program: str) -> str:
            return (await result.run(pool.open, program, "", Limits(wall_s=10, cpu_s=5), nobody)).stdout

        async with pool.lend("judge") as worker:
            found = worker.facts["spaces"]
        return await selftest.test(attempt, interpreter, found, kinds)

    async def guards(self) -> list[Guard]:
        """Each guard, on or off."""
        return list((await self._started()).guards)

    async def run(self, code: str, *, stdin: str = "", limits: Limits | None = None) -> RunResult:
        """Run a program (see `base.Sandbox.run`)."""
        pool, isolation, _ = await self._started()
        return await result.run(pool.open, code, stdin, limits or self._limits, isolation)

    async def judge(
        self,
        code: str,
        tests: Sequence[Test],
        *,
        entry_point: str | None = None,
        setup: str = "",
        form: Integrity | None = None,
        limits: Limits | None = None,
    ) -> Verdict:
        """Judge code against tests (see `base.Sandbox.judge`)."""
        from foretrace.sandbox.judging import judge
        from foretrace.sandbox.judging.plan import make_plan

        plan = make_plan(tests, entry_point=entry_point, setup=setup, form=form)
        pool, isolation, _ = await self._started()
        return await judge.judge(pool.open, plan, code, limits or self._limits, isolation)

    async def session(self, *, limits: Limits | None = None) -> Session:
        """Open a session (see `base.Sandbox.session`)."""
        pool, isolation, _ = await self._started()
        kind = ForkSession if pool.launch.level >= _JAILED else ReplaySession
        return await kind(pool, limits or self._limits, isolation).open()

    async def close(self) -> None:
        """End all processes."""
        if self._serving is not None:
            self._serving.pool.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()


def _cores() -> set[int]:
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))
