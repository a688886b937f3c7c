"""Cursor: lines of a role and a message, without times."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from foretrace.core.trace import Parent
from sources.formats.reading import count, write_lines
from sources.formats.reading import read as read_file


def said(role: str, *blocks: Any) -> dict[str, Any]:
    return {"role": role, "message": {"content": list(blocks)}}


def text(value: str) -> dict[str, str]:
    return {"type": "text", "text": value}


def test_a_transcript(tmp_path: Path) -> None:
    file = write_lines(tmp_path / "abc.jsonl", [
        said("user", text("<additional_data>\na.py\n</additional_data>"), text("<user_query>\ngo\n</user_query>")),
        said("assistant", {"type": "thinking", "text": "hm"}, text("I look"),
             {"type": "tool_use", "id": "t", "name": "Read", "input": {"path": "a"}}),
        said("user", {"type": "tool_result", "tool_use_id": "t", "content": [text("x")], "is_error": True}),
        said("assistant", {"type": "tool_use", "name": "Grep", "input": {}}),
        {"type": "turn_ended", "status": "success"}, {"type": "brand_new"}, {"role": "user", "message": {}},
    ])  # fmt: skip
    found = read_file("cursor", file)
    (trace,) = found.traces
    assert count(trace) == {"turns": 2, "calls": 2, "results": 1} and trace.key == "cursor@abc"
    assert [m.author for m in trace.messages[:2]] == ["environment", "user"] and "go" in (trace.task.statement or "")
    assert trace.messages[2].reasoning == "hm" and trace.messages[3].is_error
    assert all(m.model_s is None and m.tool_s is None and m.started is None for m in trace.messages)
    assert found.account.unknown == {"brand_new": 1} and found.account.dropped == {"no_content": 1}


def test_a_subagent_has_its_session_as_parent(tmp_path: Path) -> None:
    file = write_lines(tmp_path / "abc/subagents/def.jsonl", [said("user", text("go")), said("assistant", text("yes"))])
    (trace,) = read_file("cursor", file).traces
    assert (trace.key, trace.parent) == ("cursor@abc/def", Parent(key="cursor@abc"))
