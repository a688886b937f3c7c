"""Rows of local files: .jsonl, .ndjson, .json and .csv (also as .gz or .zst), and .parquet."""

from __future__ import annotations

import codecs
import contextlib
import csv
import gzip
import hashlib
import io
import itertools
import json
import os
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from foretrace.core.errors import SourceError, find_first_line
from foretrace.rows.base import Drop, RawRow, RowRef, UndecodedRow

SUFFIXES = (".jsonl", ".json", ".ndjson", ".csv", ".parquet", ".gz", ".zst")
PARQUET_MAGIC = b"PAR1"
_MAGIC = {b"\x1f\x8b": ".gz", b"\x28\xb5\x2f\xfd": ".zst", PARQUET_MAGIC: ".parquet"}
_LOST_BYTE = re.compile("[\udc80-\udcff]")
_NOT_A_NUMBER = re.compile(rb"NaN|Infinity")
MAX_LINE = 512 * 1024 * 1024
"""Bytes of the longest line that is read; a longer one is dropped without being held in memory."""
UNFINISHED_LINE = "unfinished_line"
"""Reason of the Drop for an incomplete last line: the file is still being written."""
TRUNCATED = "truncated_file"
"""Reason of the Drop for the rest of a file that ends too early or is damaged."""
DOCUMENT_LISTS = ("data", "problems", "simulations")
"""Keys under which a JSON document may hold the list of its rows; the last one is used by tau2-bench."""
_CHUNK = 1 << 20
_ZSTD_CHUNK = 1 << 13
"""Compressed bytes per step: zstd returns all of their content at once, and 4 bytes can hold 128 KiB."""

Value = dict[str, Any] | Drop


class FileRows:
    """Rows of one file."""

    def __init__(self, path: Path) -> None:
        if not path.is_file():
            raise SourceError(f"{path}: no such file")
        if not path.name.endswith(SUFFIXES):
            raise SourceError(f"{path}: cannot tell the format; name it with one of {', '.join(SUFFIXES)}")
        self.path = path
        self.name = path.name
        """Its base name, with as many of its folders as it takes to tell it from other files of the import."""
        self.split: str | None = None
        """The split that the user gave for the rows."""
        self.stem = remove_packing(path.name)
        """Name of the file without `.gz` or `.zst`."""
        if self.stem != path.name and self.stem.endswith(".parquet"):
            raise SourceError(f"{path}: a table that is packed as a whole cannot be read; unpack it")
        self.label = str(path)
        self._fingerprint: str | None = None
        with self._open() as file:
            _refuse_other_format(path, file.read(8))

    @property
    def fingerprint(self) -> str:
        """Name, size and digest of the bytes."""
        if self._fingerprint is None:
            with self._open() as file:
                sha = hashlib.file_digest(file, "blake2b").hexdigest()[:32]
            self._fingerprint = f"{self.path.name}:{self.path.stat().st_size}:{sha}"
        return self._fingerprint

    def read(self, start: int = 0) -> Iterator[RawRow]:
        """Rows from number `start`; a row that cannot be read is a Drop."""
        for at, value in self.read_undecoded(start):
            yield RawRow(at, decode_row(value) if isinstance(value, bytes) else value)

    def read_undecoded(self, start: int = 0) -> Iterator[UndecodedRow]:
        """Like `read`, but lines of JSON are not decoded yet."""
        try:
            for number, value in enumerate(self._read_values()):
                if number >= start:
                    yield RowRef(number, self.name, split=self.split), value
        except OSError as error:
            raise SourceError(f"{self.path}: cannot read: {error.strerror or error}") from error

    def count(self) -> int | None:
        """Number of rows, for progress, of a table or of plain JSON lines; `None` for other files."""
        if self.stem.endswith(".parquet"):
            import pyarrow as pa
            import pyarrow.parquet as pq

            with contextlib.suppress(pa.ArrowException, OSError):
                return pq.read_metadata(self.path).num_rows
        if not self.path.name.endswith((".jsonl", ".ndjson")):
            return None
        lines, last = 0, b"\n"
        with self._open() as file:
            while chunk := file.read(1 << 20):
                lines, last = lines + chunk.count(b"\n"), chunk[-1:]
        return lines + (last != b"\n")

    def _open(self) -> io.BufferedReader:
        try:
            return self.path.open("rb")
        except OSError as error:
            raise SourceError(f"{self.path}: cannot read: {error.strerror or error}") from error

    def _read_values(self) -> Iterator[bytes | Value]:
        if self.stem.endswith(".parquet"):
            yield from read_parquet(self.path)
            return
        with self._open() as raw:
            chunks = remove_bom(read_unpacked(self.path, raw))
            if self.stem.endswith(".json"):
                yield from _read_document(chunks)
            elif self.stem.endswith(".csv"):
                yield from read_csv(chunks)
            else:
                yield from _read_lines(chunks)


def remove_packing(name: str) -> str:
    """The name of a file without `.gz` or `.zst`."""
    return name.removesuffix(".gz").removesuffix(".zst")


