"""Gemini CLI: one document, or lines of which later ones replace earlier ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from foretrace.core.errors import SourceError
from foretrace.core.trace import Parent
from foretrace.sources.account import Account
from foretrace.sources.formats.gemini_cli import GeminiCli
from sources.formats.reading import Read, count, write_document, write_lines
from sources.formats.reading import read as read_file

META = {"sessionId": "g1", "projectHash": "abc", "startTime": "2026-01-01T00:00:00Z", "kind": "main"}


def message(kind: str, number: str, content: Any, at: float = 0, **more: Any) -> dict[str, Any]:
    return {"id": number, "type": kind, "timestamp": f"2026-01-01T00:00:{at:06.3f}Z", "content": content, **more}


def call(call_id: str, at: float, name: str = "read_file", status: str = "success", **more: Any) -> dict[str, Any]:
    response = {"functionResponse": {"id": call_id, "name": name, "response": {"output": "text"}}}
    stamp = f"2026-01-01T00:00:{at:06.3f}Z"
    facts = {"id": call_id, "name": name, "args": {"p": 1}, "result": [response], "status": status, "timestamp": stamp}
    return {**facts, **more}


def read(folder: Path, *records: Any, name: str = "session-1.jsonl") -> Read:
    return read_file("gemini_cli", write_lines(folder / name, records))


def document(folder: Path, **fields: Any) -> Read:
    return read_file("gemini_cli", write_document(folder / "session-2.json", fields))


@pytest.mark.parametrize("is_document", [True, False])
def test_turns_calls_results_and_times(tmp_path: Path, is_document: bool) -> None:
    messages = [
        message("user", "1", "go", 1),
        message(
            "gemini", "2", "I look", 3, model="gemini-x", tokens={"input": 5, "output": 2, "note": "x"},
            thoughts=[{"subject": "Plan", "description": "read"}],
            toolCalls=[call("a", 3.5), call("b", 4, status="error"), call("c", 30, status="cancelled"),
                       call("d", 60, name="ask_user"), call("e", 5, result=None, resultDisplay="shown")],
        ),
        message("info", "3", "Request cancelled."), message("error", "4", "[API Error: 429]"),
        message("gemini", "5", [{"text": "done"}], 62),
    ]  # fmt: skip
    found = document(tmp_path, **META, messages=messages) if is_document else read(tmp_path, META, *messages)
    assert count(found.traces[0]) == {"turns": 2, "calls": 5, "results": 5}
    said = found.messages[1]
    assert (said.reasoning, said.model_s, said.extra["usage"]) == ("Plan read", 2, {"input": 5, "output": 2})
    results = [m for m in found.messages if m.role == "tool"]
    assert [m.tool_s for m in results] == [0.5, 1, None, None, 2], "a person denied or answered two of them"
    assert [m.is_error for m in results] == [False, True, None, False, False]
    assert [m.content for m in results] == ["text"] * 4 + ["shown"]
    assert found.account.ignored == {"info message": 1, "error message": 1}
    assert found.traces[0].task.group == "abc" and found.traces[0].provenance.model == "gemini-x"


def test_later_lines_replace_and_a_person_goes_back(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        META, message("user", "1", "go"), message("gemini", "2", "draft"), {"$set": {"summary": "a title"}},
        message("user", "2b", "meanwhile"),
        message("gemini", "2", "whole", toolCalls=[call("a", 1)]), message("user", "3", "wrong"),
        message("gemini", "4", "lost"), {"$rewindTo": "3"}, message("user", "5", "right"),
        message("gemini", "6", "end"), {"brand": "new"},
    )  # fmt: skip
    assert [m.content for m in found.messages] == ["go", "whole", "text", "meanwhile", "right", "end"]
    assert found.account.ignored == {"message that a later line replaces": 1, "abandoned branch": 2}
    assert found.account.notes == {"abandoned branches": 1} and found.account.unknown == {"brand": 1}
    assert found.traces[0].extra["title"] == "a title"
    unknown = read(tmp_path, META, message("user", "1", "go"), message("gemini", "2", "x"), {"$rewindTo": "nobody"})
    assert [d.reason for d in unknown.drops] == ["no_agent_turn"]


def test_a_line_may_set_all_messages(tmp_path: Path) -> None:
    given = [message("user", "8", "new"), message("gemini", "9", "yes")]
    found = read(tmp_path, META, message("user", "1", "old"), {"$set": {"messages": given}})
    assert [m.content for m in found.messages] == ["new", "yes"] and found.account.records == 3


def test_early_histories_of_parts(tmp_path: Path) -> None:
    image = {"inlineData": {"mimeType": "image/png", "data": "AAAA"}}
    history: list[tuple[str, list[Any]]] = [
        ("user", [{"text": "look"}, image]),
        ("model", [{"text": "hm", "thought": True}, {"functionCall": {"name": "ls", "args": {"a": 1}}}]),
        ("user", [{"functionResponse": {"name": "ls", "response": {"error": "no"}}}]),
        ("model", [{"text": "done"}]),
    ]
    turns = [{"role": role, "parts": parts, "ts": 1} for role, parts in history]
    found = document(tmp_path, history=turns, meta={"model": "gemini-x"})
    assert count(found.traces[0]) == {"turns": 2, "calls": 1, "results": 1}
    assert found.messages[0].parts[0].type == "image" and found.messages[1].reasoning == "hm"
    assert found.messages[2].is_error and found.traces[0].provenance.model == "gemini-x"


def test_subagents_lie_in_a_folder_of_their_session(tmp_path: Path) -> None:
    facts = {**META, "sessionId": "sub", "kind": "subagent"}
    records = [facts, message("user", "1", "go"), message("gemini", "2", "x")]
    found = read(tmp_path / "chats" / "g1", *records, name="sub.jsonl")
    assert found.traces[0].parent == Parent(key="gemini_cli@g1")
    assert read(tmp_path / "chats", *records).traces[0].parent is None


def test_a_document_that_is_cut_off_is_said(tmp_path: Path) -> None:
    path = tmp_path / "session.json"
    path.write_text(json.dumps({**META, "messages": [message("user", "1", "go")]}, indent=1)[:-5])
    with pytest.raises(SourceError, match="cannot read"):
        list(GeminiCli().read_traces(path, Account()))
