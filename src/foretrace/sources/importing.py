"""Import raw rows into a traces folder: every row ends as a Trace, a counted Drop, or was already there."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from foretrace.core.errors import ForetraceError, UsageError
from foretrace.core.store import Cursor, TraceWriter
from foretrace.core.trace import Trace
from foretrace.rows.base import CountedRows, Drop, RawRow, Rows
from foretrace.sources.base import LooksFirst, RowError, Source

CHECKPOINT_ROWS = 512
CHECKPOINT_BYTES = 24 << 20
"""Rows, or bytes of records, after which segments are sealed. Fixed: an import that was interrupted and
continued seals at the same rows as one that was not, and so ends in the same bytes."""
_EXAMPLES = 3

Progress = Callable[[str, int, int | None], None]
"""Called with what is going on, how many rows of an input are done, and how many it has (None: not known)."""


class ImportReport(msgspec.Struct, kw_only=True):
    """What an import did. `rows == traces + sum(drops) + already` always holds."""

    rows: int = 0
    traces: int = 0
    already: int = 0
    """Rows that an earlier run had taken or dropped, or whose trace is there under the same key and id."""
    dropped_before: int = 0
    """Those of them that an earlier run had dropped."""
    drops: Counter[str] = msgspec.field(default_factory=Counter[str])
    examples: dict[str, list[str]] = msgspec.field(default_factory=dict[str, list[str]])
    """Up to three rows of each reason: where they stand and what is wrong."""
    success: Counter[str] = msgspec.field(default_factory=Counter[str])
    """Outcomes of the new traces: `true`, `false`, `unknown`."""

    def check(self) -> None:
        """Refuse to report counts that do not add up."""
        if self.rows != self.traces + self.drops.total() + self.already:
            raise ForetraceError(
                f"counts do not add up: {self.rows} rows, {self.traces} traces, "
                f"{self.drops.total()} drops, {self.already} already there"
            )


def import_source(
    source: Source,
    inputs: Sequence[Rows],
    out: Path | str,
    *,
    limit: int | None = None,
    replace: bool = False,
    shards: int | None = None,
    progress: Progress | None = None,
) -> ImportReport:
    """Import rows of `inputs`, read as `source`, into the traces folder `out` (made if absent).

    An interrupted import continues: run it again with the same arguments.

    Args:
        limit: Rows of each input that are read at most.
        replace: Take a trace whose key is known with other content; otherwise it is a drop, `key_conflict`.
        shards: Number of shards of a new folder.
    """
    report = ImportReport()
    with TraceWriter(out, shards=shards, replace=replace) as writer:
        jobs = [_Import(source, r, limit, writer, report, progress or (lambda _, __, ___: None)) for r in inputs]
        if replace:
            for job in jobs:
                job.forget()
        if isinstance(source, LooksFirst) and any(job.open_for_looking() for job in jobs):
            source.look(itertools.chain.from_iterable(_watched(job.read(), job, "looking") for job in jobs))
        for job in jobs:
            _import_one(job)
        if not writer.manifest.inputs:
            writer.checkpoint()  # nothing to read makes a folder that holds nothing
    report.check()
    return report


class _Import(msgspec.Struct, frozen=True):
    source: Source
    rows: Rows
    limit: int | None
    writer: TraceWriter
    report: ImportReport
    progress: Progress

    @property
    def name(self) -> str:
        """What the cursor goes by: other settings read other traces from the same rows."""
        settings = getattr(self.source, "settings", "")
        return f"{self.source.name}:{self.rows.fingerprint}" + (f":{settings}" if settings else "")

    @property
    def cursor(self) -> Cursor:
        limit = self.limit if isinstance(self.source, LooksFirst) else None
        fresh = Cursor(label=self.rows.label.rsplit("/", 1)[-1], source=self.source.name, rows=0, limit=limit)
        return self.writer.manifest.inputs.get(self.name, fresh)

    @property
    def finished(self) -> bool:
        cursor = self.cursor
        return cursor.done or (self.limit is not None and cursor.rows >= self.limit)

    def read(self, start: int = 0) -> Iterator[RawRow]:
        count = None if self.limit is None else max(0, self.limit - start)
        return itertools.islice(self.rows.read(start), count)

    def forget(self) -> None:
        """Start over: `replace` is for rows that were read before."""
        manifest = self.writer.manifest
        if (cursor := manifest.inputs.pop(self.name, None)) is not None:
            manifest.drops = dict(Counter(manifest.drops) - Counter(cursor.drops))

    def open_for_looking(self) -> bool:
        """Whether rows are left.

        Raises:
            UsageError: the earlier rows were judged by a look at fewer rows, or more.
        """
        cursor = self.cursor
        if self.finished:
            return False
        if cursor.limit != self.limit:
            was = "without --limit" if cursor.limit is None else f"with --limit {cursor.limit}"
            raise UsageError(
                f"{self.rows.label}: was imported {was}, and {self.source.name} judges a row by all rows that are "
                "read: use the same --limit to go on, or import into a new folder"
            )
        return True


def _import_one(job: _Import) -> None:
    report, writer = job.report, job.writer
    cursor = job.cursor
    known = cursor.rows if job.limit is None else min(cursor.rows, job.limit)
    report.rows += known
    report.already += known
    report.dropped_before += min(known, sum(cursor.drops.values()))
    if job.finished:
        return
    pending: Counter[str] = Counter()
    seen = cursor.rows
    for raw in _watched(job.read(cursor.rows), job, "importing", cursor.rows):
        seen += 1
        report.rows += 1
        if (reason := _take(job, raw)) is not None:
            pending[reason] += 1
        full = writer.waiting_bytes >= CHECKPOINT_BYTES or (seen - cursor.rows) >= CHECKPOINT_ROWS
        if full:
            cursor = _checkpoint(job, cursor, seen, pending, done=False)
    _checkpoint(job, cursor, seen, pending, done=job.limit is None or seen < job.limit)


def _checkpoint(job: _Import, cursor: Cursor, seen: int, pending: Counter[str], *, done: bool) -> Cursor:
    manifest = job.writer.manifest
    drops = Counter(cursor.drops)
    drops.update(pending)
    manifest.drops = dict(Counter(manifest.drops) + pending)
    pending.clear()
    cursor = msgspec.structs.replace(cursor, rows=seen, drops=dict(sorted(drops.items())), done=done)
    manifest.inputs[job.name] = cursor
    manifest.counts["rows"] = sum(c.rows for c in manifest.inputs.values())
    job.writer.checkpoint()
    return cursor


def _take(job: _Import, raw: RawRow) -> str | None:
    """Add the row's trace; returns the reason when the row was dropped."""
    report = job.report
    result = raw.value if isinstance(raw.value, Drop) else _convert(job.source, raw)
    if isinstance(result, Trace):
        try:
            added = job.writer.add(result)
        except Exception as error:  # a plugin's Trace may hold anything: nothing that breaks was written
            result = Drop("not_encodable", f"{type(error).__name__}: {error}"[:300])
        else:
            if added == "present":
                report.already += 1
                return None
            if added != "conflict":
                report.traces += 1
                report.success[{True: "true", False: "false", None: "unknown"}[result.outcome.success]] += 1
                _note_source(job, result)
                return None
            result = Drop("key_conflict", f"{result.key} is there with other content (--replace takes it)")
    report.drops[result.reason] += 1
    examples = report.examples.setdefault(result.reason, [])
    if len(examples) < _EXAMPLES:
        examples.append(f"{raw.at.file or job.rows.label} row {raw.at.row}: {result.detail or result.reason}")
    return result.reason


