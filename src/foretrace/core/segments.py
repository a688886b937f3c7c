"""One segment of a traces folder: a Parquet file of traces, sorted by task id and key, written as a whole."""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from foretrace.core.errors import StoreError, find_first_line
from foretrace.core.files import atomic_file, make_own_name
from foretrace.core.trace import Trace

SegmentRow = dict[str, Any]
_ROW_GROUP_ROWS, _ROW_GROUP_BYTES = 64, 1 << 20
"""A row group ends after this many rows, or bytes of records. Smaller groups cost time, since each column of a group
takes as long as many rows. Larger ones cost memory, since readers hold a whole row group."""
_BATCH_ROWS = 8
MAX_UNMERGED = 6
"""This many segments of a shard are left unmerged: those of an import of up to 300 MB."""
_MERGED_AT_ONCE = 32


class Segment(msgspec.Struct, frozen=True, omit_defaults=True):
    """One Parquet file."""

    path: str
    rows: int
    run: str = ""
    """The run that generated the traces; empty for imported ones. What the run adds later goes into the same segment,
    so that an interrupted run ends with the same files as an uninterrupted one."""

    @property
    def shard(self) -> int:
        """Number of the shard that contains it."""
        return int(self.path.split("/")[0].removeprefix("shard-"))

    @property
    def number(self) -> int:
        """Its number in the shard."""
        return int(self.path.split("/")[1].removesuffix(".parquet"))


def make_segment_path(shard: int, others: Iterable[Segment]) -> str:
    number = 1 + max((segment.number for segment in others if segment.shard == shard), default=0)
    return f"shard-{shard:02d}/{number:06d}.parquet"


def write_segment(path: Path, rows: Iterable[SegmentRow]) -> None:
    """Write rows, sorted by `get_sort_key`, as one segment, completely or not at all. Only a few are held at a time."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    options: dict[str, Any] = {
        "compression": "zstd",
        "compression_level": 3,
        "use_dictionary": ["group", "source", "license", "model"],
        "write_statistics": ["key", "task_id"],
    }
    columns = make_schema()
    with atomic_file(path) as file, pq.ParquetWriter(file, columns, **options) as writer:
        for group in _cut_groups(rows):
            writer.write_table(pa.Table.from_pylist(group, schema=columns))


def _cut_groups(rows: Iterable[SegmentRow]) -> Iterator[list[SegmentRow]]:
    group: list[SegmentRow] = []
    size = 0
    for row in rows:
        group.append(row)
        size += len(row["record"]) + len(row["tokens"] or b"")
        if size >= _ROW_GROUP_BYTES or len(group) >= _ROW_GROUP_ROWS:
            yield group
            group, size = [], 0
    if group:
        yield group


def read_segment_rows(path: Path, columns: Sequence[str] | None = None) -> Iterator[SegmentRow]:
    """The rows of a segment in order; only a few are held in memory at a time."""
    import pyarrow.parquet as pq

    with report_damage(path), pq.ParquetFile(path, memory_map=False, pre_buffer=False) as file:
        for batch in file.iter_batches(batch_size=_BATCH_ROWS, columns=columns, use_threads=False):
            yield from batch.to_pylist()


def read_table(path: Path, columns: Sequence[str]) -> Any:
    """Some columns of a segment, as a pyarrow Table."""
    # Not `pq.read_table`, which loads Arrow's dataset engine: 60 MB that nothing here needs.
    import pyarrow.parquet as pq

    with report_damage(path), pq.ParquetFile(path, pre_buffer=False) as file:
        return file.read([*columns], use_threads=False).select([*columns])


def read_keys(path: Path) -> list[str]:
    return read_table(path, ["key"])["key"].to_pylist()


def get_sort_key(row: SegmentRow) -> tuple[str, str]:
    return row["task_id"], row["key"]


def merge_rows(streams: Iterable[Iterable[SegmentRow]]) -> Iterator[SegmentRow]:
    """The rows of several sorted streams, in sorted order."""
    return heapq.merge(*streams, key=get_sort_key)


def merge_segments(paths: Sequence[Path], out: Path) -> None:
    """Merge segments into the file `out`. Many are merged in several steps, since each one is held open. Two calls may
    run at the same time, since each writes under its own names."""
    steps: list[Path] = []
    while len(paths) > _MERGED_AT_ONCE:
        parts = [paths[first : first + _MERGED_AT_ONCE] for first in range(0, len(paths), _MERGED_AT_ONCE)]
        made = [make_own_name(out) for _ in parts]
        for part, path in zip(parts, made, strict=True):
            write_segment(path, merge_rows(map(read_segment_rows, part)))
        steps += made
        paths = made
    whole = make_own_name(out)
    write_segment(whole, merge_rows(map(read_segment_rows, paths)))
    whole.replace(out)
    for path in steps:
        path.unlink()


def find_compaction(segments: Sequence[Segment]) -> Sequence[Segment]:
    """The segments of one shard (given oldest first) that should be merged: the first that has no more rows than all
    later ones together, and everything after it; none if there are few segments.

    Of segments with 100, 8, 5 and 4 rows, the last three are merged. After that each segment has more rows than all
    later ones together, so a shard has few, and a small import does not rewrite the large ones.
    """
    if len(segments) <= MAX_UNMERGED:
        return []
    after = sum(s.rows for s in segments)
    for index, segment in enumerate(segments):
        after -= segment.rows
        if segment.rows <= after:
            return segments[index:]
    return []


def make_row(trace: Trace, record: bytes, packed: bytes | None) -> SegmentRow:
    """A trace as a row: its record as JSON, and its packed token arrays (see `core.token_arrays`)."""
    return {
        "key": trace.key,
        "id": trace.id,
        "task_id": trace.task.id,
        "group": trace.task.group,
        "source": trace.provenance.source,
        "license": trace.provenance.license,
        "model": trace.provenance.model,
        "success": trace.outcome.success,
        "n_messages": len(trace.messages),
        "n_steps": sum(m.role == "assistant" for m in trace.messages),
        "record": record,
        "tokens": packed,
    }


def make_schema() -> Any:
    import pyarrow as pa

    text = [(name, pa.string()) for name in ("key", "id", "task_id", "group", "source", "license", "model")]
    numbers = [("success", pa.bool_()), ("n_messages", pa.int32()), ("n_steps", pa.int32())]
    return pa.schema([*text, *numbers, ("record", pa.binary()), ("tokens", pa.binary())])


@contextmanager
def report_damage(path: Path) -> Generator[None]:
    """Turn any error from reading a damaged or missing file into a one-line `StoreError` that names the file."""
    import pyarrow as pa

    try:
        yield
    except FileNotFoundError:
        raise StoreError(
            f"{path}: a segment that the manifest lists is missing; run again if another process was importing into "
            "the folder, else import again into a new folder"
        ) from None
    except (pa.ArrowException, OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise StoreError(
            f"{path}: damaged, cannot read: {find_first_line(error)}; import again into a new folder"
        ) from error


def choose_shard(task_id: str, shards: int) -> int:
    return int.from_bytes(hashlib.blake2b(task_id.encode(), digest_size=8).digest(), "big") % shards
