"""Traces whose calls were not read: shown by `import`, and refused by `build`."""

from __future__ import annotations

from pathlib import Path

import pytest

import foretrace
from foretrace.core.errors import GateError
from sources.raw_rows import write_jsonl

CALL = "I look.\n@@grep needle@@"


def write_rows(path: Path) -> Path:
    """Attempts that write their calls in a way of their own."""
    turns = [CALL, "Tool output: a.py", "@@open a.py@@", "Tool output: x = 1", "It is x."]
    rows = [
        {
            "id": f"r{n}",
            "instance_id": f"o__r{n}-1",
            "resolved": True,
            "messages": [
                {"role": "user", "content": f"Find x, {n}."},
                *({"role": ("assistant", "user")[i % 2], "content": text} for i, text in enumerate(turns)),
            ],
        }
        for n in range(30)
    ]
    return write_jsonl(path / "rows.jsonl", rows)


def test_unread_calls_fail_the_build(tmp_path: Path) -> None:
    rows = write_rows(tmp_path)
    report = foretrace.import_source("chat", rows, out=tmp_path / "traces")
    assert dict(report.unread) == {"chat": 60} and "@@grep needle@@" in report.unread_rows[0]
    with pytest.raises(GateError, match="unread_calls") as caught:
        foretrace.build(tmp_path / "traces", out=tmp_path / "out")
    said = str(caught.value)
    assert "unread 60, assistant_messages 90" in said and "chat 60" in said and "@@grep needle@@" in said
    assert "call_pattern='REGEX'" in said and "allow_unread=True" in said
    assert caught.value.exit_code == 3 and not (tmp_path / "out").exists()
    allowed = foretrace.build(tmp_path / "traces", out=tmp_path / "out", allow_unread=True).manifest
    (gate,) = [gate for gate in allowed["gates"] if gate["name"] == "unread_calls"]
    assert gate["verdict"] == "pass" and gate["figure"] == {"unread": 60, "assistant_messages": 90}


def test_a_pattern_reads_them(tmp_path: Path) -> None:
    rows = write_rows(tmp_path)
    pattern = r"@@(?P<tool>\w+) (?P<input>[^@]*)@@"
    report = foretrace.import_source("chat", rows, out=tmp_path / "traces", call_pattern=pattern)
    assert not report.unread
    manifest = foretrace.build(tmp_path / "traces", out=tmp_path / "out").manifest
    (gate,) = [gate for gate in manifest["gates"] if gate["name"] == "unread_calls"]
    assert gate["figure"] == {"unread": 0, "assistant_messages": 90}
