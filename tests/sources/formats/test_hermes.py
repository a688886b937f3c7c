"""Hermes Agent: rows of messages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from foretrace.core.trace import Parent
from sources.formats.reading import count, write_lines
from sources.formats.reading import read as read_file


def message(role: str, content: Any, **more: Any) -> dict[str, Any]:
    fields = {"session_id": "h1", "tool_name": None, "tool_calls": None, "timestamp": 1781792578.9, "active": 1}
    return {"role": role, "content": content, **fields, **more}


CALL = [{"id": "c1", "type": "function", "function": {"name": "terminal", "arguments": '{"command": "ls"}'}}]
MESSAGES = [
    message("user", "go"),
    message("assistant", "wrong", active=0),
    message("assistant", "I look", reasoning="hm", tool_calls=CALL),
    message("tool", "x", tool_call_id="c1", tool_name="terminal"),
    message("assistant", None, tool_calls=json.dumps(CALL).replace("c1", "c2")),
    message("assistant", "", tool_calls="[broken"),
    message("odd", "?"),
]
ROW = {
    "id": "h1", "source": "cli", "model": "m", "system_prompt": "You are Hermes", "started_at": 1781792578.4,
    "cwd": "/home/x/code/app", "parent_session_id": "h0", "title": "t", "messages": MESSAGES,
}  # fmt: skip


def test_rows_of_messages(tmp_path: Path) -> None:
    found = read_file("hermes", write_lines(tmp_path / "x.jsonl", [ROW, {**ROW, "id": "h2"}]))
    trace = found.traces[0]
    assert [t.key for t in found.traces] == ["hermes@h1", "hermes@h2"] and trace.parent == Parent(key="hermes@h0")
    assert count(trace) == {"turns": 3, "calls": 3, "results": 1} and trace.messages[0].role == "system"
    assert trace.messages[2].reasoning == "hm" and trace.messages[5].tool_calls[0].error
    assert all(m.model_s is None and m.tool_s is None and m.started is None for m in trace.messages), "flushed stamps"
    assert trace.task.group == "app" and (trace.provenance.created_at or "").startswith("2026-06-18T")
    assert found.account.notes["messages that were taken back"] == 2
    assert found.account.notes["messages of the unknown role 'odd'"] == 2
