"""The table of labels of a traces folder: one row per step, written as Parquet, JSON lines or CSV.

Rows are in the order of the traces with any engine.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from foretrace.actions.corrections import Corrections
from foretrace.actions.flags import flag_trace
from foretrace.actions.label_steps import collect_evidence
from foretrace.core.errors import UsageError
from foretrace.core.files import atomic_file, open_compressed
from foretrace.core.places import write_place
from foretrace.core.store import TraceStore
from foretrace.core.trace import Trace
from foretrace.engines.engine import Engine
from foretrace.engines.in_order import Job, run_in_order
from foretrace.engines.processes import THIS_PROCESS

Table = Any
"""A `pyarrow.Table`: pyarrow has no type stubs."""
FORMATS = (".parquet", ".jsonl", ".csv")
_COLUMNS = {
    "key id source raw_file": pa.string(),
    "raw_row": pa.int64(),
    "message_index raw_index": pa.int32(),
    "action rule": pa.string(),
    "confidence": pa.float64(),
    "corrected": pa.bool_(),
    "effect": pa.string(),
    "state_version": pa.int32(),
    "failed": pa.bool_(),
    "flags": pa.list_(pa.string()),
    "tool": pa.string(),
    "n_calls": pa.int32(),
    "task group": pa.string(),
}
_SCHEMA: Any = pa.schema([(name, kind) for names, kind in _COLUMNS.items() for name in names.split()])
_TABLE_ROWS = 8192
_BATCH_TRACES = 64


def make_label_rows(trace: Trace, corrections: Corrections | None = None) -> Iterator[dict[str, Any]]:
    """Make one row for each assistant message of the trace; `action` is `None` if it is not a step, `flags` are rules
    of `flags`."""
    origin = trace.provenance
    evidence = collect_evidence(trace)
    labels = [each.label for each in evidence]
    flags: dict[int, list[str]] = {}
    for flag in flag_trace(trace, evidence):
        flags.setdefault(flag.index, []).append(flag.rule)
    for label in labels if corrections is None else corrections.apply(trace, labels):
        message = trace.messages[label.index]
        yield {
            **msgspec.structs.asdict(label),
            "key": trace.key,
            "id": trace.id,
            "source": origin.source,
            "raw_file": origin.raw_file,
            "raw_row": origin.raw_row,
            "message_index": label.index,
            "raw_index": message.raw_index,
            "flags": flags.get(label.index, []),
            "tool": message.tool_calls[0].name if message.tool_calls else None,
            "n_calls": len(message.tool_calls),
            "task": trace.task.id,
            "group": trace.task.group,
        }


def make_label_tables(
    folder: Path,
    *,
    corrections: Corrections | None = None,
    engine: Engine = THIS_PROCESS,
    report_traces: Callable[[int], None] = lambda n: None,
) -> Iterator[Table]:
    """Label all traces of a folder, in tables of any size with the columns of `make_label_rows`; the first has no rows.
    `report_traces` is called with the number of traces labeled so far."""
    store = TraceStore(folder)
    done = 0
    yield _SCHEMA.empty_table()
    with engine.open_pool(useful=len(store.shards), reads=[folder / "manifest.json"]) as pool:
        shards = (Job(_label_shard, (folder, shard, corrections), 1) for shard in store.shards)
        batches = _label_batches(store.read(), corrections)
        results = batches if pool is None else run_in_order(pool, shards, pool.workers + 1)
        for table, count in results:
            done += count
            report_traces(done)
            yield table


def _label_batches(traces: Iterator[Trace], corrections: Corrections | None) -> Iterator[tuple[Table, int]]:
    while batch := list(islice(traces, _BATCH_TRACES)):
        rows = [row for trace in batch for row in make_label_rows(trace, corrections)]
        yield pa.Table.from_pylist(rows, schema=_SCHEMA), len(batch)


def _label_shard(folder: Path, shard: int, corrections: Corrections | None) -> tuple[Table, int]:
    batches = [*_label_batches(TraceStore(folder).read(shard), corrections)]
    return pa.concat_tables([table for table, _ in batches]), sum(count for _, count in batches)


def write_labels(tables: Iterable[Table], out: Path) -> None:
    """Write tables of labels as .parquet, .jsonl or .csv (the last two also .gz or .zst), whole or not at all."""
    kind = find_label_format(out)
    with atomic_file(out) as file:
        if kind == ".parquet":
            _write_parquet(tables, file)
            return
        with open_compressed(file, out.name) as stream:
            for number, table in enumerate(tables):
                stream.write(_format_jsonl(table) if kind == ".jsonl" else _format_csv(table, header=number == 0))


def find_label_format(out: Path) -> str:
    """The format that the name of a file asks for, `.parquet`, `.jsonl` or `.csv`; any other name is refused."""
    stem = out.name.removesuffix(".gz").removesuffix(".zst")
    kind = Path(stem).suffix
    if kind not in FORMATS or (kind == ".parquet" and stem != out.name):
        raise UsageError(f"{write_place(out)}: name it .parquet, .jsonl or .csv (the last two also with .gz or .zst)")
    return kind


def _write_parquet(tables: Iterable[Table], file: BinaryIO) -> None:
    with pq.ParquetWriter(file, _SCHEMA, compression="zstd") as writer:
        waiting = _SCHEMA.empty_table()
        for table in tables:
            waiting = pa.concat_tables([waiting, table])
            # Row groups have one size, so that the file is the same for any number of workers.
            while waiting.num_rows >= _TABLE_ROWS:
                writer.write_table(waiting.slice(0, _TABLE_ROWS).combine_chunks())
                waiting = waiting.slice(_TABLE_ROWS)
        if waiting.num_rows:
            writer.write_table(waiting.combine_chunks())


def _format_jsonl(table: Table) -> bytes:
    return b"".join(msgspec.json.encode(row) + b"\n" for row in table.to_pylist())


def _format_csv(table: Table, *, header: bool) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    if header:
        writer.writerow(table.column_names)
    writer.writerows(map(_format_cell, row.values()) for row in table.to_pylist())
    return text.getvalue().encode("utf-8", "surrogatepass")


def _format_cell(value: Any) -> Any:
    if isinstance(value, list):
        return " ".join(value)
    return "" if value is None else str(value).lower() if isinstance(value, bool) else value
