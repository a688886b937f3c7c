"""Rows of tables, lists and documents, and their heads; what cannot be read is a Drop of its own."""

from __future__ import annotations

import csv
import gzip
import json
from pathlib import Path
from typing import Any

import pytest

import foretrace
from foretrace.core.errors import SourceError
from foretrace.core.store import read_traces
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


def write(tmp_path: Path, data: bytes, name: str = "file") -> Path:
    path = tmp_path / name
    path.write_bytes(data)
    return path


def test_packed(tmp_path: Path) -> None:
    assert read_head(write(tmp_path, gzip.compress(b'{"a": 1}\n'), "x.jsonl.gz")).records == ({"a": 1},)


def test_a_folder_and_nothing(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    write(tmp_path, b"", "b.json")
    assert read_head(tmp_path).names == ("b.json", "sub/")
    with pytest.raises(SourceError, match="cannot read"):
        read_head(tmp_path / "none")


def test_a_text_that_quotes_rows_holds_no_records(tmp_path: Path) -> None:
    path = tmp_path / "README.md"
    path.write_text('# How to\n\nA row:\n\n{"messages": [{"role": "user", "content": "Hi."}]}\n\nThen import it.\n')
    assert read_head(path).records == ()


def make_list(number: int, size: int = 1) -> list[dict[str, Any]]:
    return [
        {"role": "system", "content": "You can run commands."},
        {"role": "user", "content": f"Fix bug {number}." * size},
        {"role": "assistant", "content": "THOUGHT: I look.\n\n```bash\nls\n```"},
        {"role": "user", "content": "<returncode>0</returncode>\n<output>\na.py\n</output>"},
        {"role": "assistant", "content": "THOUGHT: Done.\n\n```bash\necho DONE\n```"},
    ]


@pytest.mark.parametrize(("name", "size"), [("rows.jsonl", 1), ("long.jsonl", 40_000), ("rows.json", 1)])
def test_a_list_is_a_row(tmp_path: Path, name: str, size: int) -> None:
    lists = [make_list(number, size) for number in range(2)]
    lines = "\n".join(map(json.dumps, lists)) if name.endswith(".jsonl") else json.dumps(lists)
    (tmp_path / name).write_text(lines)
    report = foretrace.import_source("auto", tmp_path / name, out=tmp_path / "out")
    assert report.traces == 2 and not report.drops and report.total.counts.calls == 4
    assert {len(trace.messages) for trace in read_traces(tmp_path / "out")} == {5}


@pytest.mark.parametrize("bad", ["@@", "42", "[]", '{"x": 1}'])
@pytest.mark.parametrize("place", [0, 1])
def test_a_bad_line_among_lists_is_one_drop(tmp_path: Path, bad: str, place: int) -> None:
    lines = [json.dumps(make_list(number)) for number in range(4)]
    (tmp_path / "rows.jsonl").write_text("\n".join([*lines[:place], bad, *lines[place:]]))
    report = foretrace.import_source("auto", tmp_path / "rows.jsonl", out=tmp_path / "out")
    assert (report.rows, report.traces, report.drops.total()) == (5, 4, 1)


def test_a_run_of_many_conversations_on_one_line(tmp_path: Path) -> None:
    runs = [{"id": f"s{n}", "messages": make_list(n)} for n in range(3)]
    (tmp_path / "run.json").write_text(json.dumps({"timestamp": "t", "simulations": runs}))
    assert foretrace.import_source("auto", tmp_path / "run.json", out=tmp_path / "out").traces == 3
