"""Our Ollama adapter at a facade over llama-server (which is not Ollama), and its requests under the official types.

What the official client's types do not know, Ollama's own server does (`api/types.go`): it is listed below by name.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest

from fakes.model_server import serving
from fakes.ollama_facade import QUOTA, SLOTS, OllamaFacade
from foretrace.cli.main import main
from foretrace.core.completion import ChatMessage, Completion, Request, Sampling
from foretrace.core.errors import ModelError, UsageError
from foretrace.core.store import read_traces
from foretrace.episodes.episode import make_view
from foretrace.models.base import Server
from foretrace.models.servers.ollama import Ollama
from foretrace.problems.builtin import Builtin
from foretrace.protocols.tools import Tools
from integrations.llama_build import Built
from integrations.llama_server import NAME, Running, llama_server
from integrations.scoring import CLOSE, demo

pytestmark = pytest.mark.integration
T = TypeVar("T")
MESSAGES = Tools().opening(make_view(next(Builtin().load())))
GREEDY = Sampling(temperature=0.0, max_tokens=60)
ONLY_SERVER = {"truncate", "shift", "_debug_render_only"}
ONLY_SERVER_OPTIONS = {"min_p"}


@pytest.fixture
def facade(llama: Running) -> Iterator[OllamaFacade]:
    with serving(OllamaFacade(llama.url)) as running:  # type: ignore[arg-type]
        yield running


def with_model(facade: OllamaFacade, use: Callable[[Ollama], Coroutine[Any, Any, T]], **settings: Any) -> T:
    """Use an adapter that knows what the server does; the requests of that are forgotten."""

    async def run() -> T:
        options = {"backoff_s": "0.02"} | settings.pop("options", {})
        async with Ollama(NAME, Server(base_url=facade.url, options=options, **settings)) as model:
            await model.probe()
            facade.requests.clear()
            return await use(model)

    return asyncio.run(run())


def said(facade: OllamaFacade, **request: Any) -> Completion:
    given = {"messages": MESSAGES, "sampling": GREEDY} | request
    settings = given.pop("settings", {})
    return with_model(facade, lambda model: model.complete(Request(**given)), **settings)


def in_numpy(**request: Any) -> Completion:
    """The same of the demo model itself, without the end of the turn, which Ollama does not speak of."""
    return asyncio.run(demo().complete(Request(**({"messages": MESSAGES, "sampling": GREEDY} | request))))


def failure(facade: OllamaFacade, **request: Any) -> ModelError:
    with pytest.raises(ModelError) as caught:
        said(facade, **request)
    return caught.value


def test_what_the_probe_finds(facade: OllamaFacade) -> None:
    found = with_model(facade, lambda model: model.probe())
    assert found.logprobs and found.continuation and found.context_length == 4096
    assert not (found.token_ids or found.token_prompts or found.reasoning_apart)


def test_chat_with_logprobs(facade: OllamaFacade) -> None:
    done, own = said(facade), in_numpy()
    assert (done.text, done.finish, done.exact) == (own.text, "length", "text")
    assert "".join(done.pieces) == done.text and done.pieces == own.pieces and done.token_ids == ()
    assert np.abs(np.subtract(done.logprobs, own.logprobs)).max() < CLOSE


def test_raw_text_goes_on_with_a_begun_reply(facade: OllamaFacade) -> None:
    begun = "<think>I walk"
    done, own = said(facade, prefill=begun), in_numpy(prefill=begun)
    assert done.text == own.text and done.text.startswith(" through the list")
    assert np.abs(np.subtract(done.logprobs, own.logprobs)).max() < CLOSE
    assert [path for path, _ in facade.requests] == ["/api/chat", "/api/generate"]


def test_a_stop_sequence_and_its_token_are_not_there(facade: OllamaFacade) -> None:
    done = said(facade, stop=("</think>",))
    assert done.text.endswith("stood first.") and done.finish == "stop" and done.stop is None
    assert "".join(done.pieces) == done.text and len(done.pieces) == len(done.logprobs)
    assert done.usage is not None and done.usage.completion_tokens == len(done.pieces) + 1


def test_parts_of_a_character_keep_their_logprobs(facade: OllamaFacade) -> None:
    facade.grammar = 'root ::= "aé漢"'
    done = said(facade)
    assert (done.text, done.exact, "".join(done.pieces)) == ("aé漢", "text", "aé漢")
    assert "" in done.pieces and len(done.logprobs) == len(done.pieces) > len(done.text)


def test_a_prompt_beyond_the_context_is_an_error_and_never_cut(facade: OllamaFacade) -> None:
    long = (ChatMessage("user", "x y" * 3000),)
    error = failure(facade, messages=long)
    assert error.kind == "overflow" and "the input length exceeds the context length" in str(error)
    assert failure(facade, settings={"context_length": 300}).kind == "overflow"


@pytest.mark.parametrize(
    ("refusal", "kind", "retryable"),
    [
        (QUOTA, "quota", False),
        (SLOTS, "busy", True),
        ((503, "server busy"), "busy", True),
        ((500, "x"), "server", True),
    ],
)
def test_refusals(facade: OllamaFacade, refusal: tuple[int, str], kind: str, retryable: bool) -> None:
    def refuse(times: int) -> Callable[[Ollama], Coroutine[Any, Any, Completion]]:
        def use(model: Ollama) -> Coroutine[Any, Any, Completion]:
            facade.refusals = [refusal] * times
            return model.complete(Request(messages=MESSAGES, sampling=GREEDY))

        return use

    with pytest.raises(ModelError) as caught:
        with_model(facade, refuse(3), retries=2)
    assert (caught.value.kind, caught.value.retryable) == (kind, retryable)
    assert len(facade.requests) == (3 if retryable else 1)
    facade.refusals = []
    if retryable:
        assert with_model(facade, refuse(2), retries=2).extra["retried"] == [kind, kind]


def test_an_error_in_mid_stream_and_an_end_without_done(facade: OllamaFacade) -> None:
    def break_after(model: Ollama) -> Coroutine[Any, Any, Completion]:
        facade.breaks_after = 5
        return model.complete(Request(messages=MESSAGES, sampling=GREEDY))

    with pytest.raises(ModelError, match="unexpected EOF") as caught:
        with_model(facade, break_after, retries=1)
    assert caught.value.kind == "server" and len(facade.requests) == 2
    facade.breaks_after = -1

    def repeat(model: Ollama) -> Coroutine[Any, Any, Completion]:
        facade.grammar = r'root ::= "\n"{150}'
        return model.complete(Request(messages=MESSAGES, sampling=Sampling(max_tokens=200)))

    with pytest.raises(ModelError, match="the stream ended before the reply did") as caught:
        with_model(facade, repeat, retries=0)
    assert caught.value.kind == "stream"


def test_a_full_queue_is_waited_for(llama: Running) -> None:
    """One place and one that waits, for eight at one time."""

    async def use(model: Ollama) -> list[Completion]:
        jobs = [model.complete(Request(messages=MESSAGES, sampling=GREEDY)) for _ in range(8)]
        return await asyncio.gather(*jobs)

    with serving(OllamaFacade(llama.url, queue=1)) as facade:  # type: ignore[arg-type]
        done = with_model(facade, use, retries=30)
    assert len({one.text for one in done}) == 1
    assert {kind for one in done for kind in one.extra.get("retried", [])} == {"busy"}


def test_the_model_behind_it_dies(program: Built, gguf_file: Path, tmp_path: Path) -> None:
    with (
        llama_server(program, gguf_file, tmp_path / "server.log") as mortal,
        serving(OllamaFacade(mortal.url)) as facade,  # type: ignore[arg-type]
    ):

        async def use(model: Ollama) -> None:
            before = mortal.said().count("processing task")
            job = asyncio.ensure_future(model.complete(Request(messages=MESSAGES, sampling=Sampling(max_tokens=3000))))
            while mortal.said().count("processing task") == before:
                await asyncio.sleep(0.01)
            mortal.kill()
            await job

        facade.grammar = "root ::= [a-z ]+"
        with pytest.raises(ModelError) as caught:
            with_model(facade, use, retries=0)
    assert caught.value.kind == "server" and caught.value.retryable


def test_each_request_is_one_of_the_official_client(facade: OllamaFacade) -> None:
    """Types, ranges and names; nothing that a server would leave out in silence."""
    from ollama import _types as types

    async def use(model: Ollama) -> None:
        full = Sampling(temperature=0.5, top_p=0.9, top_k=20, max_tokens=5, seed=7, extra={"repeat_last_n": 3})
        for sampling in (GREEDY, full):
            await model.complete(Request(messages=MESSAGES, sampling=sampling, stop=("</code>",)))
            await model.complete(Request(messages=MESSAGES, sampling=sampling, prefill="<think>", logprobs=False))

    async def probe(model: Ollama) -> None:
        model.capabilities = None
        await model.probe()

    seen: list[tuple[str, dict[str, Any]]] = []
    for settings in ({}, {"options": {"think": "false", "keep_alive": "5m"}, "context_length": 2000}):
        for what in (use, probe):
            with_model(facade, what, **settings)
            seen += facade.requests
    known = {"/api/chat": types.ChatRequest, "/api/generate": types.GenerateRequest, "/api/show": types.ShowRequest}
    assert {path for path, _ in seen} == set(known)
    for path, body in seen:
        kind = known[path]
        kind.model_validate(body, strict=path == "/api/show")
        assert set(body) <= set(kind.model_fields) | ONLY_SERVER
        types.Options.model_validate(body.get("options", {}))
        assert set(body.get("options", {})) <= set(types.Options.model_fields) | ONLY_SERVER_OPTIONS
        for message in body.get("messages", ()):
            assert set(message) <= set(types.Message.model_fields)


def test_the_official_client_reads_the_facade(facade: OllamaFacade) -> None:
    """What it answers has the form that Ollama's own client expects."""
    import ollama

    client = ollama.Client(host=facade.url)
    assert [model.model for model in client.list().models] == ["demo-model:latest"]
    assert client.show(NAME).modelinfo["qwen3.context_length"] == 4096
    messages = [{"role": m.role, "content": m.content} for m in MESSAGES]
    options = {"temperature": 0.0, "num_predict": 60}
    parts = list(client.chat(NAME, messages, stream=True, logprobs=True, options=options))
    assert "".join(part.message.content for part in parts) == in_numpy().text
    assert parts[-1].done and parts[-1].done_reason == "length" and parts[-1].eval_count == 60
    assert [entry.token for part in parts for entry in part.logprobs or ()] == list(in_numpy().pieces)
    with pytest.raises(ollama.ResponseError, match="not found"):
        client.generate("qwen3", "hi")


