"""The journal of a run: one zstd frame for each finished attempt, written to disk before the attempt is counted.

Any zstd tool reads `journal/<run>.jsonl.zst` as JSON lines. A last frame that a crash cut off is ignored.
"""

from __future__ import annotations

import contextlib
import mmap
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec
import zstandard

from foretrace.core.errors import StoreError
from foretrace.core.files import describe_write_error, sync_folder
from foretrace.core.trace import Trace

FOLDER = "journal"
SUFFIX = ".jsonl.zst"
_CHUNK = 1 << 14
_MAGIC = zstandard.FRAME_HEADER
"""The first bytes of every frame. The text in a frame cannot contain them: they are not valid UTF-8."""
T = TypeVar("T")


class JournalEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One finished attempt."""

    key: str
    trace: Trace | None = None
    """`None` if the attempt is not kept."""
    left_out: str = ""


_encoder = msgspec.json.Encoder(order="deterministic")
_decoder = msgspec.json.Decoder(JournalEntry)


def encode_entry(entry: JournalEntry) -> bytes:
    """The entry as one JSON line; raises unless it can be read again."""
    data = _encoder.encode(entry)
    _decoder.decode(data)
    return data + b"\n"


class Journal:
    """Appends to the journal of one run. The caller holds the folder's lock.

    Raises:
        StoreError: the journal cannot be opened.
    """

    def __init__(self, folder: Path, run: str) -> None:
        self.path = folder / FOLDER / f"{run}{SUFFIX}"
        try:
            self.path.parent.mkdir(exist_ok=True)
            self._file = self.path.open("ab", buffering=0)
        except OSError as error:
            raise StoreError(describe_write_error(self.path, error)) from error
        sync_folder(self.path.parent)
        self._whole = self._file.tell()
        self._compressor = zstandard.ZstdCompressor(level=3, write_checksum=True)

    def append(self, lines: Sequence[bytes]) -> None:
        """Write entries (see `encode_entry`) and return when all of them are durable. After an error (StoreError) none
        of them is left in the file, unless the disk fails at removing them too."""
        data = b"".join(self._compressor.compress(line) for line in lines)
        view = memoryview(data)
        try:
            while view:
                view = view[self._file.write(view) or 0 :]
            os.fsync(self._file.fileno())
        except OSError as error:
            with contextlib.suppress(OSError):  # what stays is read later, as an attempt or as damage
                self._file.truncate(self._whole)
            raise StoreError(describe_write_error(self.path, error)) from error
        self._whole = self._file.tell()

    def close(self) -> None:
        self._file.close()


class _EntryLocation(NamedTuple):
    """Where the journal holds the trace of a key."""

    task: str
    offset: int
    size: int


class _TaskHeader(msgspec.Struct):
    id: str


class _TraceHeader(msgspec.Struct):
    task: _TaskHeader


class _EntryHeader(msgspec.Struct):
    """The fields of an entry that are read without decoding the whole trace."""

    key: str
    trace: _TraceHeader | None = None
    left_out: str = ""


class JournalIndex:
    """An index of a journal, with keys and positions but no traces.

    Raises:
        StoreError: the file is not a journal.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.run = path.name.removesuffix(SUFFIX)
        self.left_out: dict[str, str] = {}
        self.damaged = False
        """Whether something before the last complete frame could not be read."""
        self._places: dict[str, _EntryLocation] = {}
        end = 0
        for offset, size, data in _read_frames(path):
            self.damaged = self.damaged or offset != end
            end = offset + size
            head = _decode_entry(path, data, _EntryHeader)
            self._places.pop(head.key, None)
            self.left_out.pop(head.key, None)
            if head.trace is None:
                self.left_out[head.key] = head.left_out
            else:
                self._places[head.key] = _EntryLocation(head.trace.task.id, offset, size)

    @property
    def stored(self) -> set[str]:
        return set(self._places)

    @property
    def tasks(self) -> set[str]:
        return {place.task for place in self._places.values()}

    def read_traces(self, wanted: Callable[[str], bool]) -> Iterator[Trace]:
        """Traces of the wanted tasks, in the order of their keys."""
        with self.path.open("rb") as file:
            for _, place in sorted(self._places.items()):
                if wanted(place.task):
                    file.seek(place.offset)
                    data = zstandard.ZstdDecompressor().decompressobj().decompress(file.read(place.size))
                    trace = _decode_entry(self.path, data, JournalEntry).trace
                    assert trace is not None
                    yield trace


def find_journals(folder: Path) -> list[Path]:
    """The journals in a folder: those of runs that are still going or were interrupted."""
    return sorted((folder / FOLDER).glob(f"*{SUFFIX}"))


def count_unsealed(folder: Path) -> int:
    """How many finished traces are still in a folder's journals, because their run was interrupted or is still
    going."""
    count = 0
    for path in find_journals(folder):
        with contextlib.suppress(FileNotFoundError):  # sealed just now
            count += len(JournalIndex(path).stored)
    return count


def _read_frames(path: Path) -> Iterator[tuple[int, int, bytes]]:
    """Offset, size and content of each complete frame; damaged or cut-off frames are skipped."""
    if not path.stat().st_size:
        return
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        at = data.find(_MAGIC)
        while at >= 0:
            stream = zstandard.ZstdDecompressor().decompressobj()
            parts: list[bytes] = []
            end = at
            with contextlib.suppress(zstandard.ZstdError):
                while not stream.eof and (chunk := data[end : end + _CHUNK]):
                    parts.append(stream.decompress(chunk))
                    end += len(chunk)
            if stream.eof:
                end -= len(stream.unused_data)
                yield at, end - at, b"".join(parts)
            at = data.find(_MAGIC, end if stream.eof else at + 1)


def _decode_entry(path: Path, data: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise StoreError(f"{path}: is not a journal of this foretrace ({error}); move it away to go on") from None


def group_keys(keys: Iterable[str]) -> dict[str, list[int]]:
    """Group keys by what precedes their last number: `p/3` and `p/7` become `{"p": [3, 7]}`, and a key without a number
    becomes `{key: []}`."""
    found: dict[str, list[int]] = {}
    for key in sorted(keys):
        head, _, tail = key.rpartition("/")
        numbered = head and tail.isascii() and tail.isdigit() and str(int(tail)) == tail
        numbers = found.setdefault(head if numbered else key, [])
        if numbered:
            numbers.append(int(tail))
    return {head: sorted(numbers) for head, numbers in found.items()}


def ungroup_keys(found: dict[str, list[int]]) -> Iterator[str]:
    """The keys that were given to `group_keys`."""
    for head, numbers in found.items():
        yield from (f"{head}/{number}" for number in numbers) if numbers else (head,)
