"""Rows of tables, as they are written elsewhere; what cannot be read is a Drop of its own."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from foretrace.rows.base import Drop
from foretrace.rows.files import FileRows
from foretrace.rows.head import read_head
from foretrace.sources.chat import Chat

CHAT = [{"role": "user", "content": 'a,\n"b"'}, {"role": "assistant", "content": "c"}]


def read(path: Path) -> list[dict[str, Any] | str]:
    values = [row.value for row in FileRows(path).read()]
    return [value.reason if isinstance(value, Drop) else value for value in values]


def test_a_table_of_conversations(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    with path.open("w", newline="", encoding="utf-8-sig") as file:
        table = csv.writer(file)
        table.writerow(["id", "messages", "resolved", "reward"])
        table.writerow(["7", json.dumps(CHAT), "True", "0.5"])
        table.writerow(["8", json.dumps(CHAT, indent=1), "", ""])
    assert Chat().recognize(read_head(path)) == "column messages holds messages"
    traces: list[Any] = [Chat().to_trace(row, at) for at, row in FileRows(path).read() if isinstance(row, dict)]
    assert [(t.provenance.raw_id, t.outcome.success, t.outcome.reward) for t in traces] == [
        ("7", True, 0.5),
        ("8", None, None),
    ]
    assert traces[1].messages[0].content == 'a,\n"b"'


def test_rows_of_a_table_that_cannot_be_read(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_bytes(b"a,b\r\n1,2\r\n3\r\n\xff,4\r\n\xc3\xa9,\r\n")
    assert read(path) == [{"a": "1", "b": "2"}, "bad_csv", "not_utf8", {"a": "\xe9", "b": None}]
    path.write_bytes(b"")
    assert read(path) == [] == list(read_head(path).records)


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.json"])
def test_what_is_not_a_number_is_null(tmp_path: Path, name: str) -> None:
    rows = [{"id": f"Infinity {n}", "score": float("nan"), "parts": [float("inf"), -float("inf"), 1]} for n in range(2)]
    path = tmp_path / name
    path.write_text(json.dumps(rows) if name == "rows.json" else "\n".join(map(json.dumps, rows)))
    assert read(path) == [{"id": f"Infinity {n}", "score": None, "parts": [None, None, 1]} for n in range(2)]
    (tmp_path / "bad.jsonl").write_text('{"a": NaN')
    assert read(tmp_path / "bad.jsonl") == ["bad_json"]
