"""The only reader and writer of traces on disk: immutable Parquet segments, listed by one manifest.

Segments are sharded by task, so that siblings lie together, and listed together with the cursor of the input
in one rename: a file that is not listed is garbage, and an interrupted writer leaves the folder as it was at
its last checkpoint.
"""

from __future__ import annotations

import hashlib
import heapq
import re
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Literal

import msgspec

from foretrace.core import tokens
from foretrace.core.errors import StoreError, UsageError
from foretrace.core.files import only_writer, partial_name, replace_file
from foretrace.core.trace import SCHEMA_VERSION, Trace, decode_trace, encode_trace, with_id

SHARDS = 16
"""Shards of a new folder, unless told otherwise."""
_MOST_SHARDS = 4096
_SEGMENT = re.compile(r"shard-\d{2,4}/\d{6,}\.parquet")
_READ_ROWS = 8
_ROW_GROUP_ROWS = 8

Added = Literal["new", "present", "conflict", "replaced"]


class Segment(msgspec.Struct, frozen=True):
    """One immutable Parquet file."""

    path: str
    rows: int


class Cursor(msgspec.Struct, frozen=True, kw_only=True):
    """How far one input was read."""

    label: str
    source: str
    rows: int
    """Rows that are accounted for: traces, drops and rows already there."""
    drops: dict[str, int] = {}
    done: bool = False
    limit: int | None = None
    """`--limit` of an input whose source looked at that many rows before the first was taken."""


class Manifest(msgspec.Struct, kw_only=True):
    """What a traces folder holds."""

    schema_version: int = SCHEMA_VERSION
    shards: int = SHARDS
    segments: list[Segment] = []
    inputs: dict[str, Cursor] = {}
    """Cursor of each input, by its fingerprint."""
    sources: dict[str, dict[str, str | None]] = {}
    """Revision, split and licence, by `source@revision/split`."""
    counts: dict[str, int] = {}
    drops: dict[str, int] = {}


class TraceStore:
    """A traces folder, read."""

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)
        self.manifest = _read_manifest(self.folder)

    @property
    def shards(self) -> list[int]:
        """Numbers of the shards that hold something, ascending."""
        return sorted({_shard_number(s.path) for s in self.manifest.segments})

    def read(self, shard: int | None = None) -> Iterator[Trace]:
        """Traces in the order of (task id, key), shard by shard: the order in which they came has no say."""
        for number in self.shards if shard is None else [shard]:
            streams = [self._stream(s) for s in self.manifest.segments if _shard_number(s.path) == number]
            for _, _, record, packed in heapq.merge(*streams):
                yield self._decode(record, packed)

    def get(self, key: str) -> Trace:
        """The trace of that key, or of the one key or id that begins with it.

        Raises:
            StoreError: none, or more than one.
        """
        rows: list[tuple[str, str, Segment]] = []
        for segment in self.manifest.segments:
            table = self._table(segment, ["key", "id"])
            rows += ((k, i, segment) for k, i in zip(*(c.to_pylist() for c in table.columns), strict=True))
        found = [r for r in rows if key in r[:2]] or [r for r in rows if r[0].startswith(key) or r[1].startswith(key)]
        if not found:
            raise StoreError(
                f"{self.folder}: no trace with key or id {key!r}; `foretrace show {self.folder}` lists them"
            )
        if len(found) > 1:
            raise StoreError(
                f"{self.folder}: {key!r} begins {len(found)} keys, e.g. {found[0][0]!r} and {found[1][0]!r}"
            )
        whole, _, segment = found[0]
        return next(self._decode(record, packed) for _, k, record, packed in self._stream(segment) if k == whole)

    def columns(self, *names: str) -> Any:
        """Some columns of all segments, without the records, as a pyarrow Table."""
        import pyarrow as pa

        tables = [self._table(s, list(names)) for s in self.manifest.segments]
        return pa.concat_tables(tables) if tables else _schema().empty_table().select(list(names))

    def fingerprint(self) -> str:
        """Digest of the names and bytes of all segments."""
        state = hashlib.blake2b(digest_size=16)
        for segment in sorted(self.manifest.segments, key=lambda s: s.path):
            state.update(segment.path.encode())
            with self._path(segment).open("rb") as file:
                state.update(hashlib.file_digest(file, "blake2b").digest())
        return state.hexdigest()

    def _path(self, segment: Segment) -> Path:
        path = self.folder / segment.path
        if not path.is_file():
            raise StoreError(f"{path}: a segment that the manifest lists is missing; import again into a new folder")
        return path

    def _table(self, segment: Segment, names: list[str]) -> Any:
        path = self._path(segment)
        with _reading(path):
            return _read_table(path, names)

    def _stream(self, segment: Segment) -> Iterator[tuple[str, str, bytes, bytes | None]]:
        """Task id, key, record and tokens of each row, in this order, in which a segment is sorted."""
        import pyarrow.parquet as pq

        path = self._path(segment)
        with _reading(path), pq.ParquetFile(path, memory_map=False, pre_buffer=False) as file:
            columns = ["task_id", "key", "record", "tokens"]
            for batch in file.iter_batches(batch_size=_READ_ROWS, columns=columns, use_threads=False):
                yield from zip(*(batch.column(c).to_pylist() for c in columns), strict=True)

    def _decode(self, record: bytes, packed: bytes | None) -> Trace:
        with _reading(self.folder):
            trace = decode_trace(record)
            return tokens.unpack(trace, packed) if packed else trace


