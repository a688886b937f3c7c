"""Thought, action and observation as plain text: of hotpotqa_react and its kin, in whatever column."""

from __future__ import annotations

from typing import Any

import pytest

from foretrace.core.trace import Trace
from foretrace.rows.base import RowRef
from foretrace.sources.chat import Chat

STEPS = (
    "Thought 1: I look for A.\nAction 1: Search[A]\nObservation 1: A is a film of 1950.\n"
    "Thought 2: I look for its director.\nAction 2: Lookup[director]\nObservation 2: (Result 1 / 1) B directed it.\n"
    "Thought 3: It is B.\nAction 3: Finish[B]\nObservation 3: Episode finished, reward = 1\n"
)
QUESTION = "Question: Who directed A?\n"
EXAMPLE = "Solve a question with Thought, Action and Observation.\nQuestion: Who wrote C?\n" + STEPS.replace("A", "C")


def read(row: dict[str, Any]) -> Trace:
    trace = Chat().to_trace(row, RowRef(0, "rows.jsonl"))
    assert isinstance(trace, Trace)
    return trace


@pytest.mark.parametrize(
    "row",
    [
        {"traj": QUESTION + STEPS, "em": True, "reward": True},
        {"anything": EXAMPLE + QUESTION + STEPS},
        {"instruction": "Answer.", "input": QUESTION.strip(), "output": STEPS},
        {"question": "Who directed A?", "text": STEPS},
        {"messages": [{"role": "user", "content": QUESTION}, {"role": "assistant", "content": STEPS}]},
    ],
)
def test_steps_in_a_text(row: dict[str, Any]) -> None:
    trace = read(row)
    assert trace.messages[0].role == "user" and "Who directed A?" in trace.messages[0].content
    said = [message for message in trace.messages if message.role == "assistant"]
    assert [call.name for message in said for call in message.tool_calls] == ["Search", "Lookup", "Finish"]
    assert next(message.content for message in trace.messages if message.role == "tool") == "A is a film of 1950."
    assert trace.outcome.success is (True if "reward" in row else None)
