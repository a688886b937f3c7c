"""Rows that are bare lists of messages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import foretrace
from foretrace.core.store import read_traces


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
