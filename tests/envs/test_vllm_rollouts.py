"""Rollouts by a server like vLLM: its own tokenizer is accepted, and every sampled token is trained on."""

from __future__ import annotations

import asyncio
import json

import pytest

from envs.tokenizer import demo_tokenizer
from fakes.vllm_server import DESCRIPTION, VllmServer
from foretrace.core.completion import Sampling
from foretrace.core.plugins import load_plugin
from foretrace.envs.rollout_model import RolloutModel, check_model
from foretrace.envs.rollouts import Rollout, RolloutRunner, RolloutSettings
from foretrace.envs.trace_sink import TraceSink
from foretrace.envs.train_sequence import MASKED
from foretrace.episodes.identity import Identity
from foretrace.episodes.settings import EpisodeSettings
from foretrace.models.demo_model.tokenizer import ChatTokenizer
from foretrace.problems.builtin import Builtin
from foretrace.sandbox.local import LocalSandbox
from models.served import model_at

PROBLEM = next(Builtin().load())
TOKENIZER = ChatTokenizer(DESCRIPTION)
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


async def make_rollout(sandbox: LocalSandbox, protocol: str, *, corrects: bool) -> tuple[Rollout, list[list[int]]]:
    """A rollout of a script, and the ids that were sampled for each completion."""
    sampled: list[list[int]] = []
    turns = iter([*SCRIPTS[protocol], *["I am done."] * 20])

    def sample(prompt: list[int]) -> list[int]:
        if not started:
            return TOKENIZER.encode("ok")
        sampled.append([*TOKENIZER.encode(next(turns)), TOKENIZER.end_id])
        return sampled[-1]

    started = False
    tokenizer, chosen = demo_tokenizer(), load_plugin("protocol", protocol)()
    sink = TraceSink(None, "test")
    settings = RolloutSettings(protocol=chosen, episode=EpisodeSettings(), identity=Identity(), seed=3)
    async with VllmServer(sample=sample, corrects=corrects) as server, model_at("openai", server.url) as model:
        gives_ids = await check_model(model, tokenizer, chosen, need_logprobs=True, compare_tokenizer=True)
        connected = RolloutModel(model, tokenizer, gives_ids=gives_ids, max_sequence_tokens=4096)
        started = True
        runner = RolloutRunner(settings, sandbox, tokenizer, sink)
        made = await runner.run(PROBLEM, [connected], Sampling(temperature=1.0, max_tokens=600))
        await sink.close()
    return made, sampled


@pytest.mark.parametrize("corrects", [False, True])
@pytest.mark.parametrize("protocol", SCRIPTS)
def test_every_token_is_exact_in_every_protocol(
    protocol: str, corrects: bool, runner: asyncio.Runner, sandbox: LocalSandbox
) -> None:
    made, sampled = runner.run(make_rollout(sandbox, protocol, corrects=corrects))
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
