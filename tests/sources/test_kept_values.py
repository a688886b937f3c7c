"""What stands beside messages is kept: every value of a row is in its trace."""

from __future__ import annotations

import json
from typing import Any

import pytest

from foretrace.core.trace import Trace, encode_trace
from foretrace.rows.base import RowRef
from foretrace.sources.chat import Chat
from foretrace.sources.leftovers import find_rest

ASKED = {"role": "user", "content": "Which files are there?"}
CALL = {"id": "c1", "type": "function", "function": {"name": "ls", "arguments": '{"path": "."}'}}
STEP = {"thought": "look", "action": "ls", "action_input": {"path": "."}, "observation": "a.py"}
FORMS: dict[str, dict[str, Any]] = {
    "openai": {
        "messages": [ASKED, {"role": "assistant", "content": "", "tool_calls": [CALL]},
                     {"role": "tool", "content": "a.py", "tool_call_id": "c1"}],
    },
    "anthropic": {
        "messages": [ASKED, {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "Hm.", "signature": "sig"}, {"type": "text", "text": "I look."},
            {"type": "tool_use", "id": "c1", "name": "ls", "input": {"path": "."}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "a.py"}]}],
    },
    "responses": {
        "input": [ASKED],
        "output": [{"type": "reasoning", "id": "r1", "summary": [{"type": "summary_text", "text": "Hm."}]},
                   {"type": "function_call", "call_id": "c1", "name": "ls", "arguments": "{}", "status": "done"},
                   {"type": "function_call_output", "call_id": "c1", "output": "a.py"}],
    },
    "langchain": {
        "messages": [{"type": "human", "data": {"content": "Which files?", "id": "h"}},
                     {"type": "ai", "data": {"content": "None.", "response_metadata": {"model": "m", "tokens": 7}}}],
    },
    "gemini": {
        "request": {"contents": [{"role": "user", "parts": [{"text": "Which files?"}]}], "temperature": 0.5},
        "response": {"candidates": [{"content": {"role": "model", "parts": [{"text": "None."}]}, "avgLogprobs": -0.2}]},
    },
    "envelope": {"messages": [{"message": ASKED, "cost": 1.5},
                              {"message": {"role": "assistant", "content": "None."}, "cost": 2.5}]},
    "state": {"state": {"messages": [ASKED, {"role": "assistant", "content": "None."}], "turn": {"count": 3}}},
    "steps": {"question": "Which files?", "steps": [STEP, {**STEP, "thought": "again"}], "final_answer": "a.py"},
    "lists": {"conversations": {"from": ["human", "gpt"], "value": ["Which files?", "None."], "reward": [0.0, 0.7],
                                "started": [11, 12], "tags": ["x"], "title": "t"}},
}  # fmt: skip
_OPAQUE = ("arguments", "input", "action_input")
"""Where what is added would be an argument of a call."""


def add_values(value: Any, added: list[str]) -> Any:
    """The value with one more field in each of its objects."""
    if isinstance(value, list):
        return [add_values(each, added) for each in value]
    if not isinstance(value, dict):
        return value
    added.append(f"added-{len(added)}-")
    own = {f"more_{len(added)}": added[-1]}
    return {key: each if key in _OPAQUE else add_values(each, added) for key, each in value.items()} | own


@pytest.mark.parametrize("form", FORMS)
def test_what_stands_beside_messages_is_kept(form: str) -> None:
    added: list[str] = []
    row = add_values(FORMS[form], added) if form != "lists" else FORMS[form]
    trace = Chat().to_trace(row, RowRef(0, "rows.jsonl"))
    assert isinstance(trace, Trace)
    text = encode_trace(trace).decode()
    assert [value for value in added if value not in text] == []
    numbers = {"envelope": [1.5, 2.5], "langchain": [7], "gemini": [0.5, -0.2], "state": [3], "lists": [0.7, 11, 12]}
    kept = json.dumps([trace.extra, *(message.extra for message in trace.messages)])
    assert all(str(number) in kept for number in numbers.get(form, []))


def test_a_value_that_is_nested_deep_is_kept_whole() -> None:
    value: Any = "deep"
    for _ in range(900):
        value = {"in": [value]}
    assert find_rest(value, "other") == value
