"""Rollouts in a real sandbox, by the demo model and by a server like vLLM: exact sequences, traces on disk, and what
makes one unusable."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from envs.tokenizer import demo_tokenizer
from fakes.vllm_server import VllmServer
from foretrace.core.completion import Capabilities, Completion, Request, Sampling
from foretrace.core.errors import ModelError, UsageError
from foretrace.core.plugins import load_plugin
from foretrace.core.problem import Problem
from foretrace.core.store import TraceStore
from foretrace.envs.rollout_model import RolloutModel, check_model
from foretrace.envs.rollouts import Rollout, RolloutRunner, RolloutSettings
from foretrace.envs.trace_sink import TraceSink
from foretrace.envs.train_sequence import MASKED, UNKNOWN
from foretrace.episodes.identity import Identity
from foretrace.episodes.settings import EpisodeSettings
from foretrace.models.base import ChatModel
from foretrace.models.servers.demo import Demo
from foretrace.problems.builtin import Builtin
from foretrace.sandbox.local import LocalSandbox
from integrations.scoring import CLOSE, rescored
from models.served import model_at

PROBLEMS = list(Builtin().load())


async def roll(
    sandbox: LocalSandbox,
    protocol: str,
    model: ChatModel,
    *,
    is_demo: bool = True,
    problem: Problem = PROBLEMS[1],
    max_tokens: int = 300,
    max_sequence_tokens: int = 2048,
    count: int = 3,
    keep_inexact: bool = False,
    traces: Path | None = None,
) -> list[Rollout]:
    """Rollouts of one problem; `is_demo`: the tokenizer is the model's own."""
    tokenizer, chosen = demo_tokenizer(), load_plugin("protocol", protocol)()
    sink = TraceSink(str(traces) if traces else None, "test")
    settings = RolloutSettings(
        protocol=chosen, episode=EpisodeSettings(), identity=Identity(), seed=3, keep_inexact=keep_inexact
    )
    async with model:
        gives_ids = await check_model(
            model, tokenizer, chosen, need_logprobs=not keep_inexact, compare_tokenizer=is_demo
        )
        connected = RolloutModel(model, tokenizer, gives_ids=gives_ids, max_sequence_tokens=max_sequence_tokens)
        rollouts = RolloutRunner(settings, sandbox, tokenizer, sink)
        sampling = Sampling(temperature=1.0, max_tokens=max_tokens)
        try:
            return [await rollouts.run(problem, [connected], sampling) for _ in range(count)]
        finally:
            await sink.close()


def make_rollouts(
    runner: asyncio.Runner, sandbox: LocalSandbox, protocol: str, *, model: Demo | None = None, **given: Any
) -> list[Rollout]:
    """Rollouts by the demo model, or by one that does not behave as it does."""
    return runner.run(roll(sandbox, protocol, model or Demo(), is_demo=model is None, **given))


SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in ("inline", "tools", "interleaved", "structured")]


@pytest.mark.parametrize("protocol", ["interleaved_tools", *SLOW])
def test_trained_tokens_have_the_logprobs_of_the_network(
    protocol: str, runner: asyncio.Runner, sandbox: LocalSandbox
) -> None:
    for one in make_rollouts(runner, sandbox, protocol):
        made = one.sequence
        assert made is not None and not one.why_unusable and made.trained
        trained = [n for n, mask in enumerate(made.masks) if mask != MASKED]
        again = rescored(made.tokens, 1)
        assert np.abs(again[[n - 1 for n in trained]] - [made.logprobs[n] for n in trained]).max() < CLOSE
        tokenizer = demo_tokenizer()
        assert made.tokens[-1] == tokenizer.end_id != made.tokens[-2]


def test_rollouts_of_one_problem_differ_and_are_the_same_again(runner: asyncio.Runner, sandbox: LocalSandbox) -> None:
    one, two = ([r.sequence.tokens for r in make_rollouts(runner, sandbox, "tools") if r.sequence] for _ in range(2))
    assert one == two and len({tuple(tokens) for tokens in one}) > 1


def test_a_sequence_stays_below_its_limit_and_is_judged(runner: asyncio.Runner, sandbox: LocalSandbox) -> None:
    for one in make_rollouts(runner, sandbox, "interleaved_tools", max_sequence_tokens=800):
        assert one.sequence is not None and len(one.sequence.tokens) < 800
        assert one.trace.outcome.reward is not None


def test_rollouts_land_as_traces_that_a_second_run_adds_to(
    runner: asyncio.Runner, sandbox: LocalSandbox, tmp_path: Path
) -> None:
    for runs in (1, 2):
        make_rollouts(runner, sandbox, "tools", traces=tmp_path / "traces", count=2)
        stored = list(TraceStore(tmp_path / "traces").read())
        assert len({trace.key for trace in stored}) == len(stored) == 2 * runs


class Silent(Demo):
    """Gives no logprobs, and says so or not."""

    def __init__(self, *, says: bool) -> None:
        super().__init__()
        self._says = says

    async def probe(self) -> Capabilities:
        found = await super().probe()
        reasons = {"logprobs": "it has none"}
        return msgspec.structs.replace(found, logprobs=False, reasons=reasons) if self._says else found

    async def complete(self, request: Request) -> Completion:
        return await super().complete(msgspec.structs.replace(request, logprobs=False))


