"""The engine hears of a busy server at its first refusal, and all requests keep the pause that it asks for."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web

from fakes.model_server import ModelServer
from foretrace.core.errors import ModelError
from foretrace.models.limiter import AdaptiveLimiter
from foretrace.models.throttle import ThrottledModel
from foretrace.models.token_meter import TokenMeter
from models.served import PATHS, asking, at, model_at

_PAUSE_S = 0.25


@dataclass
class Stamped(ModelServer):
    """Notes when each request came."""

    came: list[float] = field(default_factory=list[float])

    async def _openai(self, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        self.came.append(time.monotonic())
        return await super()._openai(request, body)


def throttle(server: ModelServer, limiter: AdaptiveLimiter, kind: str = "openai") -> ThrottledModel:
    return ThrottledModel(model_at(kind, server.url), limiter, TokenMeter())


def busy(status: int = 429) -> Stamped:
    server = Stamped()
    server.fault(PATHS["openai"], status=status, headers={"Retry-After": f"{_PAUSE_S}"})
    return server


def test_slots_halve_and_all_wait_from_the_first_refusal_on() -> None:
    server = busy()

    async def use(_: ModelServer) -> None:
        limiter = AdaptiveLimiter(8, 256)
        async with throttle(server, limiter) as throttled:
            first = asyncio.create_task(throttled.complete(asking()))
            while limiter.limit == 8:
                await asyncio.sleep(0.001)
            refused = time.monotonic()
            assert limiter.limit == 4 and not first.done()
            assert limiter.in_use == 0, "who rests holds no slot"
            assert throttled.failing == "busy"
            others = [asyncio.create_task(throttled.complete(asking())) for _ in range(10)]
            done = await asyncio.gather(first, *others)
            assert [one.extra.get("retried") for one in done] == [["busy"]] + 10 * [None]
            assert len(server.came) == 11 and min(server.came) >= refused + 0.9 * _PAUSE_S
            assert server.most_in_flight <= 4 and limiter.in_use == 0 and not throttled.failing

    at(server, use)


def test_a_failure_that_fewer_requests_would_not_avoid_changes_no_slots() -> None:
    server = busy(500)

    async def use(_: ModelServer) -> None:
        limiter = AdaptiveLimiter(8, 256)
        async with throttle(server, limiter) as throttled:
            assert (await throttled.complete(asking())).extra["retried"] == ["server"]
            assert limiter.limit == 8

    at(server, use)


@pytest.mark.parametrize("status", [429, 503])
def test_a_server_that_asks_for_hours_ends_the_run_instead(status: int) -> None:
    """What is finished is kept; nobody is left sitting before a run that sleeps until tomorrow."""
    server = ModelServer()
    server.fault(PATHS["openai"], status=status, headers={"Retry-After": "86400"})

    async def use(_: ModelServer) -> None:
        async with throttle(server, AdaptiveLimiter(8, 256)) as throttled:
            with pytest.raises(ModelError, match="asks to wait 24 hours") as caught:
                await throttled.complete(asking())
            assert caught.value.final
            await asyncio.wait_for(throttled.complete(asking()), 60)

    at(server, use)


@dataclass
class Crowded(ModelServer):
    """A llama-server whose slots share one context: it ends all requests under way once there are more than four."""

    like_llama: bool = True
    epoch: int = 0
    """How often the context was full."""

    async def _llama(self, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        epoch = self.epoch
        for _ in range(4):
            await asyncio.sleep(0.01)
            if self.in_flight > 4 and self.epoch == epoch:
                self.epoch += 1
            if self.epoch != epoch:
                error = {"code": 500, "message": "Context size has been exceeded.", "type": "server_error"}
                return web.json_response({"error": error}, status=500)
        return await super()._llama(request, body)


@pytest.mark.parametrize("max_limit", [256, None], ids=["adaptive", "fixed"])
def test_requests_that_do_not_fit_into_one_context_together_are_sent_few_by_few(max_limit: int | None) -> None:
    server = Crowded()

    async def use(_: ModelServer) -> None:
        limiter = AdaptiveLimiter(32, max_limit)
        async with throttle(server, limiter, "llamacpp") as throttled:
            await throttled.probe()
            done = await asyncio.gather(*(throttled.complete(asking()) for _ in range(32)))
            assert {one.text for one in done} == {"ok"} and limiter.limit <= 8 and not throttled.failing

    at(server, use)
