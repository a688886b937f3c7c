"""Rows in which a value is of a kind that nobody writes: each is a Trace or a named Drop, and breaks no other row."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from foretrace.rows.base import RawRow, RowRef
from foretrace.sources.chat import Chat
from foretrace.sources.importing import import_rows

CALL = {"id": "1", "type": "function", "function": {"name": "ls", "arguments": "{}"}}
FORMS: dict[str, dict[str, Any]] = {
    "openai": {
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "Look."}]},
            {"role": "assistant", "content": "", "tool_calls": [CALL]},
            {"role": "tool", "content": "a.py", "tool_call_id": "1"},
        ]
    },
    "anthropic": {
        "messages": [
            {"role": "user", "content": "Look."},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "ls", "input": {}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": "a.py"}]},
        ]
    },
    "responses": {
        "input": "Look.",
        "output": [{"type": "function_call", "call_id": "1", "name": "ls", "arguments": "{}"}],
    },
    "autogen": {
        "messages": [
            {"type": "TextMessage", "source": "user", "content": "Look."},
            {
                "type": "ToolCallRequestEvent",
                "source": "agent",
                "content": [{"id": "1", "name": "ls", "arguments": ""}],
            },
        ]
    },
    "continue": {
        "history": [
            {"message": {"role": "user", "content": "Look."}},
            {
                "message": {"role": "assistant", "content": "", "toolCalls": [CALL]},
                "toolCallStates": [{"toolCallId": "1", "output": [{"content": "a.py"}]}],
            },
            {"message": {"role": "tool", "content": "a.py", "toolCallId": "1"}},
        ]
    },
    "steps": {"task": "Look.", "steps": [{"thought": "t", "action": "ls", "args": {}, "type": "x", "result": "a"}]},
}
ODD: list[Any] = [["x"], {"a": ["b"]}, 3, None, True, "", [], [["q"]], "x\ud800"]


class Decoded:
    """Rows that another library decoded."""

    label = fingerprint = "decoded"

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self._rows = rows

    def read(self, start: int = 0) -> Iterator[RawRow]:
        for number, row in list(enumerate(self._rows))[start:]:
            yield RawRow(RowRef(number), row)


def list_paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield (*path, key)
        yield from list_paths(value[key], (*path, key))


def replace(row: dict[str, Any], path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    row = copy.deepcopy(row)
    held: Any = row
    for key in path[:-1]:
        held = held[key]
    held[path[-1]] = value
    return row


@pytest.mark.parametrize("form", FORMS)
def test_an_odd_value_anywhere_is_a_trace_or_a_named_drop(tmp_path: Path, form: str) -> None:
    whole = FORMS[form]
    rows = [
        {**replace(whole, path, odd), "id": f"{path}{n}"} for path in list_paths(whole) for n, odd in enumerate(ODD)
    ]
    report = import_rows(Chat(), [Decoded([*rows, {**whole, "id": "whole"}])], tmp_path / "out")
    assert "internal_error" not in report.drops, report.examples
    assert report.traces + report.drops.total() == len(rows) + 1
    assert report.drops["not_utf8"] and "half of a surrogate pair" in report.examples["not_utf8"][0]