def test_a_server_without_logprobs_is_refused(runner: asyncio.Runner, sandbox: LocalSandbox) -> None:
    with pytest.raises(UsageError, match="gives no logprobs"):
        make_rollouts(runner, sandbox, "tools", model=Silent(says=True))


@pytest.mark.parametrize("keep_inexact", [False, True])
def test_a_rollout_without_logprobs_is_dropped_or_flagged_and_never_trained_on(
    keep_inexact: bool, runner: asyncio.Runner, sandbox: LocalSandbox
) -> None:
    (one,) = make_rollouts(runner, sandbox, "tools", model=Silent(says=False), keep_inexact=keep_inexact, count=1)
    assert one.why_unusable == ("" if keep_inexact else "mismatch")
    assert one.sequence is not None and one.sequence.inexact and not one.sequence.trained
    assert set(one.sequence.masks) == {MASKED} and set(one.sequence.logprobs) == {UNKNOWN}


class Prefixing(Demo):
    """Puts a token of its own before the prompt."""

    async def complete(self, request: Request) -> Completion:
        return await super().complete(msgspec.structs.replace(request, prompt_ids=(1, *(request.prompt_ids or ()))))


def test_a_prompt_that_the_server_changed_is_a_mismatch(runner: asyncio.Runner, sandbox: LocalSandbox) -> None:
    (one,) = make_rollouts(runner, sandbox, "tools", model=Prefixing(), count=1)
    assert one.why_unusable == "mismatch"


class Broken(Demo):
    """Fails from the second completion on."""

    calls = 0

    async def complete(self, request: Request) -> Completion:
        self.calls += 1
        if self.calls > 1:
            raise ModelError("gone", kind="refused")
        return await super().complete(request)


def test_a_rollout_that_fails_is_kept_with_its_error_and_done_under_another_number(
    runner: asyncio.Runner, sandbox: LocalSandbox, tmp_path: Path
) -> None:
    for _ in range(2):
        make_rollouts(runner, sandbox, "interleaved_tools", model=Broken(), count=2, traces=tmp_path / "traces")
    stored = list(TraceStore(tmp_path / "traces").read())
    errors = [trace.outcome.error for trace in stored]
    assert [error.message for error in errors if error is not None] == ["gone"] * 4
    assert sorted(trace.key.rpartition("/")[2] for trace in stored) == ["0", "1", "2", "3"]
    assert all(trace.outcome.success is None and trace.outcome.reward is None for trace in stored)


WORDS = "naïve ✅ é\u0301 \U0001f469\u200d\U0001f4bb 好"
CODE = f"print('{WORDS}')"
CALL = f"<tool_call>{json.dumps({'name': 'python', 'arguments': {'code': CODE}}, ensure_ascii=False)}</tool_call>"
SOLUTION = f"def two_sum(nums, target):\n    return []  # {WORDS}\n"
SCRIPTS = {
    "inline": [f"<think>{WORDS}\n{CALL}", f" {WORDS} {CALL}", f"Good ✅.</think>\n```python\n{SOLUTION}```"],
    "interleaved_tools": [f"{WORDS}\n{CALL}", f"{WORDS}\n{CALL}", f"{WORDS}\n```python\n{SOLUTION}```"],
    "tools": [f"<think>{WORDS}</think><code>\n{SOLUTION}</code>", f"<think>{WORDS}</think><verify>✅</verify>"],
    "structured": [f"<plan>{WORDS}</plan><code>\n{SOLUTION}</code>", "<verify>✅</verify>"],
    "interleaved": [f"<think>{WORDS}</think><code>\n{SOLUTION}</code>", "<verify>✅</verify>"],
}


@pytest.mark.parametrize("corrects", [False, True])
@pytest.mark.parametrize("protocol", SCRIPTS)
def test_every_token_is_exact_in_every_protocol(
    protocol: str, corrects: bool, runner: asyncio.Runner, sandbox: LocalSandbox
) -> None:
    sampled: list[list[int]] = []
    """The ids of each completion."""
    turns = iter([*SCRIPTS[protocol], *["I am done."] * 20])
    tokenizer = demo_tokenizer()

    def sample(prompt: list[int]) -> list[int]:
        if "two_sum" not in server.decode(prompt):  # it is asked what it can do
            return tokenizer.encode("ok")
        sampled.append([*tokenizer.encode(next(turns)), tokenizer.end_id])
        return sampled[-1]

    async def run() -> Rollout:
        async with server:
            model = model_at("openai", server.url)
            (one,) = await roll(
                sandbox, protocol, model, problem=PROBLEMS[0], max_tokens=600, max_sequence_tokens=4096, count=1
            )
            return one

    server = VllmServer(sample=sample, corrects=corrects)
    made = runner.run(run())
    assert not made.why_unusable and made.sequence is not None and made.sequence.inexact == 0
    sequence = made.sequence
    trained = [
        (token, logprob) for token, logprob in zip(sequence.masks, sequence.logprobs, strict=True) if token != MASKED
    ]
    assert all(logprob == -token / 1000 for token, logprob in trained)
    assert {m.sampled.exact for m in made.trace.messages if m.sampled} == {"token"}
    left = iter(token for ids in sampled for token in ids)
    assert all(token in left for token, _ in trained), "in the order in which they were sampled"
    assert len(trained) > 0.9 * sum(map(len, sampled[: len(SCRIPTS[protocol])]))
    assert any(WORDS in m.content for m in made.trace.messages if m.author == "model")
