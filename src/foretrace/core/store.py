"""The only reader and writer of traces on disk: Parquet segments, listed by one manifest.

Traces are sharded by task, so that attempts at one task are stored together. A checkpoint writes segments, then lists
them and the input's cursor by renaming the manifest once. A segment that is not listed is garbage, so an interrupted
writer leaves the folder as it was at its last checkpoint. Generated traces are first written to a journal. If the run
itself cannot seal its journal into segments, the next writer does.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal

import msgspec

from foretrace.core import token_arrays
from foretrace.core.errors import Setting, StoreError, UsageError
from foretrace.core.files import make_partial_name, only_writer, replace_file, sync_folder
from foretrace.core.journal import JournalIndex, find_journals, group_keys, ungroup_keys
from foretrace.core.manifest import SHARDS, Manifest, read_manifest
from foretrace.core.places import make_local_path
from foretrace.core.redactions import read_redactions
from foretrace.core.segments import (
    Segment,
    SegmentRow,
    choose_shard,
    find_compaction,
    get_sort_key,
    make_row,
    make_schema,
    make_segment_path,
    merge_rows,
    merge_segments,
    read_keys,
    read_segment_rows,
    read_table,
    report_damage,
    write_segment,
)
from foretrace.core.trace import Trace, add_trace_id, decode_trace, encode_trace

MAX_SHARDS = 4096

Added = Literal["new", "present", "conflict", "replaced"]
RunMerges = Callable[[Sequence[tuple[list[Path], Path]]], Any]
"""Calls `merge_segments` with the arguments of each merge, in any order, and returns when all are done."""


class TraceStore:
    """Reads a traces folder."""

    def __init__(self, folder: Path | str) -> None:
        self.folder = make_local_path(folder)
        self.manifest = read_manifest(self.folder)

    @property
    def shards(self) -> list[int]:
        return sorted({segment.shard for segment in self.manifest.segments})

    def read(self, shard: int | None = None, tasks: Callable[[str], bool] | None = None) -> Iterator[Trace]:
        """Traces shard by shard (or of one), each in the order of (task id, key), of the tasks that `tasks` accepts."""
        for _, record, packed in self.read_records(shard, tasks):
            yield _unpack(self.folder, record, packed)

    def read_records(
        self, shard: int | None = None, tasks: Callable[[str], bool] | None = None
    ) -> Iterator[tuple[str, bytes, bytes | None]]:
        """Key, record and packed tokens of each trace, in the order of `read`, for callers that do the decoding."""
        columns = ["task_id", "key", "record", "tokens"]
        for number in self.shards if shard is None else [shard]:
            paths = (self.folder / s.path for s in self.manifest.segments if s.shard == number)
            for row in merge_rows(read_segment_rows(path, columns) for path in paths):
                if tasks is None or tasks(row["task_id"]):
                    yield row["key"], row["record"], row["tokens"]

    def get(self, key: str) -> Trace:
        """The trace with that key, or the only one whose key or id begins with it."""
        table = self.read_columns("key", "id")
        rows = [*zip(table["key"].to_pylist(), table["id"].to_pylist(), strict=True)]
        found = [r for r in rows if key in r] or [r for r in rows if r[0].startswith(key) or r[1].startswith(key)]
        if not found:
            raise StoreError(f"{self.folder}: no trace with key or id {key!r}; list the folder's traces to see theirs")
        if len(found) > 1:
            raise StoreError(
                f"{self.folder}: {key!r} begins {len(found)} keys, e.g. {found[0][0]!r} and {found[1][0]!r}"
            )
        whole = found[0][0]
        return self.get_many([whole])[whole]

    def get_many(self, keys: Collection[str]) -> dict[str, Trace]:
        """The traces with these keys, by key; only segments that contain one are read. Unknown keys are left out."""
        return _find_traces(self.folder, self.manifest.segments, {*keys})

    def read_columns(self, *names: str) -> Any:
        """Some columns of all segments, without the records, as a pyarrow Table."""
        import pyarrow as pa

        tables = [read_table(self.folder / segment.path, names) for segment in self.manifest.segments]
        return pa.concat_tables(tables) if tables else make_schema().empty_table().select(list(names))

    def compute_fingerprint(self) -> str:
        state = hashlib.blake2b(digest_size=16)
        for segment in sorted(self.manifest.segments, key=lambda s: s.path):
            state.update(segment.path.encode())
            path = self.folder / segment.path
            with report_damage(path), path.open("rb") as file:
                state.update(hashlib.file_digest(file, "blake2b").digest())
        return state.hexdigest()


def encode_row(trace: Trace) -> SegmentRow:
    """A trace that has its id as a row of a segment. What cannot be read back is an error (msgspec's,
    UnicodeEncodeError, TypeError, ...) and never written."""
    bare, packed = token_arrays.pack(trace)
    record = encode_trace(bare)
    decode_trace(record)
    return make_row(trace, record, packed)


def unpack_record(record: bytes, packed: bytes | None) -> Trace:
    trace = decode_trace(record)
    return token_arrays.unpack(trace, packed) if packed else trace


def _unpack(folder: Path, record: bytes, packed: bytes | None) -> Trace:
    with report_damage(folder):
        return unpack_record(record, packed)


def _find_traces(folder: Path, segments: Iterable[Segment], keys: set[str]) -> dict[str, Trace]:
    """The traces with these keys. Of segments without them only the keys are read, of those behind the last nothing."""
    found: dict[str, Trace] = {}
    for segment in segments:
        path = folder / segment.path
        if len(found) < len(keys) and not keys.isdisjoint(read_keys(path)):
            rows = (row for row in read_segment_rows(path, ["key", "record", "tokens"]) if row["key"] in keys)
            found |= {row["key"]: _unpack(folder, row["record"], row["tokens"]) for row in rows}
    return found


class TraceWriter:
    """Adds traces to a folder: `with TraceWriter(folder) as writer`, then `add` and `checkpoint`.

    Args:
        publish: Called after the manifest was written, before the segments that it no longer lists are removed.
    """

    def __init__(
        self,
        folder: Path | str,
        *,
        shards: int | None = None,
        replace: bool = False,
        publish: Callable[[], None] | None = None,
    ) -> None:
        if shards is not None and not 1 <= shards <= MAX_SHARDS:
            raise UsageError(Setting("shards", shards), f": choose 1 to {MAX_SHARDS}")
        self.folder = make_local_path(folder)
        self._asked_shards = shards
        self._replace = replace
        self._publish = publish
        self._stack = ExitStack()

    def __enter__(self) -> TraceWriter:
        _refuse_strangers(self.folder)
        self.made_folder = not self.folder.exists()
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
            self.manifest = read_manifest(self.folder)
            if self._asked_shards not in (None, self.manifest.shards):
                raise StoreError(
                    f"{self.folder}: has {self.manifest.shards} shards; ", Setting("shards"), " is for a new folder"
                )
        else:
            self.manifest = Manifest(shards=self._asked_shards or SHARDS)
        self._ids: dict[str, str] = {}
        if self.manifest.segments:
            table = TraceStore(self.folder).read_columns("key", "id")
            self._ids = dict(zip(table["key"].to_pylist(), table["id"].to_pylist(), strict=True))
        self._remove_garbage()
        self._waiting: dict[str, SegmentRow] = {}
        self._replaced: set[str] = set()
        self.waiting_bytes = 0
        """Bytes of the records added since the last checkpoint."""
        self.damaged: list[Path] = []
        """Damaged journals, under the names they are now kept as; what could be read of them is sealed."""
        for journal in find_journals(self.folder):  # left by runs that did not seal their own
            self.seal(journal)

    def _remove_garbage(self) -> None:
        """Remove what a killed writer left behind. This writer holds the lock, so nobody else is writing."""
        for pattern in (make_partial_name(Path("*")).name, f"shard-*/{make_partial_name(Path('*')).name}"):
            for path in self.folder.glob(pattern):
                path.unlink(missing_ok=True)
        listed = {self.folder / s.path for s in self.manifest.segments}
        for path in self.folder.glob("shard-*/*.parquet") if listed else ():
            if path not in listed:
                path.unlink(missing_ok=True)

    @property
    def left_out(self) -> dict[str, str]:
        return {key: reason for reason, keys in self.manifest.left_out.items() for key in ungroup_keys(keys)}

    def seal(self, journal: Path) -> None:
        """Move the traces of a journal into segments of its run, and remove the journal. One that is damaged before its
        end is kept under another name. After an interrupt, the next call adds nothing twice."""
        index = JournalIndex(journal)
        for shard in sorted({choose_shard(task, self.manifest.shards) for task in index.tasks}):
            for trace in index.read_traces(lambda task, shard=shard: choose_shard(task, self.manifest.shards) == shard):
                counts = Counter(self.manifest.redacted)
                if (known := self.get(trace.key, trace.task.id)) is not None:
                    counts.subtract(read_redactions(known))
                counts.update(read_redactions(trace))
                self.manifest.redacted = dict(sorted((+counts).items()))
                self.add(trace, replace=True)
            self.checkpoint(index.run)
        left_out = {k: v for k, v in self.left_out.items() if k not in index.stored} | index.left_out
        reasons = sorted(set(left_out.values()))
        self.manifest.left_out = {r: group_keys(k for k, v in left_out.items() if v == r) for r in reasons}
        # a writer may have been killed after it wrote a segment, and before it listed how many rows that has
        self.manifest.segments = [
            Segment(s.path, len(read_keys(self.folder / s.path)), s.run) if s.run == index.run else s
            for s in self.manifest.segments
        ]
        self.checkpoint()
        for place in (self.folder, *self.folder.glob("shard-*")):
            sync_folder(place)
        if index.damaged:
            self.damaged.append(_move_aside(journal))
        else:
            journal.unlink()

    def add(self, trace: Trace, *, replace: bool | None = None) -> Added:
        """Take a trace, which becomes durable at the next `checkpoint`.

        Args:
            replace: Whether to take it if its key is known with other content; `None` means the writer's setting.

        Returns:
            `new`, `present` (same key, same id), or for a known key with other content `conflict` (not taken) or
                `replaced`.
        """
        trace = add_trace_id(trace)
        return self._add(trace.key, trace.id, lambda: encode_row(trace), replace)

    def add_row(self, row: SegmentRow, *, replace: bool | None = None) -> Added:
        """Like `add`, for a trace that was encoded by `encode_row`, perhaps in another process."""
        return self._add(row["key"], row["id"], lambda: row, replace)

    def _add(self, key: str, trace_id: str, encode: Callable[[], SegmentRow], replace: bool | None) -> Added:
        known = self._ids.get(key)
        if known == trace_id:
            return "present"
        if known is not None and not (self._replace if replace is None else replace):
            return "conflict"
        row = encode()
        if known is not None and key not in self._waiting:
            self._replaced.add(key)
        self._waiting[key], self._ids[key] = row, trace_id
        self.waiting_bytes += len(row["record"])
        return "new" if known is None else "replaced"

    def get(self, key: str, task_id: str) -> Trace | None:
        """The trace with that key, added or stored; the shard of `task_id` is searched first."""
        if (row := self._waiting.get(key)) is not None:
            return unpack_record(row["record"], row["tokens"])
        shard = choose_shard(task_id, self.manifest.shards)
        segments = sorted(self.manifest.segments, key=lambda s: s.shard != shard) if key in self._ids else ()
        return _find_traces(self.folder, segments, {key}).get(key)

    def checkpoint(self, run: str = "") -> None:
        """Write what was added into segments and list them, along with the manifest's other changes, in one rename.
        `run` is that of generated traces, which has one segment per shard."""
        self._write_manifest(removed=self._write_segments(run))
        self._waiting.clear()
        self._replaced.clear()
        self.waiting_bytes = 0

    def compact(self, run: RunMerges | None = None) -> None:
        """Merge the small segments that checkpoints of imported traces leave behind, and list the merged ones in one
        rename. What is merged depends only on the segments, so this may be interrupted at any point and done again."""
        segments = self.manifest.segments
        jobs: list[tuple[Sequence[Segment], str]] = []
        for shard in sorted({segment.shard for segment in segments}):
            own = sorted((s for s in segments if s.shard == shard and not s.run), key=lambda s: s.number)
            if small := find_compaction(own):
                jobs.append((small, make_segment_path(shard, segments)))
        if not jobs:
            return
        # The names are unique to this process, since a worker process may outlive it by a moment.
        made = [make_partial_name(self.folder / f"{path}.{os.getpid()}") for _, path in jobs]
        merges = [
            ([self.folder / s.path for s in small], partial) for (small, _), partial in zip(jobs, made, strict=True)
        ]
        (run or _run_merges)(merges)
        for (_, path), partial in zip(jobs, made, strict=True):
            partial.replace(self.folder / path)
        merged = [Segment(path, sum(s.rows for s in small)) for small, path in jobs]
        removed = {s.path for small, _ in jobs for s in small}
        self.manifest.segments = [*(s for s in segments if s.path not in removed), *merged]
        self._write_manifest(removed)

    def remove_if_empty(self) -> None:
        """Remove the folder if this writer made it and nothing was added."""
        if self.made_folder:
            _remove_if_empty(self.folder)

    def count_sealed(self) -> int:
        """How many traces the folder lists on disk, without those added since the last checkpoint."""
        path = self.folder / "manifest.json"
        return sum(segment.rows for segment in read_manifest(self.folder).segments) if path.is_file() else 0

    def _write_manifest(self, removed: Iterable[str]) -> None:
        """Write the manifest, and remove the segments that it no longer lists."""
        self.manifest.segments = sorted(self.manifest.segments, key=lambda s: s.path)
        self.manifest.counts["traces"] = sum(s.rows for s in self.manifest.segments)
        data = msgspec.json.format(msgspec.json.encode(self.manifest, order="deterministic"), indent=1)
        replace_file(self.folder / "manifest.json", data)
        if self._publish is not None:
            self._publish()
        for path in removed:
            (self.folder / path).unlink(missing_ok=True)

    def _write_segments(self, run: str) -> list[str]:
        """Write the waiting rows, and return the segments that the new ones replace."""
        new: dict[tuple[int, str], list[SegmentRow]] = defaultdict(list)
        for row in self._waiting.values():
            new[choose_shard(row["task_id"], self.manifest.shards), run].append(row)
        old: dict[tuple[int, str], list[Segment]] = defaultdict(list)
        """Segments that are written anew, each with the number of rows that are kept."""
        overwritten: dict[tuple[int, str], str] = {}
        listed: list[Segment] = []
        for segment in self.manifest.segments:
            place = segment.shard, segment.run
            grows = bool(run) and segment.run == run and place in new
            if not grows and not self._replaced:
                listed.append(segment)
                continue
            keys = read_keys(self.folder / segment.path)
            kept = sum(key not in self._waiting for key in keys)
            if not grows and kept == len(keys):
                listed.append(segment)
                continue
            old[place].append(Segment(segment.path, kept))
            if grows:
                # Overwritten in place: the new file still has all the old rows, so a reader never misses any.
                overwritten[place] = segment.path
        removed = [
            segment.path for each in old.values() for segment in each if segment.path not in overwritten.values()
        ]
        taken = [*self.manifest.segments]
        writes: list[tuple[Path, Iterator[SegmentRow]]] = []
        for place in sorted({*new, *old}):
            if count := len(new[place]) + sum(segment.rows for segment in old[place]):
                segment = Segment(overwritten.get(place) or make_segment_path(place[0], taken), count, place[1])
                taken.append(segment)
                listed.append(segment)
                writes.append((self.folder / segment.path, self._merge(new[place], old[place])))
        # Compressing and syncing release the interpreter lock, so segments are written in parallel.
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda write: write_segment(*write), writes))
        self.manifest.segments = listed
        return removed

    def _merge(self, new: Iterable[SegmentRow], old: Iterable[Segment]) -> Iterator[SegmentRow]:
        streams = (read_segment_rows(self.folder / segment.path) for segment in old)
        left = ((row for row in stream if row["key"] not in self._waiting) for stream in streams)
        return merge_rows([sorted(new, key=get_sort_key), *left])


def remove_if_empty(folder: Path) -> None:
    """Remove a traces folder that lists no segments and contains nothing else; any other folder stays."""
    with contextlib.suppress(StoreError), only_writer(folder):
        _remove_if_empty(folder)


def _remove_if_empty(folder: Path) -> None:
    with contextlib.suppress(OSError, StoreError):
        if (folder / "manifest.json").is_file() and read_manifest(folder).segments:
            return
        empty = [path for path in folder.glob("shard-*") if not any(path.iterdir())]
        known = {folder / "manifest.json", folder / ".lock", *empty}
        if known.issuperset(folder.iterdir()):
            for path in empty:
                path.rmdir()
            (folder / "manifest.json").unlink(missing_ok=True)
            (folder / ".lock").unlink(missing_ok=True)
            folder.rmdir()


def read_trace(folder: Path | str, key: str) -> Trace:
    """One trace of a folder, by its key or id, or the start of either.

    Raises:
        StoreError: no trace matches, or more than one.
    """
    return TraceStore(folder).get(key)


def read_traces(folder: Path | str) -> Iterator[Trace]:
    """All traces of a folder, in the order of shard, task id and key."""
    return TraceStore(folder).read()


def write_traces(traces: Iterable[Trace], folder: Path | str, *, replace: bool = False) -> dict[Added, int]:
    """Add traces to a folder, which is created if absent; returns how many were new, present, conflicts and replaced.

    Raises:
        StoreError: a trace cannot be encoded, or the folder cannot be written. Up to 512 traces before it may be lost.
    """
    counts: dict[Added, int] = {"new": 0, "present": 0, "conflict": 0, "replaced": 0}
    with TraceWriter(folder, replace=replace) as writer:
        for number, trace in enumerate(traces, 1):
            try:
                counts[writer.add(trace)] += 1
            except (msgspec.MsgspecError, ValueError, TypeError, OverflowError, RecursionError) as error:
                raise StoreError(
                    f"{folder}: trace {trace.key!a} cannot be written ({error}); mend or leave out this trace "
                    "(text must be valid Unicode, without lone surrogates)"
                ) from error
            if number % 512 == 0:
                writer.checkpoint()
        writer.checkpoint()
        writer.compact()
    return counts


def _run_merges(merges: Sequence[tuple[list[Path], Path]]) -> None:
    with ThreadPoolExecutor(2) as pool:  # only two, since each holds rows of many segments in memory
        list(pool.map(lambda merge: merge_segments(*merge), merges))


def _move_aside(journal: Path) -> Path:
    names = (journal.with_name(f"{journal.name}.damaged{n or ''}") for n in itertools.count())
    return journal.rename(next(name for name in names if not name.exists()))


def _refuse_strangers(folder: Path) -> None:
    """Refuse a folder that contains something else, and leave it untouched: not even a lock is created there."""
    if folder.is_file():
        raise StoreError(f"{folder}: is a file; name a folder for the traces")
    if (folder / "manifest.json").is_file():
        read_manifest(folder)
        return
    if not folder.is_dir():
        return
    strangers = sorted(p.name for p in folder.iterdir() if not p.name.startswith((".", "shard-")))
    if strangers:
        raise StoreError(f"{folder}: is not a traces folder (it contains {strangers[0]!r}); choose another folder")