def _convert(source: Source, raw: RawRow) -> Trace | Drop:
    assert not isinstance(raw.value, Drop)
    try:
        result = source.to_trace(raw.value, raw.at)
    except RowError as error:
        return error.drop
    except Exception as error:  # a row is never trusted: whatever it breaks costs that row alone
        return Drop("unexpected_row", f"{type(error).__name__}: {error}"[:300])
    # A plugin may return anything.
    if not isinstance(result, (Trace, Drop)):  # pyright: ignore[reportUnnecessaryIsInstance]
        return Drop("unexpected_row", f"{source.name} returned a {type(result).__name__}")
    return result


def _note_source(job: _Import, trace: Trace) -> None:
    origin = trace.provenance
    name = f"{origin.source}@{origin.revision or 'local'}/{origin.split or '-'}"
    job.writer.manifest.sources[name] = {
        "revision": origin.revision,
        "split": origin.split,
        "license": origin.license,
    }


def _watched(rows: Iterator[RawRow], job: _Import, doing: str, start: int = 0) -> Iterator[RawRow]:
    text, total = f"{doing} {job.rows.label}", _total(job)
    job.progress(text, start, total)
    for count, row in enumerate(rows, start + 1):
        yield row
        if count % 64 == 0:
            job.progress(text, count, total)


def _total(job: _Import) -> int | None:
    """How many rows will be read of an input, where that can be known without reading them."""
    count = job.rows.count() if isinstance(job.rows, CountedRows) else None
    return min((number for number in (count, job.limit) if number is not None), default=None)