class TraceWriter:
    """Adds traces to a folder: `with TraceWriter(folder) as writer`, then `add` and `checkpoint`."""

    def __init__(self, folder: Path | str, *, shards: int | None = None, replace: bool = False) -> None:
        if shards is not None and not 1 <= shards <= _MOST_SHARDS:
            raise UsageError(f"--shards {shards}: choose 1 to {_MOST_SHARDS}")
        self.folder = Path(folder)
        self._asked_shards = shards
        self._replace = replace
        self._stack = ExitStack()

    def __enter__(self) -> TraceWriter:
        _refuse_strangers(self.folder)
        self._stack.enter_context(only_writer(self.folder))
        try:
            self._open()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _open(self) -> None:
        if (self.folder / "manifest.json").exists():
            self.manifest = _read_manifest(self.folder)
            if self._asked_shards not in (None, self.manifest.shards):
                raise StoreError(f"{self.folder}: has {self.manifest.shards} shards; --shards is for a new folder")
        else:
            self.manifest = Manifest(shards=self._asked_shards or SHARDS)
        self._ids: dict[str, str] = {}
        if self.manifest.segments:
            table = TraceStore(self.folder).columns("key", "id")
            self._ids = dict(zip(table["key"].to_pylist(), table["id"].to_pylist(), strict=True))
        for pattern in (partial_name(Path("*")).name, f"shard-*/{partial_name(Path('*')).name}"):
            for left in self.folder.glob(pattern):  # by a writer that was killed: nobody else holds the lock
                left.unlink(missing_ok=True)
        self._waiting: dict[str, tuple[int, dict[str, Any]]] = {}
        self._replaced: set[str] = set()
        self.waiting_bytes = 0
        """Bytes of records added since the last checkpoint."""

    def add(self, trace: Trace) -> Added:
        """Take a trace, which is durable after the next `checkpoint`.

        Returns:
            `new`, `present` (same key, same id), or for a known key with other content `conflict` (not taken)
            or `replaced`.

        Raises:
            msgspec.ValidationError: it is no Trace; what cannot be read back is never written.
            UnicodeEncodeError, TypeError, ...: it cannot be encoded.
        """
        trace = with_id(trace)
        known = self._ids.get(trace.key)
        if known is not None and known == trace.id:
            return "present"
        if known is not None and not self._replace:
            return "conflict"
        bare, packed = tokens.pack(trace)
        record = encode_trace(bare)
        decode_trace(record)
        if known is not None and trace.key not in self._waiting:
            self._replaced.add(trace.key)
        shard = _shard(trace.task.id, self.manifest.shards)
        self._waiting[trace.key] = (shard, _row(trace, record, packed))
        self._ids[trace.key] = trace.id
        self.waiting_bytes += len(record)
        return "new" if known is None else "replaced"

    def checkpoint(self) -> None:
        """Seal what was added into segments and list them, with the manifest's other changes, in one rename."""
        gone = self._seal()
        self.manifest.counts["traces"] = sum(s.rows for s in self.manifest.segments)
        data = msgspec.json.format(msgspec.json.encode(self.manifest, order="deterministic"), indent=1)
        replace_file(self.folder / "manifest.json", data)
        for path in gone:
            (self.folder / path).unlink(missing_ok=True)
        self._waiting.clear()
        self._replaced.clear()
        self.waiting_bytes = 0

    def _seal(self) -> list[str]:
        """Write the waiting rows; returns the segments that they replace."""
        kept: list[Segment] = []
        rewritten: dict[int, list[dict[str, Any]]] = {}
        gone: list[str] = []
        for segment in self.manifest.segments:
            rows = self._without_replaced(segment)
            if rows is None:
                kept.append(segment)
            else:
                rewritten.setdefault(_shard_number(segment.path), []).extend(rows)
                gone.append(segment.path)
        for shard, row in self._waiting.values():
            rewritten.setdefault(shard, []).append(row)
        taken = [*kept, *(Segment(path, 0) for path in gone)]
        written: dict[str, list[dict[str, Any]]] = {}
        for shard in sorted(rewritten):
            rows = sorted(rewritten[shard], key=lambda r: (r["task_id"], r["key"]))
            number = 1 + max((_number(s.path) for s in taken if _shard_number(s.path) == shard), default=0)
            path = f"shard-{shard:02d}/{number:06d}.parquet"
            if rows:
                written[path] = rows
                kept.append(Segment(path, len(rows)))
        # Compressing and syncing leave the interpreter free: the segments are written side by side.
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(write_table, (self.folder / path for path in written), written.values()))
        self.manifest.segments = sorted(kept, key=lambda s: s.path)
        return gone

    def _without_replaced(self, segment: Segment) -> list[dict[str, Any]] | None:
        if not self._replaced:
            return None
        path = self.folder / segment.path
        with _reading(path):
            keys = _read_table(path, ["key"])["key"].to_pylist()
            if not self._replaced.intersection(keys):
                return None
            return [r for r in _read_table(path).to_pylist() if r["key"] not in self._replaced]


