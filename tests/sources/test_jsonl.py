"""Our own Traces come back as they were."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from core.any_traces import traces
from foretrace.core.store import read_traces, write_traces
from foretrace.core.trace import Trace, add_trace_id, encode_trace
from foretrace.rows.files import FileRows
from foretrace.rows.head import read_objects
from foretrace.sources.importing import import_rows
from foretrace.sources.jsonl import Jsonl
from sources.raw_rows import TRACE_ROW, write_jsonl


def export(path: Path, some: list[Trace]) -> FileRows:
    path.write_bytes(b"".join(encode_trace(t) + b"\n" for t in some))
    return FileRows(path)


@settings(max_examples=15)
@given(st.lists(traces, min_size=1, max_size=4, unique_by=lambda t: t.key))
def test_any_trace(tmp_path_factory, some: list[Trace]) -> None:  # type: ignore[no-untyped-def]
    folder = tmp_path_factory.mktemp("any")
    some = [add_trace_id(t) for t in some]
    report = import_rows(Jsonl(), [export(folder / "t.jsonl", some)], folder / "out")
    assert report.traces == len(some), report
    assert {t.key: t for t in read_traces(folder / "out")} == {t.key: t for t in some}


def test_what_is_refused(tmp_path: Path) -> None:
    write_traces([msgspec.convert(TRACE_ROW, Trace)], tmp_path / "a")
    row = json.loads(encode_trace(next(read_traces(tmp_path / "a"))))
    edited = {**row, "extra": {"edited": True}}
    without_id = {k: v for k, v in edited.items() if k != "id"}
    later = {**row, "schema_version": 2}
    noise = [{}, {**row, "labels": []}, {**row, "messages": None}, {**row, "messages": [{"role": "wizard"}]}]
    path = write_jsonl(tmp_path / "x.jsonl", [row, edited, without_id, later, *noise])
    report = import_rows(Jsonl(), [FileRows(path)], tmp_path / "b")
    assert report.traces == 1
    assert report.drops == {"id_mismatch": 1, "key_conflict": 1, "schema_version": 1, "not_a_trace": 4}


def test_a_first_line_longer_than_what_is_looked_at_is_a_line(tmp_path: Path) -> None:
    path = tmp_path / "long.jsonl"
    path.write_text(json.dumps({"a": "x" * 300_000}) + "\n" + json.dumps({"b": 1}) + "\n")
    assert [sorted(record) for record in read_objects(path) if isinstance(record, dict)] == [["a"], ["b"]]
