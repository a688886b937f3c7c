"""Rows with steps of home-made loops, and turns of dialogues."""

from __future__ import annotations

import json
from typing import Any

import pytest

from foretrace.core.trace import Trace
from foretrace.rows.base import RowRef
from foretrace.sources.base import RowError
from foretrace.sources.chat import Chat


def read(row: dict[str, Any]) -> Trace:
    trace = Chat().to_trace(row, RowRef(0))
    assert isinstance(trace, Trace)
    return trace


def outline(trace: Trace) -> list[tuple[str, str]]:
    return [(m.role, m.content or ", ".join(f"{c.name} {c.arguments}" for c in m.tool_calls)) for m in trace.messages]


def calls(trace: Trace) -> list[tuple[str, dict[str, Any]]]:
    return [(c.name, json.loads(c.arguments)) for m in trace.messages for c in m.tool_calls]


@pytest.mark.parametrize(
    ("row", "found"),
    [
        ({"task": "T", "trajectory": [{"thought": "t", "action": "search[x]", "observation": "o"}]},
         [("search", {"input": "x"})]),
        ({"question": "Q", "steps": json.dumps([{"tool": "look", "tool_input": {"q": 1}, "observation": None},
                                                {"thought": "t", "tool": "look", "tool_input": "", "result": "o"}])},
         [("look", {"q": 1}), ("look", {})]),
        ({"goal": "G", "actions": [{"thought": "t", "action": "go", "args": {"url": "u"}, "result": "ok"}]},
         [("go", {"url": "u"})]),
        ({"task": "T", "history": [{"thought": "t", "command": "ls", "output": "a"}]}, [("bash", {"command": "ls"})]),
        ({"task": "T", "steps": [{"thought": "t", "action": "go north", "observation": "o"}]},
         [("act", {"input": "go north"})]),
        ({"task": "T", "steps": [{"thought": "t", "action": {"name": "f", "arguments": '{"n": 1}'}, "result": "o"}]},
         [("f", {"n": 1})]),
        ({"task": "T", "steps": [{"thought": "t", "observation": "o", "tool_calls": [
            {"name": "f", "arguments": {}}, {"name": "g", "arguments": {}}]}]}, [("f", {}), ("g", {})]),
    ],
)  # fmt: skip
def test_steps(row: dict[str, Any], found: list[tuple[str, dict[str, Any]]]) -> None:
    trace = read(row)
    assert calls(trace) == found
    assert any(m.role == "tool" for m in trace.messages)


@pytest.mark.parametrize(
    "row",
    [
        {"steps": [{"action": "mix(it)", "result": "dough"}]}, {"steps": [{"tool": "saw"}]},
        {"actions": [{"action": "open", "args": {}}]}, {"steps": [1, {"action": "f[x]"}]},
        {"history": [["Hi", "Hello"]]}, {"trajectory": [[1, 2]]},
        {"goal": "Test", "steps": [{"action": "Click", "input": "button", "result": "ok"}]},
        {"task": "build", "steps": [{"command": "make", "output": "ok"}, {"command": "make test", "output": "ok"}]},
    ],
)  # fmt: skip
def test_words_about_actions_are_no_steps(row: dict[str, Any]) -> None:
    with pytest.raises(RowError):
        read(row)


def test_calls_beside_a_response() -> None:
    row = {"prompt": "Go.", "response": "I go.", "tool_calls": [{"name": "f", "arguments": {"n": 1}}]}
    assert calls(read(row)) == [("f", {"n": 1})]


def test_a_speaker_who_calls() -> None:
    call = {"id": "c", "function": {"name": "f", "arguments": "{}"}}
    said = {"sender": "assistant", "content": "", "tool_calls": [call]}
    assert calls(read({"messages": [{"sender": "user", "content": "Go."}, said]})) == [("f", {})]


def test_a_column_of_calls_that_holds_none() -> None:
    """Such a row was read before the column was."""
    for value in ([{"id": 1}], ["x"], [3], 2):
        trace = read({"prompt": "Go.", "completion": "I go.", "tool_calls": value})
        assert outline(trace) == [("user", "Go."), ("assistant", "I go.")]


def test_a_last_thought_and_an_answer() -> None:
    step = {"thought": "a", "action": "f", "args": {"x": 1}, "observation": {"a": 1}}
    trace = read({"task": "T", "steps": [step, {"thought": "So it is 4.", "action": None}], "answer": "4"})
    assert outline(trace) == [
        ("user", "T"), ("assistant", "a"), ("tool", '{"a": 1}'), ("assistant", "So it is 4."), ("assistant", "4"),
    ]  # fmt: skip
    with pytest.raises(RowError):
        read({"task": "T", "steps": [{"thought": "a", "result": "b"}]})
