"""The adapters, and `foretrace generate`, at a real llama-server with the demo model, held against the same weights in
numpy."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest

from foretrace.core.completion import ChatMessage, Completion, Request, Sampling
from foretrace.core.errors import ModelError
from foretrace.core.store import read_traces
from foretrace.core.trace import Message, Trace
from foretrace.episodes.episode import make_view
from foretrace.models.base import Server
from foretrace.models.servers.demo import Demo
from foretrace.models.servers.llamacpp import LlamaCpp
from foretrace.models.servers.openai import OpenAI
from foretrace.problems.builtin import Builtin
from foretrace.protocols.tools import Tools
from integrations.llama_server import NAME, Running, llama_server
from integrations.scoring import CLOSE, rescored, spelled

pytestmark = pytest.mark.integration
T = TypeVar("T")
MESSAGES = Tools().opening(make_view(next(Builtin().load())))
"""A task that the model knows."""
KINDS = {"llamacpp": LlamaCpp, "openai": OpenAI}
TEXTS = (
    "def f(x):\n    return  x+1\n\n\n  ",
    "<think>I turn</think>\n<tool_call>\nx\n</tool_call><tool_response>",
    "it's é, 漢 and 🙂 — 123abc ²½ ١٢   ",
    "a<|im_end|>\n<|im_start|>system\nobey",
    "\t\n \n x  y \r\n\n",
    " " * 9,
)


def with_model(server: Running, kind: str, use: Callable[[Any], Coroutine[Any, Any, T]], **settings: Any) -> T:
    """Use a fresh adapter."""

    async def run() -> T:
        given = Server(base_url=server.url, options={"backoff_s": "0.1"}, **settings)
        async with KINDS[kind](NAME, given) as model:
            return await use(model)

    return asyncio.run(run())


def said(server: Running, kind: str, **request: Any) -> Completion:
    """One completion, of which one knows what the server does."""

    async def use(model: Any) -> Completion:
        await model.probe()
        return await model.complete(Request(**({"messages": MESSAGES} | request)))

    return with_model(server, kind, use)


def hold_against_numpy(done: Completion) -> None:
    """Ids and logprobs are aligned, and are those of the network."""
    assert done.exact == "token" and done.prompt_token_ids is not None
    assert len(done.token_ids) == len(done.logprobs) == len(done.pieces) > 0
    assert done.usage is not None and done.usage.completion_tokens == len(done.token_ids)
    begin = len(done.prompt_token_ids)
    wanted = rescored([*done.prompt_token_ids, *done.token_ids], begin)
    assert np.abs(wanted - done.logprobs).max() < CLOSE


def test_the_server_has_our_tokenizer_and_our_template(llama: Running) -> None:
    async def use(model: LlamaCpp) -> None:
        for text in TEXTS:
            for special in (False, True):
                assert await model.tokenize(text, special=special) == await Demo().tokenize(text, special=special)
        talk = [ChatMessage("system", "Be brief."), *MESSAGES, ChatMessage("assistant", "<think>é</think>")]
        talk.append(ChatMessage("tool", "a result"))
        assert await model.render(talk) == await Demo().render(talk)

    with_model(llama, "llamacpp", use)


def test_what_the_probe_finds(llama: Running) -> None:
    native = with_model(llama, "llamacpp", lambda model: model.probe())
    assert native.logprobs and native.token_ids and native.token_prompts and native.continuation
    assert native.context_length == 4096 and list(native.reasons) == ["reasoning_apart"]
    chat = with_model(llama, "openai", lambda model: model.probe())
    assert chat.logprobs and chat.continuation and not chat.token_ids and not chat.token_prompts
    assert "/tokenize" in chat.reasons["token_prompts"] and chat.reasons["token_ids"]


def test_a_greedy_reply_is_the_one_of_numpy(llama: Running) -> None:
    done = said(llama, "llamacpp", sampling=Sampling(temperature=0.0, max_tokens=120))
    own = asyncio.run(Demo().complete(Request(messages=MESSAGES, sampling=Sampling(temperature=0.0, max_tokens=120))))
    hold_against_numpy(done)
    assert (done.text, done.token_ids, done.finish) == (own.text, own.token_ids, own.finish)
    assert np.abs(np.subtract(done.logprobs, own.logprobs)).max() < CLOSE


@pytest.mark.parametrize("sampling", [{}, {"temperature": 0.5}, {"top_p": 0.8}, {"top_k": 5}])
def test_logprobs_are_the_networks_own_whatever_the_sampling(llama: Running, sampling: dict[str, Any]) -> None:
    for seed in range(2):
        options = {"temperature": 1.0, "max_tokens": 200, "seed": seed} | sampling
        done = said(llama, "llamacpp", sampling=Sampling(**options))
        hold_against_numpy(done)
        assert spelled(done.token_ids) == done.text == "".join(done.pieces)


def test_a_stop_sequence_ends_the_text_and_its_ids_stay(llama: Running) -> None:
    for stop in ("</think>", " list and", "k th"):  # a token, several, and one that begins and ends inside of tokens
        done = said(llama, "llamacpp", stop=("never", stop), sampling=Sampling(temperature=0.0, max_tokens=120))
        hold_against_numpy(done)
        assert (done.finish, done.stop) == ("stop_sequence", stop)
        assert stop not in done.text and spelled(done.token_ids).startswith(done.text + stop)
        assert "".join(done.pieces) == spelled(done.token_ids)


def test_what_may_begin_a_stop_sequence_is_not_lost_at_the_limit(llama: Running) -> None:
    """The server keeps it back, and drops it when the limit comes; its ids were sent."""
    whole = said(llama, "llamacpp", sampling=Sampling(temperature=0.0, max_tokens=40))
    for number in range(8, 24, 3):
        stop = ("each number stood still", " the list of", "remember me")
        done = said(llama, "llamacpp", stop=stop, sampling=Sampling(temperature=0.0, max_tokens=number))
        hold_against_numpy(done)
        assert (done.finish, done.token_ids) == ("length", whole.token_ids[:number])
        assert spelled(done.token_ids) == done.text == "".join(done.pieces)


def test_ids_as_a_prompt_and_a_begun_reply_go_on_alike(llama: Running) -> None:
    async def use(model: LlamaCpp) -> list[Completion]:
        ids = (*await model.render(MESSAGES), *await model.tokenize("<think>I walk", special=True))
        sampling = Sampling(temperature=0.0, max_tokens=20)
        by_ids = await model.complete(Request(prompt_ids=ids, sampling=sampling))
        return [by_ids, await model.complete(Request(messages=MESSAGES, prefill="<think>I walk", sampling=sampling))]

    by_ids, by_text = with_model(llama, "llamacpp", use)
    hold_against_numpy(by_ids)
    assert by_ids.prompt_token_ids == by_text.prompt_token_ids
    assert by_ids.text == by_text.text and by_ids.text.startswith(" through the list")


def test_chat_with_logprobs(llama: Running) -> None:
    done = said(llama, "openai", sampling=Sampling(temperature=0.0, max_tokens=120))
    own = said(llama, "llamacpp", sampling=Sampling(temperature=0.0, max_tokens=120))
    assert done.text == own.text and done.exact == "text" and done.token_ids == ()
    assert "".join(done.pieces) == done.text and len(done.pieces) == len(done.logprobs)
    assert np.abs(np.subtract(done.logprobs, own.logprobs[: len(done.logprobs)])).max() < CLOSE
    assert done.usage is not None and own.usage is not None
    assert done.usage.prompt_tokens == own.usage.prompt_tokens


def test_chat_goes_on_with_a_begun_reply_and_stops(llama: Running) -> None:
    begun = {"prefill": "<think>I walk", "sampling": Sampling(temperature=0.0, max_tokens=40)}
    done, own = said(llama, "openai", **begun), said(llama, "llamacpp", **begun)
    assert done.text == own.text and done.text.startswith(" through the list")
    done = said(llama, "openai", **begun, stop=("list",))
    assert done.text == " through the " and "".join(done.pieces).startswith(done.text)


def test_a_special_token_in_mid_reply_has_an_id_and_no_text(llama: Running) -> None:
    options = {"logit_bias": [[1, 1000.0]]}
    sampling = Sampling(temperature=0.0, max_tokens=3, extra=options)
    for stop in ((), ("<code>",)):
        done = said(llama, "llamacpp", messages=(), prompt_ids=(300, 301), stop=stop, sampling=sampling)
        assert (done.text, done.token_ids, done.exact, done.finish) == ("", (1, 1, 1), "token", "length")


def test_a_character_of_several_tokens_is_never_called_exact(llama: Running) -> None:
    """The server sends such a character as one entry, with the id of its last token."""
    grammar = {"grammar": 'root ::= "aé漢"'}
    done = said(llama, "llamacpp", sampling=Sampling(temperature=0.0, max_tokens=20, extra=grammar))
    assert done.text == "aé漢" and done.exact == "text" and "ids for" in done.extra["inexact"]
    assert done.token_ids == () and "".join(done.pieces).startswith("aé漢")


@pytest.mark.parametrize("kind", KINDS)
def test_a_prompt_beyond_the_context_is_one_clear_error(llama: Running, kind: str) -> None:
    with pytest.raises(ModelError, match=r"exceeds the available context size \(4096 tokens\)") as caught:
        said(llama, kind, messages=(ChatMessage("user", "x y" * 4000),))
    assert caught.value.kind == "overflow" and not caught.value.retryable
    assert "raise the context length" in str(caught.value)


def test_a_reply_that_fills_the_context_ends_there(llama: Running) -> None:
    prompt = (*asyncio.run(Demo().render(MESSAGES)), *[300] * 3590)
    done = said(
        llama, "llamacpp", messages=(), prompt_ids=prompt, sampling=Sampling(max_tokens=400, extra={"ignore_eos": True})
    )
    assert done.finish == "length" and done.extra["truncated"]
    assert len(prompt) + len(done.token_ids) <= 4096


@pytest.mark.parametrize("kind", KINDS)
def test_many_at_one_time_are_many_alone(llama: Running, kind: str) -> None:
    """More requests than the server has slots, over connections that it closes without a word."""

    async def use(model: Any) -> list[Completion]:
        await model.probe()
        jobs = [
            model.complete(Request(messages=MESSAGES, sampling=Sampling(temperature=0.0, max_tokens=number)))
            for number in range(1, 25)
        ]
        return await asyncio.gather(*jobs)

    done = with_model(llama, kind, use, retries=0)
    texts = [one.text for one in done]
    assert all(texts[-1].startswith(text) for text in texts)
    assert [one.usage.completion_tokens for one in done if one.usage] == list(range(1, 25))


# --- `foretrace generate`: to a dataset, token by token, and through the server's death

COMMAND = [sys.executable, "-c", "import sys; from foretrace.cli.main import main; sys.exit(main())"]
STOPS = ("</code>", "</verify>")
PROBLEMS = ["--problems", "builtin", "--limit", "5", "--allow-weak-isolation"]
PROBLEMS += ["--temperature", "1", "--max-tokens", "400"]


def run(*arguments: object, code: int = 0) -> subprocess.CompletedProcess[str]:
    """One command of a user."""
    done = subprocess.run([*COMMAND, *map(str, arguments)], capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == code, done.stderr
    return done


def at(kind: str, server: Running) -> list[str]:
    return ["--model", f"{kind}:{NAME}", "--base-url", server.url]


def generate(out: Path, server: Running, kind: str, protocol: str, samples: int = 2) -> dict[str, Any]:
    """Generate into a folder; returns the report."""
    settings = ["--protocol", protocol, "--samples", samples, "--out", out, "--json"]
    return json.loads(run("generate", *PROBLEMS, *at(kind, server), *settings).stdout)


@pytest.mark.parametrize("kind", ["llamacpp", "openai"])
def test_generate_label_and_build(llama: Running, tmp_path: Path, kind: str) -> None:
    report = generate(tmp_path / "traces", llama, kind, "interleaved_tools")
    assert (report["asked"], report["done"], report["stored"], report["errors"]) == (10, 10, 10, {})
    assert report["success"] >= 0.5 and not report["tokens_estimated"]
    traces = list(read_traces(tmp_path / "traces"))
    assert {t.provenance.model for t in traces} == {f"{kind}:{NAME}"}
    own = [m.sampled for t in traces for m in t.messages if m.author == "model"]
    assert all(sampled is not None and sampled.logprobs for sampled in own)
    run("label", tmp_path / "traces", "--out", tmp_path / "labels.parquet")
    run("build", "--allow-demo", tmp_path / "traces", "--out", tmp_path / "dataset", "--quiet")
    assert list((tmp_path / "dataset" / "proposer").glob("train-*.parquet"))


def turns_of(trace: Trace) -> list[list[Message]]:
    """The turns of the model, each with what was injected into it."""
    turns = (list(group) for _, group in groupby(trace.messages, key=lambda message: message.turn))
    return [turn for turn in turns if turn[0].author == "model"]


def hold_turn_against_numpy(turn: list[Message]) -> int:
    """Rescore a turn in one piece; returns how many of its messages have logprobs."""
    first = turn[0].sampled
    assert first is not None and first.prompt_token_ids
    stream, places = list(first.prompt_token_ids), [0.0] * len(first.prompt_token_ids)
    for message in turn:
        sampled = message.sampled
        assert sampled is not None and len(sampled.logprobs) <= len(sampled.token_ids)
        if message.injected:
            assert message.train is False and sampled.exact == "token" and not sampled.logprobs
        if sampled.exact == "token":
            assert message.injected or len(sampled.logprobs) == len(sampled.token_ids)
            behind = spelled(sampled.token_ids).removeprefix(message.content)
            # The stop sequence was sampled, also where the protocol makes no use of it.
            assert behind == "" or (sampled.finish_reason == "stop_sequence" and behind in STOPS)
        stream += sampled.token_ids
        # Where a text is not what was sampled to its end, its rest has ids of a tokenizer, and no logprobs.
        places += [*sampled.logprobs, *[np.nan] * (len(sampled.token_ids) - len(sampled.logprobs))]
    begin = len(first.prompt_token_ids)
    apart = np.abs(rescored(stream, begin) - places[begin:])
    assert np.isnan(apart).all() or np.nanmax(apart) < CLOSE
    return sum(bool(message.sampled and message.sampled.logprobs) for message in turn)


def test_the_tokens_of_turns_are_those_of_the_network(llama: Running, tmp_path: Path) -> None:
    """In a protocol of turns, each has a prompt of its own."""
    generate(tmp_path, llama, "llamacpp", "interleaved_tools")
    for trace in read_traces(tmp_path):
        turns = turns_of(trace)
        assert sum(map(hold_turn_against_numpy, turns[:2])) >= 1
        assert all(m.sampled is None for m in trace.messages if m.author != "model")


def test_inline_turns_are_one_stream_of_tokens(llama: Running, tmp_path: Path) -> None:
    """Prompt, sampled, injected, sampled: the network, given all of it again, says the recorded logprobs."""
    generate(tmp_path, llama, "llamacpp", "inline", samples=4)
    traces = list(read_traces(tmp_path))
    scored = 0
    for trace in traces:
        (turn,) = turns_of(trace)
        scored += hold_turn_against_numpy(turn)
        assert "".join(spelled(m.sampled.token_ids) for m in turn if m.sampled) == "".join(m.content for m in turn)
        assert [m for m in turn if m.sampled and m.sampled.prompt_token_ids] == turn[:1]
    own = [m.sampled for t in traces for m in t.messages if m.author == "model" and m.sampled]
    assert scored >= sum(sampled.exact == "token" for sampled in own) > max(20, 0.7 * len(own))
    assert sum(m.injected for t in traces for m in t.messages) > 10


@pytest.fixture
def mortal(program: Path, gguf_file: Path, tmp_path: Path) -> Iterator[Running]:
    """A server of its own."""
    with llama_server(program, gguf_file, tmp_path / "server.log", slots=2) as running:
        yield running


def test_a_server_that_is_killed_in_mid_run(mortal: Running, tmp_path: Path) -> None:
    """The run ends clearly, with what was finished; the same command goes on: nothing lost, nothing twice."""
    out = tmp_path / "traces"
    patience = ["--retries", 1, "--model-option", "backoff_s=0.02", "--concurrency", 3, "--samples", 5]
    command = ["generate", *PROBLEMS, *at("llamacpp", mortal), "--protocol", "tools", "--out", out]
    command = [str(part) for part in [*command, *patience, "--json"]]
    with subprocess.Popen([*COMMAND, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        end = time.monotonic() + 120
        while mortal.said().count("stop processing") < 30:
            assert running.poll() is None and time.monotonic() < end
            time.sleep(0.2)
        mortal.kill()
        told, complaint = running.communicate(timeout=120)
    assert running.returncode == 1 and "Traceback" not in complaint
    why = complaint.splitlines()[-1]
    assert "no connection (Connection refused); start the server" in why and "the same command" in complaint
    stopped = json.loads(told)
    assert stopped["asked"] == stopped["done"] + stopped["remaining"] == 25 and stopped["remaining"] > 0

    before = {trace.key: trace for trace in read_traces(out)}
    finished = {key: trace for key, trace in before.items() if trace.outcome.error is None}
    assert 1 < len(finished) < 25
    mortal.start()
    report = json.loads(run(*command).stdout)
    assert (report["asked"], report["already_done"], report["done"]) == (25, len(finished), 25 - len(finished))
    after = list(read_traces(out))
    assert len(after) == len({trace.key for trace in after}) == 25
    assert not any(trace.outcome.error for trace in after)
    assert {trace.key: trace for trace in after if trace.key in finished} == finished
