"""Labels of all steps of a traces folder as rows, in the order of the store, whatever the number of workers."""

from __future__ import annotations

import csv
import io
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from foretrace.core.errors import UsageError
from foretrace.core.files import atomic_file, open_compressed

if TYPE_CHECKING:
    from foretrace.core.trace import Trace

Table = Any
"""A `pyarrow.Table`, which has no types."""
FORMATS = (".parquet", ".jsonl", ".csv")
_TEXTS = ("key", "id", "source", "raw_file")
_TABLE_ROWS = 8192
_BATCH_TRACES = 64


def label_rows(trace: Trace) -> list[dict[str, Any]]:
    """One row for each assistant message of the trace; `action` is null where it is no step."""
    from foretrace.actions.classify import label_trace

    origin = trace.provenance
    rows: list[dict[str, Any]] = []
    for label in label_trace(trace):
        message = trace.messages[label.index]
        rows.append(
            {
                "key": trace.key,
                "id": trace.id,
                "source": origin.source,
                "raw_file": origin.raw_file,
                "raw_row": origin.raw_row,
                "message_index": label.index,
                "raw_index": message.raw_index,
                "action": None if label.action is None else str(label.action),
                "rule": label.rule,
                "effect": str(label.effect),
                "state_version": label.state_version,
                "failed": label.failed,
                "tool": message.tool_calls[0].name if message.tool_calls else None,
                "n_calls": len(message.tool_calls),
                "task": trace.task.id,
                "group": trace.task.group,
            }
        )
    return rows


def label_tables(folder: Path, *, workers: int = 1, traces: Callable[[int], None] = lambda n: None) -> Iterator[Table]:
    """Labels of all traces, in tables of any size (the first is empty); `traces` gets the number of traces done."""
    from foretrace.core.store import TraceStore

    store = TraceStore(folder)
    done = 0
    yield _schema().empty_table()
    if workers <= 1 or len(store.shards) <= 1:
        stream = store.read()
        while batch := list(islice(stream, _BATCH_TRACES)):
            yield _table(batch)
            done += len(batch)
            traces(done)
        return
    for table, count in _by_shard(folder, store.shards, min(workers, len(store.shards))):
        done += count
        traces(done)
        yield table


def _by_shard(folder: Path, shards: list[int], workers: int) -> Iterator[tuple[Table, int]]:
    """Label shards in other processes; never more than a few wait for being written."""
    from concurrent.futures import Future

    from foretrace.engines.processes import worker_pool

    waiting: deque[Future[tuple[Table, int]]] = deque()
    with worker_pool(workers) as pool:
        assert pool is not None
        for shard in shards:
            waiting.append(pool.submit(_label_shard, folder, shard))
            if len(waiting) > workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def _label_shard(folder: Path, shard: int) -> tuple[Table, int]:
    import pyarrow as pa

    from foretrace.core.store import TraceStore

    stream = TraceStore(folder).read(shard)
    tables, count = [_schema().empty_table()], 0
    while batch := list(islice(stream, _BATCH_TRACES)):
        tables.append(_table(batch))
        count += len(batch)
    return pa.concat_tables(tables), count


def _table(traces: list[Trace]) -> Table:
    import pyarrow as pa

    return pa.Table.from_pylist([row for trace in traces for row in label_rows(trace)], schema=_schema())


def write_labels(tables: Iterable[Table], out: Path, watch: Callable[[Table], None]) -> None:
    """Write tables of labels as .parquet, .jsonl or .csv (the last two also .gz or .zst), whole or not at all."""
    kind = label_format(out)
    with atomic_file(out) as file:
        if kind == ".parquet":
            _write_parquet(tables, file, watch)
            return
        with open_compressed(file, out.name) as stream:
            for number, table in enumerate(tables):
                watch(table)
                stream.write(_lines(table) if kind == ".jsonl" else _csv(table, header=number == 0))


def label_format(out: Path) -> str:
    """The format that the name of the file asks for."""
    stem = out.name.removesuffix(".gz").removesuffix(".zst")
    kind = Path(stem).suffix
    if kind not in FORMATS or (kind == ".parquet" and stem != out.name):
        raise UsageError(f"{out}: name it .parquet, .jsonl or .csv (the last two also with .gz or .zst)")
    return kind


def _write_parquet(tables: Iterable[Table], file: BinaryIO, watch: Callable[[Table], None]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    empty = _schema().empty_table()
    with pq.ParquetWriter(file, _schema(), compression="zstd") as writer:
        waiting = empty
        for table in tables:
            watch(table)
            waiting = pa.concat_tables([waiting, table])
            # Row groups of one size: how the tables were cut leaves no mark in the file.
            while waiting.num_rows >= _TABLE_ROWS:
                writer.write_table(waiting.slice(0, _TABLE_ROWS).combine_chunks())
                waiting = waiting.slice(_TABLE_ROWS)
        if waiting.num_rows:
            writer.write_table(waiting.combine_chunks())


def _lines(table: Table) -> bytes:
    import msgspec

    return b"".join(msgspec.json.encode(row) + b"\n" for row in table.to_pylist())


def _csv(table: Table, *, header: bool) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    if header:
        writer.writerow(table.column_names)
    for row in table.to_pylist():
        writer.writerow("" if v is None else str(v).lower() if isinstance(v, bool) else v for v in row.values())
    return text.getvalue().encode("utf-8", "surrogatepass")


def _schema() -> Any:
    import pyarrow as pa

    text, number = pa.string(), pa.int32()
    return pa.schema(
        [
            *((name, text) for name in _TEXTS),
            ("raw_row", pa.int64()),
            ("message_index", number),
            ("raw_index", number),
            ("action", text),
            ("rule", text),
            ("effect", text),
            ("state_version", number),
            ("failed", pa.bool_()),
            ("tool", text),
            ("n_calls", number),
            ("task", text),
            ("group", text),
        ]
    )