def _refuse_other_format(path: Path, head: bytes) -> None:
    """Refuse a file whose first bytes and name disagree: it would give thousands of meaningless rows."""
    content = next((suffix for magic, suffix in _MAGIC.items() if head.startswith(magic)), None)
    name = next((suffix for suffix in _MAGIC.values() if path.name.endswith(suffix)), None)
    skippable = name == ".zst" and head[1:4] == b"\x2a\x4d\x18"
    if content != name and not skippable and (head or name == ".parquet"):
        looks = f"looks like a {content} file" if content else f"is not a {name} file"
        raise SourceError(f"{path}: {looks}, whatever its name says; rename it")


def read_records(path: Path) -> Iterator[Value]:
    """Records of a JSON lines file of any name, plain or compressed. A line that cannot be read is a Drop, with the
    reason `UNFINISHED_LINE` if it is an incomplete last line; a file that cannot is an OSError."""
    with path.open("rb") as raw:
        for line in _read_lines(remove_bom(read_unpacked(path, raw))):
            if isinstance(line, Drop):
                yield line
            elif line.strip():
                record = decode_row(line)
                if isinstance(record, Drop) and isinstance(line, _OpenLine):
                    record = Drop(UNFINISHED_LINE, record.detail)
                yield record


def read_document(path: Path, limit: int = MAX_LINE) -> Any:
    """The JSON value of a file of any name, plain or compressed; a Drop if it cannot be decoded.

    Args:
        limit: Most uncompressed bytes that are read; the value is held in memory as a whole.

    Raises:
        OSError: the file cannot be read.
    """
    data = read_bytes(path, limit)
    return data if isinstance(data, Drop) else _decode_or_drop(data)


def read_bytes(path: Path, limit: int = MAX_LINE) -> bytes | Drop:
    """The bytes of a file, unpacked; a Drop if there are more than `limit`, or if the packing is damaged."""
    with path.open("rb") as raw:
        return _join(remove_bom(read_unpacked(path, raw)), limit)


def _join(chunks: Iterator[bytes], limit: int | None = None) -> bytes | Drop:
    data = bytearray()
    try:
        for chunk in chunks:
            data += chunk
            if limit is not None and len(data) > limit:
                return _make_too_long_drop("document", limit)
    except TruncatedError as error:
        return Drop(TRUNCATED, str(error))
    return bytes(data)


def decode_row(line: bytes) -> Value:
    """One JSON line as a row; see `make_row`."""
    value = _decode_or_drop(line)
    if isinstance(value, Drop):
        return value if line.strip() else Drop("empty_line")
    return make_row(value)


def _decode_or_drop(data: bytes) -> Any:
    """A JSON value. NaN and Infinity, which Python's json module writes, become null."""
    try:
        return msgspec.json.decode(data)
    except RecursionError:
        return Drop("nested_too_deep", "JSON is nested too deeply")
    except UnicodeDecodeError as error:
        return Drop("not_utf8", str(error))
    except msgspec.DecodeError as error:
        if _NOT_A_NUMBER.search(data):
            with contextlib.suppress(ValueError, RecursionError):
                return json.loads(data, parse_constant=lambda _: None)
        return Drop("not_utf8" if "utf-8" in str(error).lower() else "bad_json", str(error))


def is_json(line: bytes) -> bool:
    """Whether a line is a complete JSON value, so that the file is JSON lines rather than one document."""
    row = decode_row(line)
    return isinstance(row, dict) or row.reason == "not_an_object"


def make_row(value: Any) -> Value:
    """A JSON value as a row: an object, or a bare list of objects, which are messages."""
    if isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
        return {"messages": value}
    return value if isinstance(value, dict) else Drop("not_an_object", describe_json(value))


def describe_json(value: Any) -> str:
    """A description of a JSON value that should be an object: `JSON null, not an object`."""
    names = {str: "text", list: "list", bool: str(value).lower(), type(None): "null"}
    return f"JSON {names.get(type(value), 'number')}, not an object"


class _OpenLine(bytes):
    """The last line of a file, without a line feed."""


def _read_lines(chunks: Iterator[bytes]) -> Iterator[bytes | Drop]:
    pieces: list[bytes] = []
    size = 0
    try:
        for chunk in chunks:
            *ended, rest = chunk.split(b"\n")
            for line in ended:
                pieces.append(line)
                yield b"".join(pieces) if size + len(line) <= MAX_LINE else _make_too_long_drop("line")
                pieces, size = [], 0
            size += len(rest)
            if size <= MAX_LINE:
                pieces.append(rest)
            else:
                pieces.clear()
    except TruncatedError as error:
        yield Drop(TRUNCATED, str(error))
        return
    if size > MAX_LINE:
        yield _make_too_long_drop("line")
    elif last := b"".join(pieces).strip():
        yield _OpenLine(last)


def _make_too_long_drop(what: str, limit: int | None = None) -> Drop:
    return Drop("line_too_long", f"a {what} of more than {limit or MAX_LINE:,} bytes")


