"""The replies of `tests/envs/test_same_rewards.py`, run through the commands of Atropos and of verifiers."""

from __future__ import annotations

import json
import re
from pathlib import Path

import msgspec
import pytest

from envs.test_same_rewards import REPLIES
from fakes.model_server import Asked, ModelServer, serving
from foretrace.models.demo_model import write_demo_model

pytestmark = pytest.mark.integration
KINDS = (
    *("right", "right, loop", "right, program", "wrong", "half", "half, program", "syntax error", "hang"),
    *("hang, program", "crash", "killed by itself", "left", "raises", "forges equality", "forges frames"),
    *("breaks the protocol", "empty", "no code block", "memory", "deep value", "nested sets", "shared parts"),
    *("lone surrogates", "prints lone surrogates"),
)
NUMBER = re.compile(r"Number (\d+):")


def write_problems(folder: Path) -> Path:
    """A problem a reply, told apart by a number in its statement."""
    path = folder / "problems.jsonl"
    lines = []
    for number, kind in enumerate(KINDS):
        problem = REPLIES[kind].problem
        row = {"id": f"n{number}", "statement": f"Number {number}: {problem.statement}"}
        row |= {"entry_point": problem.entry_point} if problem.entry_point else {}
        for key, tests in (("public_tests", problem.public_tests), ("tests", problem.hidden_tests)):
            row[key] = [test.code or msgspec.to_builtins(test) for test in tests]
        lines.append(json.dumps(row))
    path.write_text("\n".join(lines))
    return path


def say(asked: Asked) -> str:
    found = NUMBER.search(asked.text)
    return REPLIES[KINDS[int(found[1])]].text if found else "Hello."


WANTED = {f"n{number}": REPLIES[kind].reward for number, kind in enumerate(KINDS)}


def test_scores_of_atropos(tmp_path: Path) -> None:
    pytest.importorskip("atroposlib", reason="atroposlib is not installed (make test-integrations installs it)")
    from integrations.atropos_runs import rows, toy

    tokenizer = Path(write_demo_model(tmp_path / "tokenizer"))
    with serving(ModelServer(say=say, counts=False)) as server:
        env = toy(
            server.url,
            tokenizer,
            tmp_path,
            problems=f"jsonl:{write_problems(tmp_path)}",
            protocol="interleaved",
            group_size=1,
            total_steps=len(KINDS),
            eval_fraction=0.0,
            max_turns=1,
            max_token_length=8192,
            structure_bonus=False,
            ensure_scores_are_not_same=False,
            include_messages=True,
        ).start()
        assert env.wait() == 0, env.said()
    found = {}
    for group in rows(tmp_path / "data" / "code_trace.jsonl"):
        (messages,), (score,) = group["messages"], group["scores"]
        number = next(match[1] for m in messages if (match := NUMBER.search(m["content"])))
        found[f"n{number}"] = score
    assert {KINDS[int(n[1:])]: found.get(n) for n in WANTED if found.get(n) != WANTED[n]} == {}


def test_rewards_of_verifiers(tmp_path: Path) -> None:
    pytest.importorskip("verifiers", reason="verifiers is not installed (make test-integrations installs it)")
    from integrations.test_verifiers import Eval

    command = Eval(tmp_path)
    with serving(ModelServer(say=say, counts=False)) as server:
        done = command(
            server.url,
            *("-n", len(KINDS), "--env.taskset.problems", f"jsonl:{write_problems(tmp_path)}"),
            *("--env.agent.harness.protocol", "interleaved", "--env.agent.harness.max-turns", 1),
        )
    assert done.code == 0, done.told
    found = {trace["task"]["data"]["id"]: trace["rewards"].get("reward", {}).get("score") for trace in done.traces}
    assert {KINDS[int(n[1:])]: found.get(n) for n in WANTED if found.get(n) != WANTED[n]} == {}
