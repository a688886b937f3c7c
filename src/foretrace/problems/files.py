"""Rows of a problem set: a local .jsonl, .json or .parquet file, plain or with .gz or .zst, or the Hub."""

from __future__ import annotations

import io
import itertools
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from foretrace.core.errors import ProblemError, UsageError
from foretrace.problems.base import Drop, Hub, Row

SUFFIXES = (".jsonl", ".json", ".ndjson", ".parquet")
PACKED = (".gz", ".zst")
MAX_LINE = 256 * 1024 * 1024
"""Bytes of one JSON line, or of one whole JSON document, unpacked."""
_CHUNK = 1 << 13
"""Bytes read at a time. Packed ones are unpacked all at once, and zstd can hold 128 KiB in four of them."""


class _DamagedError(Exception):
    """What is wrong with the bytes of a file."""


def rows(path: Path | None, hub: Hub | None) -> Iterator[Row | Drop]:
    """Rows of a file, of a dataset folder, or (without a path) of the Hub; a Drop for what is no row.

    Raises:
        ProblemError: it cannot be opened, or is damaged so that what follows cannot be read.
        UsageError: there is neither a path nor a place on the Hub.
    """
    if path is None and hub is None:
        raise UsageError("this problem set is read from a file: name it with --path FILE")
    if path is None or path.is_dir():
        yield from _stream(hub or Hub("", "train"), path)
        return
    if not path.is_file():
        raise ProblemError(f"{path}: no such file")
    stem = path.name
    for suffix in PACKED:
        stem = stem.removesuffix(suffix)
    if not stem.endswith(SUFFIXES):
        raise ProblemError(f"{path}: cannot tell the format; name it with one of {', '.join(SUFFIXES)} (.gz, .zst)")
    name = stem.rpartition(".")[0]
    number = 0
    try:
        for value in _values(path, stem):
            if not isinstance(value, bytes) or value.strip():  # blank lines count as rows, and are none
                yield _row(f"{path} row {number}", f"{name}/{number}", value)
            number += 1
    except _DamagedError as error:
        raise ProblemError(f"{path} row {number}: {error}") from None
    except OSError as error:
        raise ProblemError(f"{path}: cannot read: {error.strerror or error}") from None


def _row(at: str, name: str, value: Any) -> Row | Drop:
    if isinstance(value, bytes):
        try:
            value = msgspec.json.decode(value)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            return Drop(at, f"no JSON: {error}")
    if not isinstance(value, dict):
        return Drop(at, f"a JSON {type(value).__name__}, not an object")
    return Row(at, name, value)


def _values(path: Path, stem: str) -> Iterator[Any]:
    with path.open("rb") as raw:
        chunks = _unpacked(path, raw)
        if stem.endswith(".parquet"):
            yield from _parquet(b"".join(chunks) if path.name.endswith(PACKED) else path)
        elif stem.endswith(".json"):
            yield from _document(chunks)
        else:
            yield from _lines(chunks)


def _unpacked(path: Path, raw: BinaryIO) -> Iterator[bytes]:
    packed = iter(lambda: raw.read(_CHUNK), b"")
    if path.name.endswith(".gz"):
        yield from _stages(packed, lambda: zlib.decompressobj(31), zlib.error)
    elif path.name.endswith(".zst"):
        import zstandard

        yield from _stages(packed, lambda: zstandard.ZstdDecompressor().decompressobj(), zstandard.ZstdError)
    else:
        yield from packed


def _stages(packed: Iterator[bytes], fresh: Any, damage: type[Exception]) -> Iterator[bytes]:
    """Unpack member by member: a file that ends within one was cut short, which the libraries' readers may not say."""
    stream, begun = fresh(), False
    for part in packed:
        chunk = part
        while chunk:
            begun = True
            try:
                yield stream.decompress(chunk)
            except damage as error:
                raise _DamagedError(f"damaged: {error}") from None
            chunk = b""
            if stream.eof:
                chunk, stream, begun = stream.unused_data, fresh(), False
    if begun:
        raise _DamagedError("the file was cut short")


def _lines(chunks: Iterator[bytes]) -> Iterator[bytes]:
    rest = bytearray()
    first = True
    for chunk in itertools.chain(chunks, [b"\n"]):
        rest += chunk
        if b"\n" in chunk:
            *whole, last = rest.split(b"\n")
            rest = bytearray(last)
            for line in whole:
                yield bytes(line).removeprefix(b"\xef\xbb\xbf") if first else bytes(line)
                first = False
        if len(rest) > MAX_LINE:
            raise _DamagedError(f"a line of more than {MAX_LINE:,} bytes")


def _document(chunks: Iterator[bytes]) -> Iterator[Any]:
    """Rows of one JSON document: a list, or an object with a list under `data` or `problems`. JSON lines are often
    named .json too."""
    data = bytearray()
    for chunk in chunks:
        data += chunk
        if len(data) > MAX_LINE:
            raise _DamagedError(f"a document of more than {MAX_LINE:,} bytes; write it as .jsonl")
    text = bytes(data).removeprefix(b"\xef\xbb\xbf")
    try:
        value: Any = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        yield from _lines(iter([text]))
        return
    if isinstance(value, dict):
        value = next((value[key] for key in ("data", "problems") if isinstance(value.get(key), list)), [value])
    yield from value if isinstance(value, list) else [value]


def _parquet(source: Path | bytes) -> Iterator[Any]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(io.BytesIO(source) if isinstance(source, bytes) else source) as file:
            for batch in file.iter_batches(batch_size=64):
                yield from batch.to_pylist()
    except (pa.ArrowException, ValueError, OverflowError) as error:
        raise _DamagedError(f"parquet: {str(error).strip().splitlines()[0]}") from None


def _stream(hub: Hub, folder: Path | None) -> Iterator[Row | Drop]:
    from datasets import load_dataset
    from huggingface_hub import HfApi

    repo = str(folder) if folder is not None else hub.repo
    label = f"{repo} split {hub.split}"
    number = 0
    try:
        if folder is not None:  # a folder has configurations only where its card says so
            stream: Any = load_dataset(repo, split=hub.split, streaming=True)
        else:  # asked for first: `datasets` tries for half a minute before it says that there is no network
            commit = HfApi().dataset_info(repo, timeout=20).sha
            stream = load_dataset(repo, hub.config, split=hub.split, streaming=True, revision=commit)
        for value in stream:
            yield _row(f"{label} row {number}", f"{Path(repo).name}/{number}", value)
            number += 1
    except Exception as error:  # datasets raises many kinds: its own, httpx's, fsspec's, pyarrow's
        line = (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
        hint = "" if folder is not None else "; check the network, or name a local file with --path FILE"
        raise ProblemError(f"{label}: cannot be read at row {number}: {line}{hint}") from None
