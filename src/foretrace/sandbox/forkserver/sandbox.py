"""The base of all sandboxes on fork servers: the methods of `base.Sandbox`, on a pool that passed its self-test."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from foretrace.core.errors import Setting, UsageError
from foretrace.core.problem import Integrity, RunResult, Test, Verdict
from foretrace.core.trace import Isolation
from foretrace.engines.processes import usable_cores
from foretrace.sandbox.base import Guard, Limits, Sandbox, SandboxSettings, Session
from foretrace.sandbox.forkserver import selftest
from foretrace.sandbox.forkserver.child_channel import run_program
from foretrace.sandbox.forkserver.pool import ForkServerPool
from foretrace.sandbox.forkserver.session import ForkSession, ReplaySession

PRELOAD_SETS = {"none": (), "numpy": ("numpy",), "science": ("numpy", "pandas")}
"""Preload sets by name."""
_MANY_TESTS = 200
MIN_STRONG_LEVEL = 2
"""Lowest isolation level that does not need `allow_weak_isolation`."""
_PID_NAMESPACE_LEVEL = 3
"""From this level on, a session can fork: its processes end with their namespace."""
_PRELOAD_MEMORY_MB = 1024
"""Address space of a run with preloaded packages, MiB, unless the user sets another limit."""


class VerifiedPool(NamedTuple):
    """A pool that passed its self-test, and the results of the self-test."""

    pool: ForkServerPool
    isolation: Isolation
    guards: list[Guard]


class ForkServerSandbox(Sandbox):
    """A sandbox (see `base.Sandbox`) that lacks only `_start_pool`, which starts its fork servers."""

    name = ""

    def __init__(self, settings: SandboxSettings | None = None) -> None:
        self._settings = settings or SandboxSettings()
        self._preload = parse_preload(self._settings.preload)
        self._limits = self._settings.limits
        if self._preload and self._limits.memory_mb == Limits().memory_mb:
            self._limits = msgspec.structs.replace(self._limits, memory_mb=_PRELOAD_MEMORY_MB)
        self._workers = self._settings.workers or usable_cores()
        self._verified: VerifiedPool | None = None
        self._lock = asyncio.Lock()

    async def start(self) -> Isolation:
        return (await self._ensure_started()).isolation

    async def _start_pool(self) -> VerifiedPool:
        """Start fork servers and run their self-test; a SandboxError says why that fails, or that the level is too
        low."""
        raise NotImplementedError

    async def _ensure_started(self) -> VerifiedPool:
        async with self._lock:  # the first runs may come at the same time
            if self._verified is None:
                self._verified = await self._start_pool()
            return self._verified

    def _min_level(self) -> int:
        """The lowest level that the user accepts."""
        asked, weak = self._settings.min_level, self._settings.allow_weak_isolation
        if asked < MIN_STRONG_LEVEL and not weak:
            raise UsageError(
                Setting("min_level", asked),
                " isolates weakly: give ",
                Setting("allow_weak_isolation", True),
                " if that is meant",
            )
        return 0 if weak and asked == MIN_STRONG_LEVEL else asked

    async def _run_selftest(self, pool: ForkServerPool, kinds: Sequence[str] = selftest.NAMESPACES) -> list[Guard]:
        unknown, limits = Isolation(level=-1), Limits(wall_s=10, cpu_s=5)

        async def run_in_sandbox(program: str) -> str:
            return (await run_program(pool.start_child, program, "", limits, unknown)).stdout

        try:
            async with pool.lend("judge") as server:
                namespaces = server.namespaces
            return await selftest.run_selftest(run_in_sandbox, namespaces, kinds)
        except BaseException:
            pool.close()
            raise

    async def guards(self) -> list[Guard]:
        return list((await self._ensure_started()).guards)

    async def run(self, code: str, *, stdin: str = "", limits: Limits | None = None) -> RunResult:
        pool, isolation, _ = await self._ensure_started()
        return await run_program(pool.start_child, code, stdin, limits or self._limits, isolation)

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
        from foretrace.sandbox.judging import judge
        from foretrace.sandbox.judging.plan import make_judge_plan

        make = functools.partial(make_judge_plan, tests, entry_point=entry_point, setup=setup, prompt=prompt, form=form)
        # Thousands of tests take a second to read, which must not block the event loop.
        plan = await asyncio.to_thread(make) if len(tests) > _MANY_TESTS else make()
        pool, isolation, _ = await self._ensure_started()
        return await judge.judge(pool.start_child, plan, code, limits or self._limits, isolation, self._settings.forms)

    async def session(self, *, limits: Limits | None = None) -> Session:
        pool, isolation, _ = await self._ensure_started()
        kind = ForkSession if pool.launch.level >= _PID_NAMESPACE_LEVEL else ReplaySession
        return await kind(pool, limits or self._limits, isolation).open()

    async def close(self) -> None:
        if self._verified is not None:
            self._verified.pool.close()


def parse_preload(text: str) -> tuple[str, ...]:
    """Modules of a preload setting: the name of a set, or module names joined by `+`."""
    if text in PRELOAD_SETS:
        return PRELOAD_SETS[text]
    names = tuple(dict.fromkeys(part.strip() for part in text.split("+")))
    if not all(name.isidentifier() for name in names):
        raise UsageError(f"preload {text!r}: choose one of {', '.join(PRELOAD_SETS)}, or module names joined by +")
    return names
