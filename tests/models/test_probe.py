"""The probe: what it finds, what it gives as reasons, which servers it must catch, and which parameters are refused."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from aiohttp import web

from fakes.model_server import Asked, ModelServer
from fakes.vllm_server import VllmServer
from foretrace.core.completion import Capabilities, Request, Sampling
from foretrace.core.errors import ModelError, UsageError
from foretrace.models.servers.ollama import Ollama
from models.served import ADAPTERS, PATHS, asking, at, model_at, probe

NAMES = ("logprobs", "token_ids", "token_prompts", "continuation", "reasoning_apart")


@pytest.mark.parametrize("kind", ADAPTERS)
@pytest.mark.parametrize("able", [True, False])
def test_what_is_missing_has_a_reason(kind: str, able: bool) -> None:
    full = VllmServer() if kind == "openai" else ModelServer(think="hm")
    found = probe(kind, full if able else ModelServer(logprobs=False, counts=False, continues=False))
    for name in NAMES:
        assert getattr(found, name) != (name in found.reasons), name


def test_a_full_server_of_each_kind() -> None:
    full = {"logprobs": True, "continuation": True}
    ids = {"token_ids": True, "token_prompts": True}
    assert plain(probe("ollama", ModelServer(think="hm"))) == full | {"reasoning_apart": True, "context_length": 4096}
    assert plain(probe("openai", VllmServer())) == full | ids | {"context_length": 4096}
    assert plain(probe("llamacpp", ModelServer())) == full | ids | {"context_length": 4096}


def plain(found: Capabilities) -> dict[str, object]:
    return {name: getattr(found, name) for name in (*NAMES, "context_length") if getattr(found, name)}


def repeating(asked: Asked) -> str:
    return asked.last if asked.turn else "ok"


@pytest.mark.parametrize(
    ("kind", "server", "name", "reason"),
    [
        ("openai", ModelServer(continues=False), "continuation", "opens a new turn"),
        ("openai", ModelServer(continues=False, opens_think=True), "continuation", "opens a new turn"),
        ("openai", ModelServer(say=repeating), "continuation", "repeats the beginning"),
        ("openai", ModelServer(counts=False), "continuation", "count"),
        (
            "openai",
            ModelServer(like_llama=True),
            "token_prompts",
            "its /tokenize gives no ids for messages, as vLLM's does",
        ),
        ("openai", VllmServer(adds=1), "token_prompts", "counted as"),
        ("ollama", ModelServer(counts=False), "continuation", "count"),
        ("ollama", ModelServer(renders=False), "continuation", "does not render"),
        ("ollama", ModelServer(adds=1), "continuation", "raw"),
        ("llamacpp", ModelServer(adds=1), "continuation", "counted as"),
    ],
)
def test_a_server_that_silently_lacks_something_is_caught(
    kind: str, server: ModelServer, name: str, reason: str
) -> None:
    found = probe(kind, server)
    assert not getattr(found, name) and reason in found.reasons[name]


def test_a_template_that_opens_think_does_not_look_like_a_new_turn() -> None:
    assert probe("openai", ModelServer(opens_think=True)).continuation


def test_a_llama_server_that_answers_to_every_name_is_asked_for_its_own() -> None:
    server = ModelServer(like_llama=True, names=("/models/toy.gguf",))
    with pytest.raises(ModelError, match=r"does not have this model \(it has /models/toy.gguf\)"):
        probe("openai", server, name="other")
    assert probe("openai", ModelServer(like_llama=True, names=("/models/toy.gguf",))).context_length == 4096


@pytest.mark.parametrize(
    ("server", "sent"), [(ModelServer(like_llama=True), True), (VllmServer(), True), (ModelServer(), False)]
)
def test_a_server_with_limits_of_its_own_is_told_that_there_are_none(server: ModelServer, sent: bool) -> None:
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

    at(server, use)


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

    at(VllmServer() if kind == "openai" else ModelServer(), use)


@pytest.mark.parametrize("cloud", [False, True])
def test_only_at_a_local_ollama_the_advice_is_to_pull(cloud: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if cloud:
        monkeypatch.setattr(Ollama, "key_host", "127.0.0.1")
    with pytest.raises(ModelError, match="does not have this model") as caught:
        probe("ollama", ModelServer(), name="toi")
    assert ("`ollama pull toi`" in str(caught.value)) == (not cloud)


# --- parameters that a model refuses, as those of OpenAI that reason do

ONLY_ONE = (
    "Unsupported value: 'temperature' does not support 0.0 with this model. Only the default (1) value is supported."
)
OTHERS = {
    name: f"Unsupported parameter: '{name}' is not supported with this model." for name in ("top_p", "stop", "logprobs")
}
TOKENS = "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
SAID = {"temperature": ONLY_ONE, "max_tokens": TOKENS} | OTHERS
PLAIN = Sampling(temperature=1.0, max_tokens=50, extra={"temperature": None})


class Picky(ModelServer):
    """Refuses some parameters, one a request."""

    refuses: tuple[str, ...] = ()

    async def _openai(self, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        for name in self.refuses:
            if name in body:
                error = {
                    "message": SAID[name],
                    "type": "invalid_request_error",
                    "param": name,
                    "code": "unsupported_value",
                }
                return web.json_response({"error": error}, status=400)
        return await super()._openai(request, body)


def picky(*refuses: str, **more: Any) -> Picky:
    server = Picky(**more)
    server.refuses = refuses
    return server


@pytest.mark.parametrize("name", SAID)
def test_each_refused_parameter_is_dropped_once_and_told(name: str) -> None:
    server = picky(name)
    found = probe("openai", server)
    assert list(found.reasons).count(name) == 1 and "upported" in found.reasons[name]
    assert sum(name in body for body in server.sent(PATHS["openai"])) == 1  # asked with it, told, and never again
    assert "127.0.0.1" not in str(found.reasons)
    assert found.logprobs == (name != "logprobs")


def test_a_reasoning_model_is_used_without_all_that_it_refuses() -> None:
    async def use(server: ModelServer) -> None:
        async with model_at("openai", server.url) as model:
            found = await model.probe()
            assert {"temperature", "top_p", "stop", "logprobs", "max_tokens"} <= set(found.reasons)
            reply = await model.complete(asking(sampling=PLAIN, stop=("</code>", "<result>")))
        assert (reply.text, reply.finish, reply.stop) == ("<code>x", "stop_sequence", "</code>")
        sent = server.sent(PATHS["openai"])[-1]
        assert sent["max_completion_tokens"] == 50 and not {*SAID} & set(sent)

    at(picky(*SAID, say=lambda asked: "<code>x</code> and <result> made up"), use)


def test_a_temperature_that_is_asked_for_is_not_left_out_in_silence() -> None:
    async def use(server: ModelServer) -> None:
        async with model_at("openai", server.url) as model:
            await model.probe()
            with pytest.raises(UsageError, match=r"takes no temperature: .*temperature='none'"):
                await model.complete(asking(sampling=Sampling(temperature=0.7)))
            with pytest.raises(UsageError, match="takes no top_p: leave top_p at 1"):
                await model.complete(asking(sampling=Sampling(temperature=1.0, top_p=0.9)))
            assert (await model.complete(asking(sampling=PLAIN))).text == "ok"
            assert (await model.complete(asking(sampling=Sampling(temperature=1.0)))).text == "ok"

    at(picky("temperature", "top_p"), use)


def refuse(said: str, status: int = 400, times: int = 1) -> ModelServer:
    server = ModelServer()
    server.fault(PATHS["openai"], status=status, body=json.dumps({"error": {"message": said}}), times=times)
    return server


def test_other_refusals_are_told_from_those_of_a_parameter() -> None:
    thinks = refuse("Could not finish the message because max_tokens was reached: try again with higher max_tokens.")
    assert "max_tokens" not in probe("openai", thinks).reasons
    assert [body["max_tokens"] for body in thinks.sent(PATHS["openai"])][:2] == [16, 1024]
    said = "You are not allowed to request logprobs from this model."
    found = probe("openai", refuse(said, status=403))  # which is no wrong key
    assert not found.logprobs and said in found.reasons["logprobs"]
    server = refuse("the messages are bad", times=-1)
    with pytest.raises(ModelError, match="the messages are bad") as caught:
        probe("openai", server)
    assert caught.value.kind == "bad_request" and len(server.sent(PATHS["openai"])) == 2
