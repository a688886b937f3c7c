"""Groups that Atropos environments save."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from foretrace.envs.train_sequence import make_sequence
from sources.formats.reading import count, read, recognize, write_lines

PROMPT = [{"role": "system", "content": "s"}, {"role": "user", "content": "go"}]
CALL = '<tool_call>{"name": "run", "arguments": {"x": 1}}</tool_call>'
MESSAGES = [*PROMPT, {"role": "assistant", "content": CALL}, {"role": "tool", "content": "ok"},
            {"role": "assistant", "content": "done"}]  # fmt: skip
TOKENS = [1, 2, 3, 4, 5, 6]
MASKS = [-100, -100, 3, 4, -100, 6]


def group(**more: Any) -> dict[str, Any]:
    return {"tokens": [TOKENS] * 2, "masks": [MASKS] * 2, "scores": [1.0, -1.0], "messages": [MESSAGES] * 2,
            "inference_logprobs": [[1.0, 1.0, -0.1, -0.2, 1.0, -0.3]] * 2, **more}  # fmt: skip


def test_every_attempt_of_a_group(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "groups.jsonl", [group(group_overrides={"a": 1})])
    (one, two), drops, account = read("atropos_groups", path)
    assert list(recognize(path)) == ["atropos_groups"] and not drops and account.used == 2
    assert one.task == two.task and one.key != two.key
    assert [t.outcome.reward for t in (one, two)] == [1.0, -1.0] and one.outcome.success is None
    assert count(one) == {"turns": 2, "calls": 1, "results": 1} and one.extra == {"group_overrides": {"a": 1}}
    assert [m.tool_s for m in one.messages] == [None] * 5


def test_tokens_where_they_are(tmp_path: Path) -> None:
    (one, _), _, _ = read("atropos_groups", write_lines(tmp_path / "g", [group()]))
    first, second = (m.sampled for m in one.messages if m.role == "assistant")
    assert first and (first.token_ids, first.prompt_token_ids, first.logprobs) == ((3, 4), (1, 2), (-0.1, -0.2))
    assert second and (second.token_ids, second.prompt_token_ids, second.exact) == ((6,), None, "token")
    made = make_sequence(one, 6, [6])
    assert made and (made.tokens, made.masks, made.trained) == (TOKENS, MASKS, 3)
    inexact = read("atropos_groups", write_lines(tmp_path / "g", [group(inference_logprobs=None)]))[0][0]
    assert inexact.messages[2].sampled and inexact.messages[2].sampled.exact == "text"


@pytest.mark.parametrize("masks", [[[-100] * 6] * 2, [[-100, 2, -100, 4, -100, 6]] * 2, [[-100]] * 2, None])
def test_tokens_that_do_not_match_are_left_out(masks: Any, tmp_path: Path) -> None:
    traces, _, account = read("atropos_groups", write_lines(tmp_path / "g", [group(masks=masks)]))
    assert len(traces) == 2
    assert all(m.sampled is None for t in traces for m in t.messages)
    assert account.notes["attempts whose tokens do not match their messages"] == 2


def test_tokens_alone_are_a_named_drop(tmp_path: Path) -> None:
    alone = group(messages=None)
    traces, drops, account = read(
        "atropos_groups", write_lines(tmp_path / "g", [alone, group(messages=[PROMPT, PROMPT])])
    )
    assert not traces and [d.reason for d in drops] == ["no_messages"] * 2 + ["no_agent_turn"] * 2
    assert account.dropped == {"no_messages": 2}
