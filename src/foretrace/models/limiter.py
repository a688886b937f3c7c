"""Limit the requests in flight at one server: raise the limit while that helps, and halve it when the server is
overloaded."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from types import TracebackType

_MIN_GAIN = 0.3
"""An increase of the limit is kept only if throughput grows by at least this share of the increase."""
_FAST_GROWTH, _SLOW_GROWTH = 1.0, 0.125
"""Share of the slots that is added after a round, before and after an increase was first undone."""
_HOLD_ROUNDS = 8
"""Rounds without an increase after one that did not help."""
_MAX_HOLD_ROUNDS = 64
"""Most rounds without an increase after one that overloaded the server. The number doubles each time, because an
overload may cost a pause."""
_MIN_ROUND_REQUESTS = 6


class AdaptiveLimiter:
    """Gives slots to requests in the order in which they ask: `async with limiter`. Running code does not need a slot.

    An adaptive limit may change after each round, which is one or two requests per slot. The throughput of a round is
    estimated as the number of slots times the tokens per second of one slot, which holds even if some slots are empty.

    Without `max_limit`, the number of slots is fixed.
    """

    def __init__(
        self, initial: int, max_limit: int | None = None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.limit = initial
        self.in_use = 0
        self._max_limit = max_limit
        self._clock = clock
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._contended = False
        """Whether a request had to wait in this round; otherwise more slots would not help."""
        self._slow_start = True
        """Whether no increase has been undone yet."""
        self._before_growth: tuple[int, float] | None = None
        """Slots and throughput before the last increase, until a round has shown whether it helps."""
        self._hold_rounds, self._next_hold_rounds = 0, _HOLD_ROUNDS
        self._last_overload = float("-inf")
        self._round_start = clock()
        self._requests, self._tokens, self._seconds = 0, 0.0, 0.0
        """Totals of this round's successes."""

    async def __aenter__(self) -> None:
        await self._acquire()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._release()

    async def release_during(self, wait: Awaitable[None]) -> None:
        """Release the held slot, wait, and acquire one again ahead of all other requests."""
        self._release()
        try:
            await wait
            await self._acquire(first=True)
        except BaseException:
            self.in_use += 1  # `__aexit__` releases it
            raise

    async def _acquire(self, *, first: bool = False) -> None:
        if self.in_use < self.limit and (first or not self._waiters):
            self.in_use += 1
            return
        self._contended = True
        waiter = asyncio.get_running_loop().create_future()
        if first:
            self._waiters.appendleft(waiter)
        else:
            self._waiters.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self._release()
            raise

    def _release(self) -> None:
        self.in_use -= 1
        self._wake_waiters()

    def _wake_waiters(self) -> None:
        while self._waiters and self.in_use < self.limit:
            waiter = self._waiters.popleft()
            if not waiter.done():
                self.in_use += 1
                waiter.set_result(None)

    def record_success(self, started: float, tokens: float) -> None:
        """Record that a request that was sent at `started` (by the clock) returned this many tokens."""
        if self._max_limit is None or started < self._round_start:
            return
        self._requests += 1
        self._tokens += tokens
        self._seconds += max(self._clock() - started, 1e-6)
        if self._requests >= max(_MIN_ROUND_REQUESTS, self.limit * (1 if self._slow_start else 2)):
            self._end_round(self.limit * self._tokens / self._seconds)

    def record_overload(self, started: float, *, is_certain: bool = False) -> None:
        """Record that the server was too busy for a request that was sent at `started` (by the clock), or failed it.
        The last increase is undone if it is still on trial, else the limit is halved. This happens once for all
        requests that were in flight together. If it `is_certain` that there were too many, a fixed limit is halved too.
        """
        if started <= self._last_overload:
            return
        self._last_overload = self._clock()
        if self._max_limit is None and not is_certain:
            return
        before, self._before_growth, self._slow_start = self._before_growth, None, False
        if before is None:
            self._hold_rounds = 1
            self._start_round(self.limit // 2)
        else:
            self._hold_rounds = self._next_hold_rounds
            self._next_hold_rounds = min(2 * self._next_hold_rounds, _MAX_HOLD_ROUNDS)
            self._start_round(before[0])

    def _end_round(self, throughput: float) -> None:
        before, self._before_growth = self._before_growth, None
        if before is not None and throughput / before[1] - 1 < _MIN_GAIN * (self.limit / before[0] - 1):
            self._hold_rounds, self._slow_start = _HOLD_ROUNDS, False
            self._start_round(before[0])
        elif self._hold_rounds:
            self._hold_rounds -= 1
            self._start_round(self.limit)
        elif self._contended:
            self._before_growth = (self.limit, throughput)
            growth = _FAST_GROWTH if self._slow_start else _SLOW_GROWTH
            self._start_round(self.limit + max(1, int(self.limit * growth)))
        else:
            self._start_round(self.limit)

    def _start_round(self, limit: int) -> None:
        self.limit = max(1, min(limit, self._max_limit or limit))
        self._round_start = self._clock()
        self._requests, self._tokens, self._seconds = 0, 0.0, 0.0
        self._contended = bool(self._waiters)
        self._wake_waiters()