def _read_document(chunks: Iterator[bytes]) -> Iterator[bytes | Value]:
    """Rows of one JSON document (see `list_rows`), or of JSON lines, which are often named .json, too."""
    data = _join(chunks)
    if isinstance(data, Drop):
        yield data
    elif data.strip():
        value = _decode_or_drop(data)
        first, _, rest = data.partition(b"\n")
        if not isinstance(value, Drop):
            yield from map(make_row, value if isinstance(value, list) else list_rows(value))
        elif rest.strip() and is_json(first):
            yield from _read_lines(iter([data]))
        else:
            yield value


def list_rows(document: Any) -> list[Any]:
    """The rows in one JSON value: under one of `DOCUMENT_LISTS`, or else the value itself."""
    if not isinstance(document, dict):
        return [document]
    for name in DOCUMENT_LISTS:
        if isinstance(rows := document.get(name), list):
            return rows
    return [document]


class TruncatedError(Exception):
    """A compressed stream ended too early or is damaged."""


def read_unpacked(path: Path, raw: BinaryIO, chunk: int = _CHUNK) -> Iterator[bytes]:
    """The bytes of a file in chunks of this size, decompressed if its name says that it is compressed."""
    if path.name.endswith(".gz"):
        return _gunzip(raw)
    if path.name.endswith(".zst"):
        return _unzstd(raw)
    chunk = min(chunk, os.fstat(raw.fileno()).st_size + 1)  # a larger buffer costs time with many small files
    return iter(lambda: raw.read(chunk), b"")


def remove_bom(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Remove a byte order mark, which editors on Windows write, and which is not JSON."""
    first = next(chunks, b"")
    if len(first) < 3:
        first += next(chunks, b"")
    yield first.removeprefix(codecs.BOM_UTF8)
    yield from chunks


def _gunzip(raw: BinaryIO) -> Iterator[bytes]:
    with gzip.GzipFile(fileobj=raw) as file:
        try:
            while chunk := file.read1(_CHUNK):
                yield chunk
        except EOFError:
            raise TruncatedError("gzip: the file was cut short") from None
        except (OSError, zlib.error) as error:
            raise TruncatedError(f"gzip: damaged: {error}") from None


def _unzstd(raw: BinaryIO) -> Iterator[bytes]:
    """Decompress frame by frame: the library's own reader does not notice a truncated file."""
    import zstandard

    def make_stream() -> Any:
        return zstandard.ZstdDecompressor(max_window_size=1 << 31).decompressobj()

    stream, begun = make_stream(), False
    while chunk := raw.read(_ZSTD_CHUNK):
        while chunk:
            begun = True
            try:
                out = stream.decompress(chunk)
            except zstandard.ZstdError as error:
                raise TruncatedError(f"zstd: damaged: {error}") from None
            if out:
                yield out
            chunk = b""
            if stream.eof:
                chunk, stream, begun = stream.unused_data, make_stream(), False
    if begun:
        raise TruncatedError("zstd: the file was cut short")


def read_parquet(path: Path) -> Iterator[Value]:
    """Rows of a Parquet file; only a few of them are held in memory. In a damaged row group, each unreadable row is a
    Drop; other groups are still read."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path, buffer_size=1 << 16, pre_buffer=False) as file:
            for group in range(file.num_row_groups):
                left: int = file.metadata.row_group(group).num_rows
                try:
                    for batch in file.iter_batches(batch_size=16, row_groups=[group]):
                        for row in _read_batch(batch):
                            left -= 1
                            yield row
                except (pa.ArrowException, OSError) as error:
                    yield from itertools.repeat(Drop("damaged_rows", f"parquet: {find_first_line(error)}"), left)
    except (pa.ArrowException, OSError) as error:
        yield Drop(TRUNCATED, f"parquet: {find_first_line(error)}")


def _read_batch(batch: Any) -> Iterator[Value]:
    try:
        yield from batch.to_pylist()
    except (ValueError, OverflowError) as error:  # text that is not UTF-8, a year beyond 9999, duplicate field names
        if len(batch) == 1:
            yield Drop("not_utf8" if isinstance(error, UnicodeDecodeError) else "bad_value", str(error))
            return
        for index in range(len(batch)):
            yield from _read_batch(batch.slice(index, 1))


def read_csv(chunks: Iterator[bytes]) -> Iterator[Value]:
    """Rows of a table with a header, as text; an empty cell is `None`."""
    csv.field_size_limit(MAX_LINE)
    unread: list[Drop] = []

    def decode() -> Iterator[str]:
        for line in _read_lines(chunks):
            if isinstance(line, Drop):
                unread.append(line)
            else:
                yield line.decode("utf-8", "surrogateescape") + "\n"

    table = csv.reader(decode())
    try:
        header = next(table, [])
        for cells in table:
            if len(cells) != len(header):
                yield Drop("bad_csv", f"{len(cells)} cells in a table of {len(header)} columns")
            elif _LOST_BYTE.search("".join(cells)):
                yield Drop("not_utf8", "bytes that are not UTF-8")
            else:
                yield {name: cell or None for name, cell in zip(header, cells, strict=True)}
    except csv.Error as error:
        yield Drop("bad_csv", str(error))
    yield from unread
