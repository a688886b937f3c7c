"""The beginning of a file or folder, read once and bounded: all that a format may look at to recognise itself."""

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
from foretrace.rows.files import (
    PARQUET_MAGIC,
    TruncatedError,
    decode_row,
    is_json,
    list_rows,
    make_row,
    read_arrow,
    read_csv,
    read_parquet,
    read_unpacked,
    remove_bom,
    remove_packing,
)

MAX_HEAD = 256 << 10
"""Unpacked bytes of a file that recognition may see."""
MAX_NAMES = 500
"""Names in a folder that recognition may see."""
MAX_ROWS = 5
"""Rows that a source of rows looks at: a file may begin with a bad one."""
_MAX_RECORDS = 50
_MIN_RECORDS = 10
_DECODED = 16 << 10
"""Bytes of JSON lines behind which no record is decoded, but for the first ten: what tells a format comes early."""
_MAX_TABLE_ROWS = 3
"""Rows of a Parquet file that recognition may see: one of them may be large."""


class FileHead(msgspec.Struct, frozen=True):
    """What recognition sees of a file or folder."""

    path: Path
    start: bytes = b""
    """The first bytes of a file, unpacked, at most `MAX_HEAD`; fewer of JSON lines that are short."""
    records: tuple[dict[str, Any], ...] = ()
    """Of JSON lines: the first records that are whole objects, at most 50, or ten of long ones. Of Parquet and Arrow:
    the first 3 rows. Of a table (CSV): the first 50, of which the last may be cut. Of a JSON document that is a list of
    objects: the first of them, of which the last may be cut. Of any other document: none."""
    document: dict[str, Any] | None = None
    """A JSON document (or first line of more than the head) that is one object; values behind the cut are missing."""
    names: tuple[str, ...] = ()
    """Of a folder: the names in it, sorted, at most `MAX_NAMES`; folders end in `/`."""
    is_folder: bool = False

    @property
    def is_cut(self) -> bool:
        """Whether the file is longer than what is seen of it."""
        return len(self.start) >= MAX_HEAD

    @property
    def first(self) -> dict[str, Any]:
        """The first record, or the document; empty where there is neither."""
        return self.records[0] if self.records else self.document or {}

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The first rows, at most `MAX_ROWS`, that a file of rows gives; of a document that is cut, what is there of
        them."""
        # A document may stand on one line, as a record does: its name says which, as it does when rows are read.
        is_document = len(self.records) <= 1 and remove_packing(self.path.name).endswith(".json")
        if self.records and not is_document:
            return list(self.records[:MAX_ROWS])
        rows = list_rows(self.first) if self.first else []
        return [row for row in rows[:MAX_ROWS] if isinstance(row, dict)]


def read_head(path: Path) -> FileHead:
    """Read the beginning of a file, or the names in a folder.

    Raises:
        SourceError: it cannot be read.
    """
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
    if path.name.endswith(".arrow"):
        return FileHead(path, start, records=_keep_objects(read_arrow(path), _MAX_TABLE_ROWS))
    if remove_packing(path.name).endswith(".csv"):
        return FileHead(path, start, records=_keep_objects(read_csv(iter([start])), _MAX_RECORDS))
    text = start.lstrip()
    first, _, rest = text.partition(b"\n")
    if text.startswith(b"[") and not (rest.strip() and is_json(first)):
        values = read_partial(text)
        records = _keep_objects(map(make_row, values if isinstance(values, list) else []), _MAX_RECORDS)
        is_line = len(start) == MAX_HEAD and not rest and remove_packing(path.name).endswith((".jsonl", ".ndjson"))
        if is_line and any(
            "role" in record for record in records[:_MAX_TABLE_ROWS]
        ):  # the first of many lists of messages
            records = ({"messages": list(records)},)
        return FileHead(path, start, records=records)
    if text.startswith(b"{") and not _is_record(first):
        document = read_partial(text)
        if isinstance(document, dict):
            return FileHead(path, start, document=document)
    return FileHead(path, start, records=_read_lines(text))


def _keep_objects(rows: Iterator[Any], count: int) -> tuple[dict[str, Any], ...]:
    """The first rows, as far as they can be read."""
    return tuple(row for row in itertools.islice(rows, count) if isinstance(row, dict))


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself
        return False


def _take(chunks: Iterator[bytes]) -> bytes:
    pieces: list[bytes] = []
    size = 0
    with contextlib.suppress(TruncatedError):  # what came before the damage is seen; reading it all will say more
        for chunk in chunks:
            pieces.append(chunk)
            size += len(chunk)
            if size >= MAX_HEAD or (len(pieces) == 1 and _has_enough(chunk)):
                break
    return b"".join(pieces)[:MAX_HEAD]


def _has_enough(chunk: bytes) -> bool:
    """Whether the first bytes of a file hold records enough."""
    text = chunk.lstrip()
    return text.startswith((b"{", b"[")) and text.count(b"\n") > _MIN_RECORDS and _is_record(text.partition(b"\n")[0])


def _read_lines(text: bytes) -> tuple[dict[str, Any], ...]:
    """The records of whole lines: one that is cut is not JSON. A text in which most lines are none holds no records."""
    records: list[dict[str, Any]] = []
    at = lines = 0
    while at < len(text) and len(records) < _MAX_RECORDS and (at < _DECODED or len(records) < _MIN_RECORDS):
        end = text.find(b"\n", at)
        line = text[at : end if end >= 0 else None]
        lines += bool(line.strip())
        if isinstance(record := decode_row(line), dict):
            records.append(record)
        at = end + 1 if end >= 0 else len(text)
    return tuple(records) if 2 * len(records) >= lines else ()


def _is_record(line: bytes) -> bool:
    return isinstance(decode_row(line), dict)


def read_partial(text: bytes) -> Any:
    """The value of a JSON text that may be cut, with what is there of it; `None` for other text."""
    try:
        return jiter.from_json(text, partial_mode="trailing-strings", cache_mode="none")
    except (ValueError, RecursionError):
        return None
