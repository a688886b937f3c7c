"""`foretrace generate` at a real llama-server: to a dataset, token by token, and through the server's death."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from foretrace.core.store import read_traces
from foretrace.core.trace import Message, Trace
from integrations.llama_server import NAME, Running, llama_server
from integrations.scoring import CLOSE, rescored, spelled

pytestmark = pytest.mark.integration
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


def hold_against_numpy(turn: list[Message]) -> int:
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
        assert sum(map(hold_against_numpy, turns[:2])) >= 1
        assert all(m.sampled is None for m in trace.messages if m.author != "model")


def test_inline_turns_are_one_stream_of_tokens(llama: Running, tmp_path: Path) -> None:
    """Prompt, sampled, injected, sampled: the network, given all of it again, says the recorded logprobs."""
    generate(tmp_path, llama, "llamacpp", "inline", samples=4)
    traces = list(read_traces(tmp_path))
    scored = 0
    for trace in traces:
        (turn,) = turns_of(trace)
        scored += hold_against_numpy(turn)
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
