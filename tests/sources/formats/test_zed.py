"""Threads of Zed's agent, in its database and alone."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import zstandard

from foretrace.core.errors import SourceError
from sources.formats.reading import outline, read, read_one, recognize, write_document

CALL = {"id": "c1", "name": "grep", "raw_input": "{}", "input": {"q": "x"}, "is_input_complete": True}
RESULT = {"tool_use_id": "c1", "tool_name": "grep", "is_error": False, "content": {"Text": "a.rs"}, "output": None}
THREAD: dict[str, Any] = {
    "title": "Find",
    "version": "0.3.0",
    "updated_at": "2026-01-01T00:00:00Z",
    "model": {"provider": "zed.dev", "model": "m-1"},
    "messages": [
        {"User": {"id": "u", "content": [{"Text": "Find x."}, {"Mention": {"uri": {}, "content": "fn x() {}"}}]}},
        {"Agent": {"content": [{"Thinking": {"text": "Hm."}}, {"Text": "I look."}, {"ToolUse": CALL}],
                   "tool_results": {"c1": RESULT}}},
        "Resume",
        {"Agent": {"content": [{"Text": "Found."}, {"RedactedThinking": "x"}], "tool_results": {}}},
    ],
}  # fmt: skip
REST = [("assistant", "model", "I look."), ("tool", "environment", "a.rs"), ("assistant", "model", "Found.")]


def test_a_thread(tmp_path: Path) -> None:
    path = write_document(tmp_path / "thread.json", THREAD)
    assert set(recognize(path)) == {"zed"}
    trace, _ = read_one("zed", path)
    assert outline(trace)[1:] == REST and trace.messages[0].content.startswith("Find")
    assert trace.messages[1].reasoning == "Hm." and trace.messages[1].tool_calls[0].arguments == '{"q": "x"}'
    assert trace.extra["title"] == "Find" and trace.messages[2].is_error is False
    assert "fn x() {}" in trace.messages[0].content


def test_a_database(tmp_path: Path) -> None:
    path = tmp_path / "threads.db"
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE threads (id TEXT PRIMARY KEY, summary TEXT NOT NULL, updated_at TEXT NOT NULL, "
                         "data_type TEXT NOT NULL, data BLOB NOT NULL)")  # fmt: skip
        plain = json.dumps(THREAD).encode()
        packed = zstandard.ZstdCompressor().compress(plain)
        rows = [("t1", "json", plain), ("t2", "zstd", packed), ("t3", "zstd", b"gone"), ("t4", "json", b"[1]")]
        database.executemany("INSERT INTO threads VALUES (?, 's', '2026', ?, ?)", rows)
        database.commit()
    assert set(recognize(path)) == {"zed"}
    traces, drops, account = read("zed", path)
    assert [trace.key for trace in traces] == ["zed@t1", "zed@t2"] and traces[0].messages == traces[1].messages
    assert [drop.reason for drop in drops] == ["truncated_file", "not_an_object"] and account.records == 4
    assert traces[0].provenance.model == "m-1"


def test_another_database(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE threads (id TEXT)")
        database.commit()
    assert "zed" not in recognize(path)
    with pytest.raises(SourceError, match="cannot read as a database of Zed"):
        read("zed", path)