def write_table(path: Path, rows: list[dict[str, Any]]) -> None:
    """Write one segment, whole or not at all."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    options: dict[str, Any] = {
        "compression": "zstd",
        "compression_level": 3,
        "use_dictionary": ["group", "source", "licence", "model"],
        "write_statistics": ["key", "task_id"],
        "row_group_size": _ROW_GROUP_ROWS,
    }
    buffer = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(rows, schema=_schema()), buffer, **options)
    replace_file(path, memoryview(buffer.getvalue()))


def read_traces(folder: Path | str) -> Iterator[Trace]:
    """All traces of a folder, in the order of shard, task id and key."""
    return TraceStore(folder).read()


def write_traces(traces: Iterable[Trace], folder: Path | str, *, replace: bool = False) -> dict[Added, int]:
    """Add traces to a folder, which is made if absent; returns how many were new, present, conflicts, replaced."""
    counts: dict[Added, int] = {"new": 0, "present": 0, "conflict": 0, "replaced": 0}
    with TraceWriter(folder, replace=replace) as writer:
        for number, trace in enumerate(traces, 1):
            counts[writer.add(trace)] += 1
            if number % 512 == 0:
                writer.checkpoint()
        writer.checkpoint()
    return counts


def _row(trace: Trace, record: bytes, packed: bytes | None) -> dict[str, Any]:
    return {
        "key": trace.key,
        "id": trace.id,
        "task_id": trace.task.id,
        "group": trace.task.group,
        "source": trace.provenance.source,
        "licence": trace.provenance.licence,
        "model": trace.provenance.model,
        "success": trace.outcome.success,
        "n_messages": len(trace.messages),
        "n_steps": sum(m.role == "assistant" for m in trace.messages),
        "record": record,
        "tokens": packed,
    }


def _schema() -> Any:
    import pyarrow as pa

    text = [(name, pa.string()) for name in ("key", "id", "task_id", "group", "source", "licence", "model")]
    numbers = [("success", pa.bool_()), ("n_messages", pa.int32()), ("n_steps", pa.int32())]
    return pa.schema([*text, *numbers, ("record", pa.binary()), ("tokens", pa.binary())])


def _refuse_strangers(folder: Path) -> None:
    """A folder that holds something else is left as it is: not even a lock is put there."""
    if not folder.is_dir() or (folder / "manifest.json").exists():
        return
    strangers = sorted(p.name for p in folder.iterdir() if not p.name.startswith((".", "shard-")))
    if strangers:
        raise StoreError(f"{folder}: is no traces folder and holds {strangers[0]!r}; choose another")


@contextmanager
def _reading(path: Path) -> Generator[None]:
    """Turn what a damaged file breaks into one line that names it."""
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise StoreError(f"{path}: damaged, cannot read: {reason}; import again into a new folder") from error


def _read_table(path: Path, columns: list[str] | None = None) -> Any:
    # Not `pq.read_table`: that loads Arrow's dataset engine, 60 MB that nothing here needs.
    import pyarrow.parquet as pq

    with pq.ParquetFile(path, pre_buffer=False) as file:
        table = file.read(columns, use_threads=False)
        return table if columns is None else table.select(columns)


def _read_manifest(folder: Path) -> Manifest:
    path = folder / "manifest.json"
    if not folder.exists():
        raise StoreError(f"{folder}: no such folder; make it with `foretrace import SOURCE --out {folder}`")
    try:
        manifest = msgspec.json.decode(path.read_bytes(), type=Manifest)
    except FileNotFoundError:
        raise StoreError(f"{folder}: is no traces folder (it has no manifest.json)") from None
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise StoreError(f"{path}: cannot read: {error}") from error
    if manifest.schema_version != SCHEMA_VERSION:
        raise StoreError(f"{path}: schema version {manifest.schema_version}, this foretrace reads {SCHEMA_VERSION}")
    if strange := [s.path for s in manifest.segments if not _SEGMENT.fullmatch(s.path)]:
        raise StoreError(f"{path}: damaged: lists {strange[0]!r}, which is no segment")
    return manifest


def _shard(task_id: str, shards: int) -> int:
    return int.from_bytes(hashlib.blake2b(task_id.encode(), digest_size=8).digest(), "big") % shards


def _shard_number(path: str) -> int:
    return int(path.split("/")[0].removeprefix("shard-"))


def _number(path: str) -> int:
    return int(path.rsplit("/", 1)[1].split(".")[0])
