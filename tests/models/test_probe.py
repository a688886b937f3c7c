"""The probe: what it finds, what it gives as reasons, and which servers it must catch."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fakes.model_server import Asked, ModelServer
from foretrace.core.completion import Capabilities, Request, Sampling
from foretrace.core.errors import ModelError, UsageError
from models.served import ADAPTERS, asking, at, model_at, probe

NAMES = ("logprobs", "token_ids", "token_prompts", "continuation", "reasoning_apart")


@pytest.mark.parametrize("kind", ADAPTERS)
@pytest.mark.parametrize("able", [True, False])
def test_what_is_missing_has_a_reason(kind: str, able: bool) -> None:
    server = ModelServer(think="hm", ids=True) if able else ModelServer(logprobs=False, counts=False, continues=False)
    found = probe(kind, server)
    for name in NAMES:
        assert getattr(found, name) != (name in found.reasons), name


def test_a_full_server_of_each_kind() -> None:
    full = {"logprobs": True, "continuation": True}
    ids = {"token_ids": True, "token_prompts": True}
    assert plain(probe("ollama", ModelServer(think="hm"))) == full | {"reasoning_apart": True, "context_length": 4096}
    assert plain(probe("openai", ModelServer(ids=True))) == full | ids | {"context_length": 4096}
    assert plain(probe("llamacpp", ModelServer())) == full | ids | {"context_length": 4096}


def plain(found: Capabilities) -> dict[str, object]:
    return {name: getattr(found, name) for name in (*NAMES, "context_length") if getattr(found, name)}


def repeating(asked: Asked) -> str:
    return asked.last if asked.turn else "ok"


@pytest.mark.parametrize(
    ("kind", "server", "name", "reason"),
    [
        ("openai", {"continues": False}, "continuation", "opens a new turn"),
        ("openai", {"continues": False, "opens_think": True}, "continuation", "opens a new turn"),
        ("openai", {"say": repeating}, "continuation", "repeats the beginning"),
        ("openai", {"counts": False}, "continuation", "count"),
        ("openai", {"like_llama": True}, "token_prompts", "its /tokenize gives no ids for messages, as vLLM's does"),
        ("openai", {"ids": True, "adds": 1}, "token_prompts", "counted as"),
        ("ollama", {"counts": False}, "continuation", "count"),
        ("ollama", {"renders": False}, "continuation", "does not render"),
        ("ollama", {"adds": 1}, "continuation", "raw"),
        ("llamacpp", {"adds": 1}, "continuation", "counted as"),
    ],
)
def test_a_server_that_cannot_what_it_does_not_refuse_is_caught(
    kind: str, server: dict[str, Any], name: str, reason: str
) -> None:
    found = probe(kind, ModelServer(**server))
    assert not getattr(found, name) and reason in found.reasons[name]


def test_a_template_that_opens_think_does_not_look_like_a_new_turn() -> None:
    assert probe("openai", ModelServer(opens_think=True)).continuation


def test_a_llama_server_that_answers_to_every_name_is_asked_for_its_own() -> None:
    server = ModelServer(like_llama=True, names=("/models/toy.gguf",))
    with pytest.raises(ModelError, match=r"does not have this model \(it has /models/toy.gguf\)"):
        probe("openai", server, name="other")
    assert probe("openai", ModelServer(like_llama=True, names=("/models/toy.gguf",))).context_length == 4096


@pytest.mark.parametrize(("server", "sent"), [({"like_llama": True}, True), ({"ids": True}, True), ({}, False)])
def test_a_server_with_limits_of_its_own_is_told_that_there_are_none(server: dict[str, bool], sent: bool) -> None:
    """Or its traces would say another sampling than they had; others may refuse words that OpenAI does not know."""

    async def use(running: ModelServer) -> None:
        async with model_at("openai", running.url) as model:
            await model.probe()
            await model.complete(asking())
            assert {"top_k": -1, "min_p": 0.0}.items() <= running.requests[-1].body.items() or not sent
            assert sent or not {"top_k", "min_p"} & {n for n, v in running.requests[-1].body.items() if v is not None}
            await model.complete(asking(sampling=Sampling(top_k=20, extra={"min_p": 0.1})))
            body = running.requests[-1].body
            assert (body["top_k"], body["min_p"]) == (20, 0.1)

    at(ModelServer(**server), use)


def test_refused_logprobs_are_not_asked_for_again() -> None:
    async def use(server: ModelServer) -> None:
        server.fault("/v1/chat/completions", status=400, body='{"error": "logprobs are not supported"}')
        async with model_at("openai", server.url) as model:
            found = await model.probe()
            assert not found.logprobs and "not supported" in found.reasons["logprobs"]
            assert (await model.complete(asking())).text == "ok"
        assert "logprobs" not in server.sent("/v1/chat/completions")[-1]

    at(ModelServer(), use)


@pytest.mark.parametrize("kind", ADAPTERS)
def test_what_was_not_found_is_refused_with_the_reason(kind: str) -> None:
    async def use(server: ModelServer) -> None:
        async with model_at(kind, server.url) as model:
            await model.probe()
            if kind != "llamacpp":
                with pytest.raises(UsageError, match=r"cannot continue an assistant turn: .*(count|new turn)"):
                    await model.complete(asking(prefill="x"))
            with pytest.raises(UsageError, match="cannot take a prompt of token ids: "):
                await model.complete(Request(prompt_ids=(1, 2)))

    at(ModelServer(continues=False, counts=False, adds=1), use)


@pytest.mark.parametrize("kind", ADAPTERS)
def test_many_ask_and_the_server_is_probed_once(kind: str) -> None:
    async def use(server: ModelServer) -> None:
        async with model_at(kind, server.url) as model:
            first = await model.probe()
            asked = len(server.requests)
        async with model_at(kind, server.url) as model:
            found = await asyncio.gather(*(model.probe() for _ in range(20)))
        assert all(one is found[0] for one in found) and found[0] == first
        assert len(server.requests) == 2 * asked

    at(ModelServer(ids=True), use)
