"""Bad input, one test each: what is whole is imported, what is not is a counted drop or one clear error."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from foretrace.core.errors import SourceError
from foretrace.core.store import TraceStore, read_traces
from foretrace.rows.files import FileRows
from foretrace.sources.importing import import_rows
from foretrace.sources.report import ImportReport
from foretrace.sources.swe_smith import SweSmith
from sources.raw_rows import swe_rows, xml_messages

Import = Callable[..., ImportReport]
ROWS = swe_rows(12)
LINES = [json.dumps(row).encode() for row in ROWS]
TEXT = b"\n".join(LINES) + b"\n"


@pytest.fixture
def run(tmp_path: Path) -> Import:
    """Import bytes under a file name; every trace is read back and every row is accounted for."""

    def call(data: bytes, name: str = "rows.jsonl") -> ImportReport:
        path = tmp_path / name
        path.write_bytes(data)
        report = import_rows(SweSmith(), [FileRows(path)], tmp_path / "out")
        assert report.rows == report.traces + report.already_done + sum(report.drops.values())
        assert len(list(read_traces(tmp_path / "out"))) == report.traces
        assert TraceStore(tmp_path / "out").manifest.drops == report.drops
        return report

    return call


def spoil(index: int, line: bytes) -> bytes:
    return b"\n".join([*LINES[:index], line, *LINES[index + 1 :]]) + b"\n"


def change(**columns: Any) -> bytes:
    row = {**ROWS[3], **columns}
    return json.dumps({k: v for k, v in row.items() if v is not ...}).encode()


def one_drop(report: ImportReport, reason: str, row: int = 3, rows: int = 12) -> None:
    assert (report.rows, report.traces, dict(report.drops)) == (rows, rows - 1, {reason: 1})
    assert f"row {row}:" in report.examples[reason][0]


def parquet(rows: list[Any], schema: pa.Schema | None = None, **options: Any) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), sink, **options)
    return sink.getvalue().to_pybytes()


ONE_LOST = {
    "malformed line": (b'{"messages": [}', "bad_json"),
    "truncated line": (LINES[3][:50], "bad_json"),
    "missing column": (change(messages=...), "missing_column"),
    "column of another type": (change(messages=17), "wrong_column_type"),
    "null messages": (change(messages=None), "null_messages"),
    "empty trace": (change(messages=[]), "empty_trace"),
    "no assistant": (change(messages=[{"role": "user", "content": "x"}]), "empty_trace"),
    "unknown role": (change(messages=[{"role": "wizard", "content": "x"}]), "unknown_role"),
    "not utf-8": (LINES[3].replace(b"gadget", b"\xff\xfe\x80"), "not_utf8"),
    "recursion": (b"[" * 100_000, "nested_too_deep"),
    "recursion inside the messages": (change(messages='[{"role": ' + "[" * 100_000), "nested_too_deep"),
    "recursion in another column": (
        LINES[3][:-1] + b', "x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        "nested_too_deep",
    ),
    "lone surrogates": (LINES[3].replace(b"gadget", b"\\ud800"), "bad_json"),
    "integer that no reader takes": (change(big="@").replace(b'"@"', b"9" * 5000), "bad_json"),
    "no object": (b"[1, 2]", "not_an_object"),
    "blank line": (b"  ", "empty_line"),
    "nul bytes": (b"\x00" * 1000, "bad_json"),
}
"""By name: what stands in the place of a row, and the reason of the drop."""


@pytest.mark.parametrize("name", ONE_LOST)
def test_a_bad_line_is_one_drop(run: Import, name: str) -> None:
    line, reason = ONE_LOST[name]
    one_drop(run(spoil(3, line)), reason)


def test_repeated_key_with_other_content(run: Import) -> None:
    one_drop(run(TEXT + change(messages=xml_messages(["pwd"])) + b"\n"), "key_conflict", row=12, rows=13)


WHOLE = {
    "many frames.jsonl.zst": b"\x50\x2a\x4d\x18\x04\x00\x00\x00note"
    + b"".join(zstandard.compress(line + b"\n") for line in LINES),
    "many members.jsonl.gz": b"".join(gzip.compress(line + b"\n") for line in LINES),
    "huge integers.jsonl": spoil(3, change(big=10**300)),
    "NaN as Python writes it.jsonl": spoil(3, change(score="@").replace(b'"@"', b"NaN")),
    "byte order mark.jsonl": b"\xef\xbb\xbf" + TEXT,
    "CRLF.jsonl": TEXT.replace(b"\n", b"\r\n"),
    "no newline at the end.jsonl": TEXT[:-1],
    "document.json": json.dumps(ROWS).encode(),
    "document under data.json": json.dumps({"data": ROWS}, indent=1).encode(),
    "plain.parquet": parquet(ROWS),
}


@pytest.mark.parametrize("name", WHOLE)
def test_an_unusual_file_is_read_whole(run: Import, name: str) -> None:
    assert run(WHOLE[name], name.replace(" ", "_")).traces == 12


@pytest.mark.parametrize(
    ("name", "data", "drops"),
    [
        ("rows.jsonl", b"", {}),
        ("rows.jsonl", TEXT[:-40], {"bad_json": 1}),
        ("rows.json", json.dumps(ROWS).encode()[:-30], {"bad_json": 1}),
        ("rows.json", spoil(3, b"{"), {"bad_json": 1}),
        ("rows.parquet", parquet([{"a": 1, "b": "x"}] * 3), {"missing_column": 3}),
        ("rows.parquet", parquet(ROWS)[:-200], {"truncated_file": 1}),
    ],
)
def test_what_is_lost_of_a_file_is_counted(run: Import, name: str, data: bytes, drops: dict[str, int]) -> None:
    assert run(data, name).drops == drops


@pytest.mark.parametrize("cut", [1, 20, 300])
def test_truncated_gz(run: Import, cut: int) -> None:
    report = run(gzip.compress(TEXT, 0)[:-cut], "rows.jsonl.gz")
    # The checksum at the end is cut off first: then all rows are whole.
    assert report.traces in (11, 12) and report.drops == {"truncated_file": 1}
    assert report.rows == report.traces + 1


def test_damaged_gz(run: Import) -> None:
    data = bytearray(gzip.compress(TEXT))
    data[len(data) // 2] ^= 0xFF
    assert run(bytes(data), "rows.jsonl.gz").drops["truncated_file"] == 1


@pytest.mark.parametrize("share", [0.5, 0.9])
def test_truncated_zst(run: Import, share: float) -> None:
    rng = random.Random(0)  # text that compresses badly, so that the rows lie all over the frame
    text = b"".join(json.dumps({**row, "patch": rng.randbytes(4000).hex()}).encode() + b"\n" for row in swe_rows(200))
    data = zstandard.compress(text)
    report = run(data[: int(len(data) * share)], "rows.jsonl.zst")
    assert 200 * share - 40 < report.traces < 200 * share and report.drops == {"truncated_file": 1}
    assert report.rows == report.traces + 1


def test_parquet_with_a_damaged_row_group(run: Import) -> None:
    """Each of its rows is counted; the row groups before and after it are whole."""
    data = bytearray(parquet(ROWS, row_group_size=4, compression="NONE", use_dictionary=False))
    group = pq.ParquetFile(pa.BufferReader(bytes(data))).metadata.row_group(1).column(0)
    data[group.data_page_offset : group.data_page_offset + 30] = b"\xff" * 30
    report = run(bytes(data), "rows.parquet")
    assert (report.rows, report.traces, dict(report.drops)) == (12, 8, {"damaged_rows": 4})
    assert "row 4:" in report.examples["damaged_rows"][0]


def test_parquet_text_that_is_no_utf8(run: Import) -> None:
    table = pa.Table.from_pylist(ROWS)
    bad = [r["messages"].encode() if n != 3 else b"\xff\xfe" for n, r in enumerate(ROWS)]
    column = pa.Array.from_buffers(pa.string(), 12, pa.array(bad, pa.binary()).buffers())
    sink = pa.BufferOutputStream()
    pq.write_table(table.set_column(0, "messages", column), sink)
    one_drop(run(sink.getvalue().to_pybytes(), "rows.parquet"), "not_utf8")


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("rows.jsonl", gzip.compress(TEXT, mtime=0)),
        ("rows.jsonl", zstandard.compress(TEXT)),
        ("rows.json", parquet(ROWS)),
        ("rows.jsonl.gz", TEXT),
        ("rows.jsonl.zst", gzip.compress(TEXT, mtime=0)),
        ("rows.parquet", TEXT),
        ("rows.parquet", b""),
    ],
)
def test_a_file_that_is_not_what_its_suffix_says(run: Import, tmp_path: Path, name: str, data: bytes) -> None:
    with pytest.raises(SourceError, match="whatever its name says"):
        run(data, name)
    assert not (tmp_path / "out").exists()


def test_a_file_that_is_not_there_or_of_no_known_kind(tmp_path: Path) -> None:
    (tmp_path / "rows.xlsx").write_text("a,b")
    for path, message in (
        ("none.jsonl", "no such file"),
        ("rows.xlsx", "cannot tell the format"),
        ("", "no such file"),
    ):
        with pytest.raises(SourceError, match=message):
            FileRows(tmp_path / path)


def test_a_line_longer_than_any_row(run: Import, monkeypatch: pytest.MonkeyPatch) -> None:
    from foretrace.rows import files

    monkeypatch.setattr(files, "MAX_LINE", 100_000)
    monkeypatch.setattr(files, "_CHUNK", 4096)
    one_drop(run(spoil(3, change(messages="x" * 300_000))), "line_too_long")
