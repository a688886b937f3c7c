"""Settings of a model that change what it writes belong to its attempts, others do not; think blocks open once; waits,
and what a request that is cancelled leaves behind."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fakes.model_server import ModelServer, serving
from foretrace.core.completion import Sampling
from foretrace.core.errors import ModelError, UsageError
from foretrace.episodes.identity import describe_sampling
from foretrace.models.adapter import drop_repeated_think
from foretrace.models.base import Server
from foretrace.models.http import parse_sse_line
from foretrace.models.servers.demo import Demo
from foretrace.models.servers.scripted import Script, Scripted
from models.served import ADAPTERS, PATHS, asking, at, model_at


def of(kind: str, **server: Any) -> dict[str, Any]:
    return describe_sampling(Sampling(), ADAPTERS[kind]("m", Server(**server)))


def test_what_changes_the_text_is_told() -> None:
    for options in ({"think": "true"}, {"think": "false"}, {"think": "high"}):
        assert of("ollama", options=options)["options"] == options
    assert [of("ollama", context_length=n)["context_length"] for n in (None, 2048, 8192)] == [8192, 2048, 8192]
    assert describe_sampling(Sampling(), Scripted.of(["a"], tokens=True))["options"] == {"tokens": "bytes"}
    assert describe_sampling(Sampling(), Demo("", Server(context_length=512)))["context_length"] == 512


@pytest.mark.parametrize("kind", ["openai", "llamacpp"])
def test_a_context_length_that_a_server_does_not_take_is_refused(kind: str) -> None:
    with pytest.raises(UsageError, match=r"take no context_length in a request: start the server with it"):
        of(kind, context_length=2048)


@pytest.mark.parametrize("ignored", [{"timeout_s": 5.0}, {"retries": 0}])
def test_a_model_in_this_process_refuses_what_it_would_ignore(ignored: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="timeout or retries"):
        Demo("", Server(**ignored))
    others: list[dict[str, Any]] = [ignored, {"base_url": "http://a"}, {"context_length": 5}]
    for more in others:
        with pytest.raises(UsageError, match="asks no server: it takes no base URL"):
            Scripted("texts", Server(**more), scripts=[Script(turns=["a"])])
    assert Scripted("texts", Server(options={"tokens": "bytes"}), scripts=[Script(turns=["a"])]).settings


@pytest.mark.parametrize("kind", ADAPTERS)
def test_address_key_and_patience_are_not(kind: str) -> None:
    plain = of(kind)
    assert of(kind, base_url="http://10.0.0.1:9", api_key="secret-of-ten", timeout_s=1.0, retries=0) == plain
    assert of(kind, options={"backoff_s": "3"}) == plain
    assert kind != "ollama" or of(kind, options={"keep_alive": "1h"}) == plain


@pytest.mark.parametrize(
    ("prompt", "prefill", "sent"),
    [
        ("assistant\n<think>\n", "<think>\nso", "so"),
        ("assistant\n<think>", "<think>\nso", "\nso"),
        ("assistant\n", "<think>\nso", "<think>\nso"),
        ("assistant\n<think>\n", "so", "so"),
    ],
)
def test_a_think_block_is_opened_once(prompt: str, prefill: str, sent: str) -> None:
    assert drop_repeated_think(prompt, prefill) == sent


def test_waits_grow_are_spread_and_end_and_the_caller_hears_of_each_failure_at_once() -> None:
    failures = [ModelError(word, kind="busy", retryable=True, retry_after_s=7.0 * (word == "b")) for word in "abcd"]
    left = list(failures)
    heard: list[tuple[ModelError, float]] = []

    async def call() -> str:
        raise left.pop(0)

    async def on_retry(failure: ModelError, seconds: float) -> None:
        assert len(left) == 3 - len(heard)
        heard.append((failure, seconds))

    model = ADAPTERS["openai"]("m", Server(retries=3, options={"backoff_s": "1"}))
    with pytest.raises(ModelError, match="d"):
        asyncio.run(model.retry(call, on_retry))
    assert [failure for failure, _ in heard] == failures[:3]
    for (_, seconds), least in zip(heard, (1.0, 7.0, 4.0), strict=True):
        assert least <= seconds <= 1.25 * least
    left = [ModelError("x")]
    with pytest.raises(ModelError, match="x"):
        asyncio.run(model.retry(call, on_retry))


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
