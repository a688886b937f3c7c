"""Hundreds of requests at one time, what a cancelled one leaves behind, and lines of events."""

from __future__ import annotations

import asyncio

import pytest

from fakes.model_server import ModelServer, serving
from foretrace.models.http import parse_sse_line
from models.served import ADAPTERS, PATHS, asking, at, model_at


@pytest.mark.parametrize("kind", ADAPTERS)
@pytest.mark.parametrize("how", ["hang", "stall", "status"])
def test_a_cancelled_request_leaves_nothing_behind(kind: str, how: str) -> None:
    async def use(server: ModelServer) -> None:
        fault = {"status": 503, "headers": {"Retry-After": "60"}} if how == "status" else {"how": how}
        server.fault(PATHS[kind], times=20, **fault)
        async with model_at(kind, server.url) as model:
            tasks = [asyncio.create_task(model.complete(asking())) for _ in range(20)]
            while len(server.sent(PATHS[kind])) < 20:
                await asyncio.sleep(0.01)
            for task in tasks:
                task.cancel()
            ended = await asyncio.gather(*tasks, return_exceptions=True)
            assert all(isinstance(one, asyncio.CancelledError) for one in ended)
            while server.in_flight:  # the server sees them go
                await asyncio.sleep(0.01)
            assert (await model.complete(asking())).text == "ok"

    async def bounded(server: ModelServer) -> None:
        await asyncio.wait_for(use(server), 120)

    at(ModelServer(say=lambda asked: "ok"), bounded)


@pytest.mark.parametrize("kind", ADAPTERS)
def test_a_model_may_be_closed_twice_and_used_in_another_loop(kind: str) -> None:
    with serving(ModelServer()) as server:
        model = model_at(kind, server.url)

        async def use() -> str:
            try:
                return (await model.complete(asking())).text
            finally:
                await model.close()
                await model.close()

        assert [asyncio.run(use()), asyncio.run(use())] == ["ok", "ok"]


@pytest.mark.parametrize(
    ("line", "data"),
    [
        (b'data: {"a": 1}', b'{"a": 1}'),
        (b'data:{"a": 1}', b'{"a": 1}'),
        (b"data: [DONE]", None),
        (b": ping", None),
        (b"event: message", None),
        (b"<html>", b"<html>"),
    ],
)
def test_lines_of_events(line: bytes, data: bytes | None) -> None:
    assert parse_sse_line(line) == data
