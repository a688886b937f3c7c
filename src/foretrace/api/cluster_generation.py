"""Make the attempts of `generate` on a cluster: each group of attempts has its own model and sandbox on its node.

Only the driver plans, writes and counts. A group that is lost with its node is made again: none of it was written.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import socket
import time
from collections.abc import AsyncGenerator, Sequence
from typing import NamedTuple

import msgspec

from foretrace.api.event_loop import closing_all
from foretrace.core.completion import Capabilities
from foretrace.core.errors import ForetraceError, Setting, UsageError, render_parts
from foretrace.core.trace import Isolation
from foretrace.engines.engine import Engine, Pool
from foretrace.episodes.generate.attempts import (
    FinishedAttempt,
    FinishedGroup,
    LocalAttempts,
    StartedAttempt,
    TimeLeft,
)
from foretrace.episodes.generate.resume import PlannedAttempt
from foretrace.episodes.generate.settings import GenerateSettings
from foretrace.episodes.identity import Identity
from foretrace.models.base import Server
from foretrace.models.token_meter import TokenMeter
from foretrace.registry import make_model, make_protocol, make_sandbox
from foretrace.sandbox.base import SandboxSettings

MAX_AT_ONCE = 16
"""Default number of attempts that a worker makes at a time."""
_GROUPS_EACH = 4
"""Groups for each worker if there are few attempts, so that all workers have something to do until the end."""
_ROUNDS = 2
"""Size of a group, in multiples of a worker's attempts at a time. A killed driver loses its unfinished groups."""
_KEPT_FOR_THE_WAY = 0.1
"""Share of the last wait that is reserved for returning a group's results."""


class AttemptParts(NamedTuple):
    """Names of what attempts are made with, so that each worker can construct its own."""

    model: str
    server: Server | None
    protocol: str
    sandbox: str
    sandbox_settings: SandboxSettings


class _Setup(NamedTuple):
    """What all groups of a run share."""

    parts: AttemptParts
    settings: GenerateSettings
    identity: Identity
    at_once: int
    """Attempts of a worker at a time."""


class _Node(NamedTuple):
    """A worker's node, and the tested isolation of its own sandbox there."""

    name: str
    isolation: Isolation


class _GroupResult(NamedTuple):
    node: _Node
    finished: list[tuple[int, FinishedAttempt, TokenMeter]]
    """Each with the number of the attempt in its group."""
    error: ForetraceError | None


