"""The beginning of a file or folder, read once and bounded: all that a format may use to recognize itself."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jiter
import msgspec

from foretrace.core.errors import SourceError
from foretrace.rows.base import Drop
from foretrace.rows.files import (
    PARQUET_MAGIC,
    TruncatedError,
    decode_row,
    describe_json,
    is_json,
    list_rows,
    make_row,
    read_csv,
    read_document,
    read_parquet,
    read_records,
    read_unpacked,
    remove_bom,
    remove_packing,
)

MAX_HEAD = 256 << 10
"""Most uncompressed bytes of a file that recognition may see."""
MAX_NAMES = 500
"""Most names in a folder that recognition may see."""
MAX_ROWS = 5
"""Most rows that a source of rows looks at: a file may begin with a bad one."""
_MAX_RECORDS = 50
_MIN_RECORDS = 10
_DECODED = 16 << 10
"""Bytes of JSON lines; after these, and ten records, no more are decoded: formats can be recognized early."""
_MAX_TABLE_ROWS = 3
"""Most rows of a Parquet file that recognition may see: a row may be large."""


class FileHead(msgspec.Struct, frozen=True):
    """What recognition sees of a file or folder."""

    path: Path
    start: bytes = b""
    """The first bytes of a file, uncompressed, at most `MAX_HEAD`; fewer for JSON lines that are short."""
    records: tuple[dict[str, Any], ...] = ()
    """The first records. JSON lines: at most 50 complete objects, or ten long ones. Parquet: 3 rows. CSV: at most
    50 rows, the last of which may be cut off. A JSON list: at most 50 objects, the last of which may be cut off.
    Any other document: none."""
    document: dict[str, Any] | None = None
    """A JSON document (or a first line longer than the head) that is one object; values after the cut are missing."""
    names: tuple[str, ...] = ()
    """For a folder: the names in it, sorted, at most `MAX_NAMES`; those of folders end in `/`."""
    is_folder: bool = False

    @property
    def is_cut(self) -> bool:
        """Whether the file is longer than the head."""
        return len(self.start) >= MAX_HEAD

    @property
    def first(self) -> dict[str, Any]:
        """The first record, or the document; empty if there is neither."""
        return self.records[0] if self.records else self.document or {}

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The first rows of a file of rows, at most `MAX_ROWS`; for a document that is cut off, the visible ones."""
        # A document may be on one line, like a record: the name of the file decides, as it does when rows are read.
        is_document = len(self.records) <= 1 and remove_packing(self.path.name).endswith(".json")
        if self.records and not is_document:
            return list(self.records[:MAX_ROWS])
        rows = list_rows(self.first) if self.first else []
        return [row for row in rows[:MAX_ROWS] if isinstance(row, dict)]


def read_head(path: Path) -> FileHead:
    """Read the beginning of a file, or the names in a folder; raises a SourceError if it cannot."""
    try:
        if path.is_dir():
            with os.scandir(path) as entries:
                some = itertools.islice(entries, 100_000)
                names = sorted(entry.name + "/" * _is_folder(entry) for entry in some)
            return FileHead(path, names=tuple(names[:MAX_NAMES]), is_folder=True)
        with path.open("rb") as file:
            start = _take(remove_bom(read_unpacked(path, file, _DECODED)))
    except OSError as error:
        raise SourceError(f"{path}: cannot read: {error.strerror or error}") from error
    if start.startswith(PARQUET_MAGIC):
        return FileHead(path, start, records=_keep_objects(read_parquet(path), _MAX_TABLE_ROWS))
    if remove_packing(path.name).endswith(".csv"):
        return FileHead(path, start, records=_keep_objects(read_csv(iter([start])), _MAX_RECORDS))
    text = start.lstrip()
    first, _, rest = text.partition(b"\n")
    if text.startswith(b"[") and not (rest.strip() and is_json(first)):
        values = read_partial(text)
        records = _keep_objects(map(make_row, values if isinstance(values, list) else []), _MAX_RECORDS)
        is_line = len(start) == MAX_HEAD and not rest and remove_packing(path.name).endswith((".jsonl", ".ndjson"))
        if is_line and any("role" in record for record in records[:3]):  # the first of lines that are lists of messages
            records = ({"messages": list(records)},)
        return FileHead(path, start, records=records)
    if text.startswith(b"{") and not _is_record(first):
        document = read_partial(text)
        if isinstance(document, dict):
            return FileHead(path, start, document=document)
    return FileHead(path, start, records=_read_lines(text))


def _keep_objects(rows: Iterator[Any], count: int) -> tuple[dict[str, Any], ...]:
    return tuple(row for row in itertools.islice(rows, count) if isinstance(row, dict))


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself
        return False


def _take(chunks: Iterator[bytes]) -> bytes:
    pieces: list[bytes] = []
    size = 0
    with contextlib.suppress(TruncatedError):  # use what comes before the damage; reading the whole file will report it
        for chunk in chunks:
            pieces.append(chunk)
            size += len(chunk)
            if size >= MAX_HEAD or (len(pieces) == 1 and _has_enough(chunk)):
                break
    return b"".join(pieces)[:MAX_HEAD]


def _has_enough(chunk: bytes) -> bool:
    text = chunk.lstrip()
    return text.startswith((b"{", b"[")) and text.count(b"\n") > _MIN_RECORDS and _is_record(text.partition(b"\n")[0])


def _read_lines(text: bytes) -> tuple[dict[str, Any], ...]:
    """The records of complete lines; a line that is cut off is not JSON. None if most lines are not records."""
    records: list[dict[str, Any]] = []
    at = lines = 0
    for line in text.split(b"\n"):
        if len(records) >= _MAX_RECORDS or (at >= _DECODED and len(records) >= _MIN_RECORDS):
            break
        at += len(line) + 1
        lines += bool(line.strip())
        if isinstance(record := decode_row(line), dict):
            records.append(record)
    return tuple(records) if 2 * len(records) >= lines else ()


def _is_record(line: bytes) -> bool:
    return isinstance(decode_row(line), dict)


def read_partial(text: bytes) -> Any:
    """The value of a JSON text that may be cut off, as far as it goes; `None` for other text."""
    try:
        return jiter.from_json(text, partial_mode="trailing-strings", cache_mode="none")
    except (ValueError, RecursionError):
        return None


def read_objects(path: Path) -> Iterator[dict[str, Any] | Drop]:
    """The objects in a file: a JSON document, a list of objects, or JSON lines, depending on its beginning. A file that
    cannot be read is a SourceError."""
    head = read_head(path)
    if head.document is None and not head.start.lstrip().startswith(b"["):
        yield from read_records(path)
        return
    value = read_document(path)
    if isinstance(value, Drop) and value.reason == "bad_json" and head.document is not None and head.is_cut:
        yield from read_records(path)  # the first of several lines is longer than the head
        return
    for item in value if isinstance(value, list) else [value]:
        is_known = isinstance(item, (dict, Drop))
        yield item if is_known else Drop("not_an_object", describe_json(item))
