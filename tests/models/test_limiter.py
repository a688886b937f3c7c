"""How many requests at a time: in a loop whose time is simulated, so that no machine is too slow for it."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

import pytest

from foretrace.models.limiter import AdaptiveLimiter


class _Selector(selectors.DefaultSelector):
    """Waits no time: it only moves the clock on."""

    now = 0.0

    def select(self, timeout: float | None = None) -> Any:
        self.now += timeout or 0.0
        return super().select(0)


def simulate(work: Callable[[Callable[[], float]], Coroutine[Any, Any, Any]]) -> Any:
    """Run with a clock that jumps from event to event."""
    selector = _Selector()
    loop = asyncio.SelectorEventLoop(selector)
    loop.time = lambda: selector.now  # type: ignore[method-assign]
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(work(loop.time))


class Server:
    """Serves `places` requests at a time and lets the others wait; or turns away those beyond `most`."""

    def __init__(self, clock: Callable[[], float], places: int, most: int = 1 << 30) -> None:
        self._clock, self._most = clock, most
        self._places = asyncio.Semaphore(places)
        self._random = Random(7)
        self.inside = self.peak = self.refused = 0

    async def ask(self, limiter: AdaptiveLimiter) -> None:
        async with limiter:
            begun = self._clock()
            self.inside += 1
            self.peak = max(self.peak, self.inside)
            try:
                if self.inside > self._most:
                    self.refused += 1
                    limiter.record_overload(begun)
                    return
                tokens = self._random.randint(50, 200)
                async with self._places:
                    await asyncio.sleep(tokens / 100)
                limiter.record_success(begun, tokens)
            finally:
                self.inside -= 1


async def ask_all(server: Server, limiter: AdaptiveLimiter, count: int, at_once: int = 1000) -> None:
    places = asyncio.Semaphore(at_once)

    async def one() -> None:
        async with places:
            await server.ask(limiter)

    await asyncio.gather(*(one() for _ in range(count)))


@pytest.mark.parametrize(
    ("places", "at_once", "initial", "least", "most"),
    [(1, 4000, 1, 1, 2), (4, 4000, 1, 4, 6), (32, 4000, 1, 26, 48), (1000, 4000, 1, 256, 256), (100, 5, 8, 8, 8)],
)
def test_it_grows_as_long_as_that_helps_and_somebody_waits(
    places: int, at_once: int, initial: int, least: int, most: int
) -> None:
    async def work(clock: Callable[[], float]) -> None:
        server, limiter = Server(clock, places), AdaptiveLimiter(initial, 256, clock=clock)
        await ask_all(server, limiter, 6000, at_once=at_once)
        assert least <= limiter.limit <= most
        assert server.peak <= most * 2

    simulate(work)


def test_it_halves_once_for_all_that_were_refused_together() -> None:
    async def work(clock: Callable[[], float]) -> None:
        server, limiter = Server(clock, 64, most=20), AdaptiveLimiter(64, 256, clock=clock)
        first = asyncio.create_task(ask_all(server, limiter, 64))
        await asyncio.sleep(0.01)
        assert limiter.limit == 32
        await first
        await ask_all(server, limiter, 3000)
        assert 10 <= limiter.limit <= 24 and server.refused < 300

    simulate(work)


def test_a_growth_that_is_refused_is_taken_back_and_tried_ever_more_seldom() -> None:
    async def work(clock: Callable[[], float]) -> None:
        server, limiter = Server(clock, 64, most=4), AdaptiveLimiter(8, 256, clock=clock)
        await ask_all(server, limiter, 4000)
        assert 4 <= limiter.limit <= 5 and server.refused <= 4 + 8

    simulate(work)


def test_who_waits_without_a_slot_is_the_first_to_get_one_again() -> None:
    async def work(clock: Callable[[], float]) -> None:
        limiter, order = AdaptiveLimiter(1, clock=clock), []

        async def hold(name: str, rest_s: float | None = None) -> None:
            async with limiter:
                if rest_s is not None:
                    await limiter.release_during(asyncio.sleep(rest_s))
                await asyncio.sleep(1)
                order.append(name)

        await asyncio.gather(hold("rests", 0.5), hold("a"), hold("b"))
        assert order == ["a", "rests", "b"] and limiter.in_use == 0
        for cancel_s in (0.1, 0.7):  # while it rests, and while it waits for a slot
            tasks = [asyncio.create_task(hold("rests", 0.5)), asyncio.create_task(hold("c"))]
            await asyncio.sleep(cancel_s)
            tasks[0].cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            assert limiter.in_use == 0

    simulate(work)


def test_who_is_cancelled_gives_the_slot_back() -> None:
    async def work(clock: Callable[[], float]) -> None:
        limiter = AdaptiveLimiter(2, clock=clock)
        server = Server(clock, 2)
        tasks = [asyncio.create_task(server.ask(limiter)) for _ in range(20)]
        await asyncio.sleep(0.1)
        for task in tasks[:15]:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert limiter.in_use == 0
        await server.ask(limiter)

    simulate(work)
