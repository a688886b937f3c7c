"""How many requests one endpoint gets at a time: grows while it helps, halves when the server is in trouble."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from types import TracebackType

_HELPS = 0.3
"""Share of the growth in slots by which the throughput must grow, for it to be worth it."""
_FAST, _SLOW = 1.0, 0.125
"""Growth of a round: until more does not help for the first time, and from then on."""
_HOLD = 8
"""Rounds to stay where more did not help, before it is tried again."""
_LONGEST_HOLD = 64
"""The same where more were refused: the hold doubles each time, since a refusal may cost a pause."""
_ROUND = 6
"""Fewest requests of a round."""


class Slots:
    """Lends slots, first come, first served: `async with slots`. Only requests are held in one, not running code.

    Adaptive slots work in rounds of one or two requests a slot. A round's throughput is estimated as the number of
    slots times the tokens that one slot yields a second, so that it is right while slots fill and drain.
    """

    def __init__(self, start: int, most: int | None = None, *, clock: Callable[[], float] = time.monotonic) -> None:
        """`most` is null for a number of slots that never changes."""
        self.limit = start
        """Slots at present."""
        self.used = 0
        self._most = most
        self._clock = clock
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._short = False
        """Whether somebody waited in this round: without, more slots would be of no use."""
        self._slow_start = True
        self._before: tuple[int, float] | None = None
        """Slots and throughput before the last growth, while it is on trial."""
        self._hold, self._next_hold = 0, _HOLD
        self._cut = float("-inf")
        self._changed = clock()
        self._count, self._units, self._seconds = 0, 0.0, 0.0

    async def __aenter__(self) -> None:
        await self._take()

    async def without(self, wait: Awaitable[None]) -> None:
        """Wait without the slot that is held, and take one again, before all others that want one."""
        self._give()
        try:
            await wait
            await self._take(first=True)
        except BaseException:
            self.used += 1  # its holder gives it back
            raise

    async def _take(self, *, first: bool = False) -> None:
        if self.used < self.limit and (first or not self._waiting):
            self.used += 1
            return
        self._short = True
        place = asyncio.get_running_loop().create_future()
        if first:
            self._waiting.appendleft(place)
        else:
            self._waiting.append(place)
        try:
            await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():
                self._give()
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._give()

    def went_well(self, begun: float, units: float) -> None:
        """A request that began at `begun` (of the clock) has yielded `units` tokens."""
        if self._most is None or begun < self._changed:
            return
        self._count += 1
        self._units += units
        self._seconds += max(self._clock() - begun, 1e-6)
        if self._count >= max(_ROUND, self.limit * (1 if self._slow_start else 2)):
            self._end_round(self.limit * self._units / self._seconds)

    def trouble(self, begun: float) -> None:
        """The server was too busy for a request that began at `begun`, or failed it: takes back a growth that is on
        trial, or else halves; once for all that were under way together."""
        if begun <= self._cut:
            return
        self._cut = self._clock()
        if self._most is None:
            return
        before, self._before, self._slow_start = self._before, None, False
        if before is None:
            self._hold = 1
            self._set(self.limit // 2)
        else:
            self._hold, self._next_hold = self._next_hold, min(2 * self._next_hold, _LONGEST_HOLD)
            self._set(before[0])

    def _end_round(self, rate: float) -> None:
        before, self._before = self._before, None
        if before is not None and rate / before[1] - 1 < _HELPS * (self.limit / before[0] - 1):
            self._hold, self._slow_start = _HOLD, False
            self._set(before[0])
        elif self._hold:
            self._hold -= 1
            self._set(self.limit)
        elif self._short:
            self._before = (self.limit, rate)
            self._set(self.limit + max(1, int(self.limit * (_FAST if self._slow_start else _SLOW))))
        else:
            self._set(self.limit)

    def _set(self, limit: int) -> None:
        """Begin a round with that many slots."""
        self.limit = max(1, min(limit, self._most or limit))
        self._changed = self._clock()
        self._count, self._units, self._seconds = 0, 0.0, 0.0
        self._short = bool(self._waiting)
        self._wake()

    def _give(self) -> None:
        self.used -= 1
        self._wake()

    def _wake(self) -> None:
        while self._waiting and self.used < self.limit:
            place = self._waiting.popleft()
            if not place.done():
                self.used += 1
                place.set_result(None)