def test_inline_calls_by_raw_text(facade: OllamaFacade, tmp_path: Path) -> None:
    """A run of the command: each turn goes on behind its results; text-exact, as there are no ids."""
    command = ["generate", "--problems", "builtin", "--limit", "3", "--protocol", "inline", "--temperature", "0.5"]
    command += ["--model", f"ollama:{NAME}", "--base-url", facade.url, "--out", str(tmp_path / "traces")]
    assert main([*command, "--max-tokens", "300", "--allow-weak-isolation", "--quiet"]) == 0
    traces = list(read_traces(tmp_path / "traces"))
    assert len(traces) == 3 and not any(trace.outcome.error for trace in traces)
    own = [m for trace in traces for m in trace.messages if m.author == "model"]
    assert any(m.continues for m in own) and {m.sampled.exact for m in own if m.sampled} == {"text"}
    assert all(not m.sampled.token_ids for m in own if m.sampled)
    assert {path for path, _ in facade.requests} >= {"/api/chat", "/api/generate"}


def test_what_it_cannot_do_is_refused(facade: OllamaFacade) -> None:
    with pytest.raises(UsageError, match="no token ids"):
        said(facade, messages=(), prompt_ids=(1, 2))
    assert "it has demo-model:latest" in str(failure_of_name(facade, "demo-modle"))


def failure_of_name(facade: OllamaFacade, name: str) -> ModelError:
    async def use() -> None:
        async with Ollama(name, Server(base_url=facade.url)) as model:
            await model.probe()

    with pytest.raises(ModelError) as caught:
        asyncio.run(use())
    return caught.value
