"""One segment of a traces folder: a Parquet file of traces, sorted by task id and key, written whole or not at all."""

from __future__ import annotations

import hashlib
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from foretrace.core.errors import StoreError
from foretrace.core.files import replace_file
from foretrace.core.trace import Trace

_ROW_GROUP_ROWS = 8


class Segment(msgspec.Struct, frozen=True, omit_defaults=True):
    """One Parquet file."""

    path: str
    rows: int
    run: str = ""
    """Of generated traces: the run they are of. What it adds later goes into the same segment, so that a run that was
    interrupted ends in the same files as one that was not."""


def write_table(path: Path, rows: list[dict[str, Any]]) -> None:
    """Write one segment, whole or not at all."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    options: dict[str, Any] = {
        "compression": "zstd",
        "compression_level": 3,
        "use_dictionary": ["group", "source", "license", "model"],
        "write_statistics": ["key", "task_id"],
        "row_group_size": _ROW_GROUP_ROWS,
    }
    buffer = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(rows, schema=schema()), buffer, **options)
    replace_file(path, memoryview(buffer.getvalue()))


def row_of(trace: Trace, record: bytes, packed: bytes | None) -> dict[str, Any]:
    """A trace as a row."""
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


def schema() -> Any:
    """The columns of a segment."""
    import pyarrow as pa

    text = [(name, pa.string()) for name in ("key", "id", "task_id", "group", "source", "license", "model")]
    numbers = [("success", pa.bool_()), ("n_messages", pa.int32()), ("n_steps", pa.int32())]
    return pa.schema([*text, *numbers, ("record", pa.binary()), ("tokens", pa.binary())])


@contextmanager
def reading(path: Path) -> Generator[None]:
    """Turn what a damaged file breaks into one line that names it."""
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise StoreError(f"{path}: damaged, cannot read: {reason}; import again into a new folder") from error


def read_table(path: Path, columns: list[str] | None = None) -> Any:
    """A segment, or some of its columns, as a pyarrow Table."""
    # Not `pq.read_table`: that loads Arrow's dataset engine, 60 MB that nothing here needs.
    import pyarrow.parquet as pq

    with pq.ParquetFile(path, pre_buffer=False) as file:
        table = file.read(columns, use_threads=False)
        return table if columns is None else table.select(columns)


def shard_of(task_id: str, shards: int) -> int:
    """Number of the shard of a task."""
    return int.from_bytes(hashlib.blake2b(task_id.encode(), digest_size=8).digest(), "big") % shards


def shard_number(path: str) -> int:
    """Number of the shard in which a segment lies."""
    return int(path.split("/")[0].removeprefix("shard-"))


def number_of(path: str) -> int:
    """Number of a segment in its shard."""
    return int(path.rsplit("/", 1)[1].split(".")[0])