class ClusterAttempts:
    """Has the workers of an engine make attempts (see `episodes.generate.attempts.AttemptRunner`).

    Args:
        engine: Opens a pool, which `close` closes.
    """

    preparing = "starting a sandbox in each worker of the cluster"
    server_failure = ""

    def __init__(self, engine: Engine, parts: AttemptParts, settings: GenerateSettings) -> None:
        self._engine, self._parts, self._settings = engine, parts, settings
        self._stack = contextlib.ExitStack()
        self._pool: Pool | None = None
        self._setup: _Setup | None = None
        self._total = TokenMeter()
        self.nodes: dict[str, Isolation] = {}
        self.group_size = self.at_once = self.max_groups = self.slots = 1

    @property
    def isolation(self) -> Isolation | None:
        """See `AttemptRunner`."""
        return min(self.nodes.values(), key=lambda isolation: isolation.level, default=None)

    async def start(self, attempts: int, found: Capabilities, identity: Identity, total: TokenMeter) -> None:
        """Open the pool, and have each worker check that it can reach the server and start a sandbox.

        Raises:
            ForetraceError: a worker cannot start; names its node.
        """
        concurrency = self._settings.concurrency
        useful = attempts if concurrency is None else min(attempts, concurrency)
        self._pool = self._stack.enter_context(
            self._engine.open_pool(useful=useful, small=False, kept="what was finished is kept")
        )
        if self._pool is None:
            raise UsageError(Setting("engine"), " has no workers")
        self.max_groups = self._pool.workers
        each = None if concurrency is None else max(1, concurrency // self.max_groups)
        at_once = self.at_once = each or MAX_AT_ONCE
        self.slots = self.max_groups * at_once
        self.group_size = max(1, min(_ROUNDS * at_once, math.ceil(attempts / (self.max_groups * _GROUPS_EACH))))
        settings = msgspec.structs.replace(self._settings, concurrency=each)
        sandbox = msgspec.structs.replace(self._parts.sandbox_settings, workers=1, max_sessions=at_once)
        self._setup = _Setup(self._parts._replace(sandbox_settings=sandbox), settings, identity, at_once)
        self._total = total
        prepared = [self._pool.submit(_prepare, self._setup) for _ in range(self.max_groups)]
        for node in await asyncio.gather(*map(asyncio.wrap_future, prepared)):
            self._note_node(node)

    async def run(self, group: Sequence[StartedAttempt], time_left: TimeLeft) -> FinishedGroup:
        """Have a worker make the attempts of a group."""
        assert self._pool is not None and self._setup is not None, "start comes first"
        if time_left.end is not None:
            time_left = time_left._replace(end=time_left.end * (1 - _KEPT_FOR_THE_WAY))
        plans = [attempt.plan for attempt in group]
        result = await asyncio.wrap_future(self._pool.submit(_make_group, self._setup, plans, time_left))
        for number, _, used in result.finished:
            group[number].meter.include(used)
            self._total.include(used)
        self._note_node(result.node)
        return FinishedGroup([attempt for _, attempt, _ in result.finished], result.error)

    def _note_node(self, node: _Node) -> None:
        known = self.nodes.get(node.name, node.isolation)
        self.nodes[node.name] = min(known, node.isolation, key=lambda isolation: isolation.level)

    def close(self) -> None:
        """End unfinished groups, and close the pool."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
        self._stack.close()


@contextlib.asynccontextmanager
async def _open_attempts(setup: _Setup) -> AsyncGenerator[LocalAttempts]:
    """In a worker: makes attempts with its own model and sandbox.

    Raises:
        ForetraceError: it cannot start; names the node.
    """
    parts = setup.parts
    try:
        model, sandbox = make_model(parts.model, parts.server), make_sandbox(parts.sandbox, parts.sandbox_settings)
        async with closing_all(model, sandbox):
            attempts = LocalAttempts(make_protocol(parts.protocol), model, sandbox, setup.settings)
            await attempts.start(0, await model.probe(), setup.identity, TokenMeter())
            yield attempts
    except ForetraceError as error:
        error.parts = (f"node {socket.gethostname()}: ", *error.parts)
        error.args = (render_parts(error.parts),)
        raise


def _describe_node(attempts: LocalAttempts) -> _Node:
    assert attempts.isolation is not None, "it was started"
    return _Node(socket.gethostname(), attempts.isolation)


def _prepare(setup: _Setup) -> _Node:
    """In a worker: check that it can make attempts."""

    async def look() -> _Node:
        async with _open_attempts(setup) as attempts:
            return _describe_node(attempts)

    return asyncio.run(look())


def _make_group(setup: _Setup, plans: Sequence[PlannedAttempt], time_left: TimeLeft) -> _GroupResult:
    """In a worker: make a group of attempts."""
    return asyncio.run(_make_attempts(setup, plans, time_left, time.monotonic()))


async def _make_attempts(
    setup: _Setup, plans: Sequence[PlannedAttempt], time_left: TimeLeft, started: float
) -> _GroupResult:
    numbered = enumerate(plans)
    finished: list[tuple[int, FinishedAttempt, TokenMeter]] = []
    async with _open_attempts(setup) as attempts:

        async def work() -> None:
            for number, plan in numbered:
                if time_left.begin is not None and time.monotonic() - started >= time_left.begin:
                    return
                meter = TokenMeter()
                made = await attempts.run([StartedAttempt(plan, meter)], time_left)
                finished.extend((number, attempt, meter) for attempt in made.attempts)

        working = [asyncio.create_task(work()) for _ in range(min(setup.at_once, len(plans)))]
        end = None if time_left.end is None else time_left.end - (time.monotonic() - started)
        ended, hanging = await asyncio.wait(working, timeout=end, return_when=asyncio.FIRST_EXCEPTION)
        for task in hanging:
            task.cancel()
        await asyncio.gather(*hanging, return_exceptions=True)
        errors = [error for task in ended if (error := task.exception()) is not None]
        for error in errors:
            if not isinstance(error, ForetraceError):
                raise error
        final = next((error for error in errors if isinstance(error, ForetraceError)), None)
        return _GroupResult(_describe_node(attempts), sorted(finished, key=lambda each: each[0]), final)
