"""What each adapter sends, field by field, and what it makes of the reply."""

from __future__ import annotations

import pytest

from fakes.model_server import ModelServer
from fakes.vllm_server import VllmServer
from foretrace.core.completion import ChatMessage, Request, Sampling
from foretrace.core.errors import UsageError
from foretrace.models.base import TokenModel
from models.served import ADAPTERS, PATHS, asking, at, complete, model_at

SAID = "def f(x):\n    return x + 1  # größer 🙂\n"


@pytest.mark.parametrize("kind", ADAPTERS)
def test_the_text_arrives_as_it_was_said(kind: str) -> None:
    found = complete(kind, ModelServer(say=lambda asked: SAID), asking())
    assert (found.text, found.finish, found.stop, found.model) == (SAID, "stop", None, "toy")
    assert found.usage.prompt_tokens and found.usage.completion_tokens and found.seconds > 0


@pytest.mark.parametrize("kind", ADAPTERS)
@pytest.mark.parametrize("pieces", [1, 3])
def test_logprobs_stand_beside_what_they_belong_to(kind: str, pieces: int) -> None:
    found = complete(kind, ModelServer(say=lambda asked: "return 1 + 2", pieces=pieces), asking())
    if kind == "llamacpp":
        assert found.exact == "token" and len(found.token_ids) == len(found.logprobs) == len(found.pieces)
        assert "".join(found.pieces) == found.text and found.pieces[-1] == ""  # the end has an id, and no text
        return
    assert found.exact == "text" and "".join(found.pieces) == found.text
    assert found.logprobs == tuple(-len(piece) / 10 for piece in found.pieces)


@pytest.mark.parametrize("kind", ADAPTERS)
def test_a_stop_sequence_ends_the_reply_and_is_not_in_it(kind: str) -> None:
    server = ModelServer(say=lambda asked: "code</run>invented")
    found = complete(kind, server, asking(stop=("</run>", "<result>")))
    assert found.text == "code"
    if kind == "ollama":  # it does not say what ended the reply
        assert found.finish == "stop"
    else:
        assert (found.finish, found.stop) == ("stop_sequence", "</run>")
    if kind == "llamacpp":  # the server cuts it from the entries, and the ids stay
        assert found.exact == "token" and server.decode(list(found.token_ids)) == "code</run>" == "".join(found.pieces)
        assert len(found.logprobs) == len(found.token_ids) == len(found.pieces)
    body = server.sent(PATHS[kind])[0]
    assert (body["options"] if kind == "ollama" else body)["stop"] == ["</run>", "<result>"]
    limited = asking(sampling=Sampling(max_tokens=2))
    assert complete(kind, ModelServer(say=lambda asked: "one two three"), limited).finish == "length"


@pytest.mark.parametrize("kind", ["ollama", "openai"])
def test_thinking_comes_apart_and_takes_no_logprobs_of_the_text(kind: str) -> None:
    found = complete(kind, ModelServer(think="ok, let me see", say=lambda asked: "ok"), asking())
    assert (found.reasoning, found.text, found.pieces) == ("ok, let me see", "ok", ("ok",))


def test_ollama_is_told_everything() -> None:
    server = ModelServer()
    request = asking(sampling=Sampling(temperature=0.5, top_p=0.9, max_tokens=50, seed=7, extra={"mirostat": 1}))
    complete("ollama", server, request, context_length=3000, options={"think": "false", "keep_alive": "5m"})
    assert server.sent("/api/chat") == [
        {
            "model": "toy",
            "messages": [{"role": "user", "content": "hi"}],
            "stream": True,
            "truncate": False,
            "shift": False,
            "think": False,
            "keep_alive": "5m",
            "logprobs": True,
            "top_logprobs": 0,
            "options": {
                "num_ctx": 3000,
                "num_predict": 50,
                "temperature": 0.5,
                "top_p": 0.9,
                "top_k": 0,
                "min_p": 0.0,
                "typical_p": 1.0,
                "repeat_penalty": 1.0,
                "presence_penalty": 0.0,
                "frequency_penalty": 0.0,
                "seed": 7,
                "mirostat": 1,
            },
        }
    ]


def test_openai_is_told_everything_and_null_takes_an_option_out() -> None:
    server = ModelServer()
    request = asking(sampling=Sampling(temperature=0.5, max_tokens=50, top_k=20, extra={"min_p": 0.1, "top_p": None}))
    complete("openai", server, request)
    assert server.sent("/v1/chat/completions") == [
        {
            "model": "toy",
            "messages": [{"role": "user", "content": "hi"}],
            "stream": True,
            "stream_options": {"include_usage": True},
            "temperature": 0.5,
            "top_k": 20,
            "min_p": 0.1,
            "max_tokens": 50,
            "logprobs": True,
        }
    ]
    with pytest.raises(UsageError, match="'stream'"):
        complete("openai", server, asking(sampling=Sampling(extra={"stream": False})))
    complete("openai", server, asking(logprobs=False))
    assert "logprobs" not in server.sent("/v1/chat/completions")[-1]


