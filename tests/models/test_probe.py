"""The probe: what it finds, what it gives as reasons, and which servers it must catch."""

from __future__ import annotations

import asyncio

import pytest

from fakes.model_server import ModelServer
from foretrace.core.completion import Capabilities, Request, Sampling
from foretrace.core.errors import ModelError, UsageError
from foretrace.models.base import ChatModel
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


@pytest.mark.parametrize("opens_think", [True, False])
def test_a_server_that_opens_a_new_turn_without_a_word_is_caught(opens_think: bool) -> None:
    found = probe("openai", ModelServer(continues=False, opens_think=opens_think))
    assert not found.continuation and "opens a new turn" in found.reasons["continuation"]
    assert probe("openai", ModelServer(continues=True, opens_think=opens_think)).continuation


def test_a_server_that_repeats_the_beginning_is_caught() -> None:
    server = ModelServer(say=lambda asked: asked.last if asked.turn else "ok")
    assert "repeats the beginning" in probe("openai", server).reasons["continuation"]


def test_a_tokenize_that_knows_no_messages_is_not_that_of_vllm() -> None:
    """That of llama-server answers with no ids."""
    found = probe("openai", ModelServer(like_llama=True))
    assert not found.token_prompts and not found.token_ids
    assert found.reasons["token_prompts"] == "its /tokenize gives no ids for messages, as vLLM's does"


def test_a_llama_server_that_answers_to_every_name_is_asked_for_its_own() -> None:
    server = ModelServer(like_llama=True, names=("/models/toy.gguf",))
    with pytest.raises(ModelError, match=r"does not have this model \(it has /models/toy.gguf\)"):
        probe("openai", server, name="other")
    assert probe("openai", ModelServer(like_llama=True, names=("/models/toy.gguf",))).context_length == 4096


@pytest.mark.parametrize("kind", ["ollama", "openai"])
def test_without_counts_no_continuation_is_believed(kind: str) -> None:
    found = probe(kind, ModelServer(counts=False))
    assert not found.continuation and "count" in found.reasons["continuation"]


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


def test_ollama_without_rendering_cannot_go_on() -> None:
    assert "does not render" in probe("ollama", ModelServer(renders=False)).reasons["continuation"]


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


@pytest.mark.parametrize(
    ("kind", "name"), [("ollama", "continuation"), ("openai", "token_prompts"), ("llamacpp", "continuation")]
)
def test_a_server_that_adds_to_our_own_prompts_is_caught(kind: str, name: str) -> None:
    found = probe(kind, ModelServer(ids=True, adds=1))
    assert not getattr(found, name) and ("counted as" in found.reasons[name] or "raw" in found.reasons[name])


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


def test_the_cloud_is_told_from_a_local_server_in_what_to_do() -> None:
    assert "ollama pull" in failure_of("toi")


def failure_of(name: str) -> str:
    with pytest.raises(Exception, match="does not have this model") as caught:
        probe("ollama", ModelServer(), name=name)
    return str(caught.value)


@pytest.mark.parametrize("kind", ADAPTERS)
def test_adapters_keep_the_contract(kind: str) -> None:
    model: ChatModel = model_at(kind, "http://127.0.0.1:1")
    assert (model.name, model.spec, model.endpoint) == ("toy", f"{kind}:toy", "http://127.0.0.1:1")