def test_llamacpp_sends_ids_and_says_which() -> None:
    server = ModelServer()
    found = complete("llamacpp", server, asking())
    body = server.sent("/completion")[0]
    asked = server.encode(server.render([{"role": "user", "content": "hi"}]))
    assert body["prompt"] == list(found.prompt_token_ids) == asked and "opened" not in found.extra
    assert (body["n_predict"], body["n_probs"], body["return_tokens"], body["cache_prompt"]) == (50, 1, True, True)
    assert (body["temperature"], body["top_p"], body["top_k"], body["min_p"], body["seed"]) == (0.5, 0.9, 0, 0.0, 7)
    assert complete("llamacpp", ModelServer(opens_think=True), asking()).extra["opened"] == "<think>"
    found = complete("llamacpp", ModelServer(say=lambda asked: "größer"), asking())  # characters of several tokens
    assert found.exact == "text" and found.token_ids == () and "".join(found.pieces) == "größer"
    assert "inexact" in found.extra


@pytest.mark.parametrize("logprobs", [True, False])
def test_llamacpp_says_what_the_server_kept_back_when_the_limit_came(logprobs: bool) -> None:
    """What may be the beginning of a stop sequence is not sent until more comes; its ids are."""
    server = ModelServer(say=lambda asked: "a < b < c")
    request = asking(stop=(" < c < d",), sampling=Sampling(max_tokens=7), logprobs=logprobs)
    found = complete("llamacpp", server, request)
    assert (found.text, found.finish, found.exact) == ("a < b <", "length", "token")
    assert server.decode(list(found.token_ids)) == found.text
    assert "".join(found.pieces) == (found.text if logprobs else "")


def test_llamacpp_takes_no_name_of_a_special_token_for_text() -> None:
    """Such a token has an id, a logprob and no text, also where the limit comes behind it."""
    server = ModelServer(say=lambda asked: "a b c")
    server.fault("/detokenize", status=200, body='{"content": "<|im_start|>"}')
    found = complete("llamacpp", server, asking(stop=("</run>",), sampling=Sampling(max_tokens=4)))
    assert (found.text, found.exact, len(found.token_ids)) == ("a b ", "token", 4)
    assert "".join(found.pieces) == found.text


@pytest.mark.parametrize("kind", ADAPTERS)
def test_an_assistant_turn_is_gone_on_with(kind: str) -> None:
    server = ModelServer(say=lambda asked: asked.text[-14:])
    assert complete(kind, server, asking(prefill="<think>\nso far")).text == "<think>\nso far"
    if kind == "llamacpp":  # which counts an end at once as a reply there
        server = ModelServer(say=lambda asked: "" if asked.text.endswith("so far") else "ok")
        assert complete(kind, server, asking(prefill="so far")).text == ""


@pytest.mark.parametrize("kind", ["ollama", "llamacpp"])
def test_a_template_that_opens_think_gets_no_second_one(kind: str) -> None:
    server = ModelServer(say=lambda asked: asked.text.partition("assistant\n")[2], opens_think=True)
    assert complete(kind, server, asking(prefill="<think>\nso far")).text == "<think>\nso far"


@pytest.mark.parametrize("kind", ["openai", "llamacpp"])
def test_a_prompt_of_ids_gives_ids_back(kind: str) -> None:
    async def use(server: ModelServer) -> None:
        async with model_at(kind, server.url) as model:
            assert isinstance(model, TokenModel)
            prompt = await model.render([ChatMessage("user", "hi")])
            prompt += await model.tokenize("<think>\n1 + ", special=True)
            found = await model.complete(Request(prompt_ids=tuple(prompt), stop=("!",)))
        assert found.exact == "token" and found.prompt_token_ids == tuple(prompt)
        assert server.decode(list(found.token_ids)).startswith("2 is it")
        assert len(found.logprobs) == len(found.token_ids) and found.text == "2 is it"

    server = VllmServer if kind == "openai" else ModelServer
    at(server(say=lambda asked: "2 is it" if asked.text.endswith("<think>\n1 + ") else "no"), use)


@pytest.mark.parametrize("kind", ["openai", "llamacpp"])
def test_injected_text_cannot_become_a_special_token(kind: str) -> None:
    async def use(server: ModelServer) -> None:
        async with model_at(kind, server.url) as model:
            assert isinstance(model, TokenModel)
            (end,) = await model.tokenize("<|im_end|>", special=True)
            ids = await model.tokenize("a<|im_end|>b")
            with pytest.raises(UsageError, match="prompt_ids"):
                await model.complete(Request(prefill="x"))
        assert end not in ids and server.decode(ids) == "a<|im_end|>b"

    at(VllmServer() if kind == "openai" else ModelServer(), use)


@pytest.mark.parametrize("base", ["{}", "{}/", "{}/v1", "{}/v1/", "{}/v1/chat/completions"])
def test_a_base_url_is_taken_with_v1_or_without(base: str) -> None:
    async def use(server: ModelServer) -> str:
        async with model_at("openai", base.format(server.url)) as model:
            assert model.endpoint == server.url
            return (await model.complete(asking())).text

    assert at(ModelServer(), use) == "ok"
