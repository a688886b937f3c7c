"""Import rows and session files into a traces folder: each becomes a Trace or a counted Drop, or was already there.

The unread part of each input is split into jobs, and a cursor says how far it was read: rows continue from it, an
unchanged session file is skipped, and one that has grown is read again.
"""

from __future__ import annotations

import functools
import itertools
import pickle
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import AbstractContextManager, ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec

from foretrace.core.digest import digest
from foretrace.core.errors import Setting, SourceError, UsageError
from foretrace.core.files import make_own_name
from foretrace.core.manifest import Cursor
from foretrace.core.places import write_place
from foretrace.core.progress import ProgressFunc, ignore_progress
from foretrace.core.segments import merge_segments
from foretrace.core.store import TraceWriter
from foretrace.engines.engine import Engine, Pool
from foretrace.engines.in_order import Job, Stage, run_in_order, run_stages
from foretrace.engines.processes import THIS_PROCESS
from foretrace.objectstores.folders import open_traces_for_writing
from foretrace.rows.base import RawRow, Rows, UndecodedRow
from foretrace.sources.base import FileSource, Source, TwoPassSource
from foretrace.sources.converting import Cleaner, Reading, SharedSource, collect, cut_batches, stream_files, stream_rows
from foretrace.sources.recognizing import list_companions, list_states
from foretrace.sources.report import ImportReport
from foretrace.sources.taking import Taker

T = TypeVar("T")
_REPORT_EVERY = 64
"""Rows between two progress reports."""
_ROWS_BYTES, _MAX_ROWS = 2 << 20, 256
"""Most bytes and rows that one job converts."""
_FILES_BYTES, _MAX_FILES = 1 << 20, 32
"""Most bytes and session files that one job reads."""
_IN_FLIGHT_BYTES = 16 << 20
"""Minimum of the bytes (of rows or session files) that may be read ahead of what was taken."""
_MIN_POOL_BYTES = 6 << 20
"""Size of the input from which worker processes pay off."""


class SourceInputs(NamedTuple):
    """What is read as one source: rows, or files that hold conversations."""

    source: Source | FileSource
    rows: Sequence[Rows] = ()
    files: Sequence[Path] = ()


def import_rows(
    source: Source, inputs: Sequence[Rows], out: Path | str, *, limit: int | None = None, **options: Any
) -> ImportReport:
    """Import rows of `inputs`, read as `source`; see `import_inputs`."""
    return import_inputs([SourceInputs(source, rows=inputs)], out, limit=limit, **options)


def import_inputs(
    inputs: Sequence[SourceInputs],
    out: Path | str,
    *,
    limit: int | None = None,
    since: str | None = None,
    replace: bool = False,
    shards: int | None = None,
    engine: Engine = THIS_PROCESS,
    cleaner: Cleaner | None = None,
    progress: ProgressFunc | None = None,
) -> ImportReport:
    """Import rows and files into the traces folder `out` (created if absent), which may be in an object store.

    An interrupted import continues: run it again with the same arguments. The bytes do not depend on the engine; with
    more than one process, call it under `if __name__ == "__main__":`.

    Args:
        limit: Most rows of each input that are read, or most conversations of all files of a source.
        since: ISO 8601 date; conversations whose timestamps are all before it are left out.
        replace: Replace a trace whose key is known but whose content differs. Otherwise it is dropped (`key_conflict`),
            unless a conversation continues the stored one.
        shards: Number of shards of a new folder.
        engine: Where rows and files are converted.
        cleaner: Cleans each trace before it is written; with `None` they are written as they are.

    Raises:
        SourceError: an input cannot be read to its end; says what is kept, as `KeyboardInterrupt` does.
    """
    report = ImportReport()
    since_s = None if since is None else parse_date(since)
    watch = progress or ignore_progress
    with (
        open_traces_for_writing(out, watch) as (folder, publish),
        TraceWriter(folder, shards=shards, replace=replace, publish=publish) as writer,
    ):
        report.made_folder = writer.made_folder and publish is None
        taker = Taker(writer, report)
        run = ImportRun(taker, watch, limit, since or "", replace)
        try:
            with _open_pool(engine, inputs, limit, folder) as pool, ExitStack() as stack:

                def share(source: Any) -> SharedSource:
                    shared = SharedSource(source, since_s, cleaner)
                    if pool is not None:
                        path = make_own_name(folder / "source")  # workers cache what they have read by path
                        stack.callback(path.unlink, missing_ok=True)
                        shared.share(path)
                    return shared

                run_stages(pool, _plan(inputs, share, run), count_in_flight_bytes(pool))
                taker.finish()
                writer.compact(None if pool is None else functools.partial(_run_merges, pool))
        except SourceError as error:
            raise SourceError(
                *error.parts, f"; {_end_early(writer, out)}; mend it or leave it out, and run again"
            ) from None
        except KeyboardInterrupt:
            raise KeyboardInterrupt(f"interrupted; {_end_early(writer, out)}") from None
        except BaseException:
            writer.remove_if_empty()
            raise
    report.check()
    return report


def _end_early(writer: TraceWriter, out: Path | str) -> str:
    """Leave the folder as it was last sealed, or remove it if it is empty; returns a message that says which."""
    writer.remove_if_empty()
    sealed = writer.count_sealed()
    if not sealed:
        return "nothing was sealed before, and nothing is kept"
    return f"{sealed:,} traces are sealed in {write_place(out)}, and the same import goes on from there"


def _run_merges(pool: Executor, merges: Sequence[tuple[list[Path], Path]]) -> None:
    deque(run_in_order(pool, (Job(merge_segments, merge, 1) for merge in merges), len(merges)), maxlen=0)


def parse_date(text: str) -> float:
    """Seconds since 1970 of an ISO 8601 date or time; UTC if it has no zone.

    Raises:
        UsageError: it is not a date.
    """
    try:
        date = datetime.fromisoformat(text.strip())
    except ValueError:
        raise UsageError(Setting("since", text), ": write a date, e.g. ", Setting("since", "2026-01-31")) from None
    return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()


def _plan(inputs: Iterable[SourceInputs], share: Callable[[Any], SharedSource], run: ImportRun) -> Iterator[Stage[Any]]:
    """The stage of each input, made when its turn comes."""
    for group in inputs:
        source: Any = group.source
        rows = [RowImport(source, each, run) for each in group.rows]
        for each in rows if run.replace else ():
            each.reset_cursor()
        if isinstance(group.source, TwoPassSource) and any(map(RowImport.needs_scan, rows)):
            group.source.scan(itertools.chain.from_iterable(each.scan() for each in rows))
        shared = share(source)
        for each in rows:
            yield each.plan(shared)
        if group.files:
            yield FileImport(source, group.files, run).plan(shared)


def _open_pool(
    engine: Engine, inputs: Sequence[SourceInputs], limit: int | None, out: Path
) -> AbstractContextManager[Pool | None]:
    return engine.open_pool(
        useful=None if _weigh(inputs, limit) >= _MIN_POOL_BYTES else 1,
        writes=[out],
        reads=[path for group in inputs for path in group.files],
        small=all(type(group.source).__module__.startswith("foretrace.") for group in inputs),  # others may need pandas
        helps=True,
        kept="what was sealed so far is kept, the same import goes on from there",
    )


def _weigh(inputs: Iterable[SourceInputs], limit: int | None) -> int:
    """About how many bytes will be read; rows from the Hub count as enough for workers, unless few are wanted."""
    weight = 0
    for group in inputs:
        for each in [*group.rows, *group.files]:
            path = each if isinstance(each, Path) else getattr(each, "path", None)
            if path is None:
                weight += _MIN_POOL_BYTES if limit is None or limit > 256 else 0
            else:
                weight += sum(p.stat().st_size for p in ([path] if path.is_file() else path.rglob("*")) if p.is_file())
    return weight


class ImportRun(msgspec.Struct, frozen=True):
    """What all inputs of an import have in common."""

    taker: Taker
    progress: ProgressFunc
    limit: int | None
    """Most rows of each input that are read, or most conversations of all files of a source."""
    since: str
    """Date as the user gave it; part of the name of a cursor of rows, since it decides which rows are taken."""
    replace: bool


class RowImport(msgspec.Struct, frozen=True):
    """The import of one input of rows."""

    source: Source
    rows: Rows
    run: ImportRun

    @property
    def name(self) -> str:
        """The key of this input's cursor. It includes the settings, as the traces depend on them."""
        since = f"since={self.run.since}" if self.run.since else ""
        return _join_name(self.source.name, self.rows.fingerprint, getattr(self.source, "settings", ""), since)

    @property
    def cursor(self) -> Cursor:
        """How far the input was read before."""
        limit = self.run.limit if isinstance(self.source, TwoPassSource) else None
        fresh = Cursor(label=self.rows.label.rsplit("/", 1)[-1], source=self.source.name, rows=0, limit=limit)
        return self.run.taker.writer.manifest.inputs.get(self.name, fresh)

    @property
    def is_finished(self) -> bool:
        cursor, limit = self.cursor, self.run.limit
        return cursor.done or (limit is not None and cursor.rows >= limit)

    def reset_cursor(self) -> None:
        """Start over: with `replace`, rows that were read before are read again."""
        self.run.taker.forget_drops(self.name)
        self.run.taker.writer.manifest.inputs.pop(self.name, None)

    def needs_scan(self) -> bool:
        """Whether rows are left.

        Raises:
            UsageError: the earlier rows were judged by a scan with another limit.
        """
        if self.is_finished:
            return False
        if (limit := self.cursor.limit) != self.run.limit:
            raise UsageError(
                f"{self.rows.label}: was imported{' without ' if limit is None else ' with '}",
                Setting("limit", limit),
                f", and {self.source.name} judges a row by all rows that are read: use the same ",
                Setting("limit"),
                " to go on, or import into a new folder",
            )
        return True

    def scan(self) -> Iterator[RawRow]:
        """All rows up to the limit, from the first one."""
        return self._report(itertools.islice(self.rows.read(), self.run.limit), "looking")

    def plan(self, shared: SharedSource) -> Stage[list[Reading]]:
        """The stage that converts and takes the remaining rows."""
        return Stage(() if self.is_finished else self._make_jobs(shared, self.cursor.rows), self._take)

    def _make_jobs(self, shared: SharedSource, start: int) -> Iterator[Job[list[Reading]]]:
        rows, limit = self.rows, self.run.limit
        found: Iterator[UndecodedRow] = getattr(rows, "read_undecoded", rows.read)(start)
        left = itertools.islice(found, None if limit is None else max(0, limit - start))
        for batch, weight in cut_batches(left, _weigh_row, _ROWS_BYTES, _MAX_ROWS):
            yield _make_job(weight, stream_rows, shared, rows.label, batch)

    def _take(self, readings: Iterator[list[Reading]]) -> None:
        taker, cursor, limit = self.run.taker, self.cursor, self.run.limit
        own = taker.get_source(self.source.name)
        known = cursor.rows if limit is None else min(cursor.rows, limit)
        taker.count_known(known, sum(cursor.drops.values()))
        if self.is_finished:
            own.files_done += 1
            return
        own.files += 1
        results = (result for reading in itertools.chain.from_iterable(readings) for result in reading.results)
        rows = self._report(results, "importing", cursor.rows)
        cursor = taker.take_input(self.name, cursor, rows)
        if limit is not None and cursor.rows >= limit:  # there may be more rows
            taker.note_cursor(self.name, msgspec.structs.replace(cursor, done=False))

    def _report(self, rows: Iterable[T], doing: str, start: int = 0) -> Iterator[T]:
        progress, text = self.run.progress, f"{doing} {self.rows.label}"
        known = (getattr(self.rows, "count", lambda: None)(), self.run.limit)
        total = min((number for number in known if number is not None), default=None)
        progress(text, start, total)
        for done, row in enumerate(rows, start + 1):
            yield row
            if done <= _REPORT_EVERY or done % _REPORT_EVERY == 0:  # if there are few rows, each may be large
                progress(text, done, total)


def _weigh_row(row: UndecodedRow) -> int:
    value = row[1]
    if isinstance(value, bytes):
        return len(value)
    try:
        return len(pickle.dumps(value))
    except Exception:  # a plugin's row may hold what cannot be pickled
        return len(repr(value))


class _FileState(NamedTuple):
    """The current state of a file, or of a folder that is read as one."""

    path: Path
    name: str
    """The key of its cursor, which stays the same when the file grows."""
    cursor: Cursor
    """How far it was read if it has not changed, or else one at its beginning."""
    size: int
    """Bytes, including companions."""


class FileImport(msgspec.Struct, frozen=True):
    """The import of the files (or folders that are read as one) of a source."""

    source: FileSource
    paths: Sequence[Path]
    run: ImportRun

    def plan(self, shared: SharedSource) -> Stage[list[Reading]]:
        """The stage that reads new and changed files and takes their conversations."""
        states = [*map(self._look_at, self.paths)]
        waiting = [state for state in states if not state.cursor.done]
        batches = cut_batches(waiting, lambda state: state.size, _FILES_BYTES, _MAX_FILES)
        jobs = (_make_job(weight, stream_files, shared, [each.path for each in batch]) for batch, weight in batches)
        return Stage(jobs, lambda results: self._take(states, itertools.chain.from_iterable(results)))

    def _look_at(self, path: Path) -> _FileState:
        run, settings = self.run, getattr(self.source, "settings", "")
        name = _join_name(self.source.name, "file", digest(str(path.resolve()), size=16), settings)
        states = list_states([path, *list_companions(self.source, path)])
        fingerprint = digest(*(f"{state.name}:{state.size}:{state.changed_ns}" for state in states))
        cursor = run.taker.writer.manifest.inputs.get(name)
        if run.replace or cursor is None or cursor.fingerprint != fingerprint or cursor.since not in ("", run.since):
            cursor = Cursor(label=path.name, source=self.source.name, rows=0, fingerprint=fingerprint)
        return _FileState(path, name, cursor, sum(state.size for state in states))

    def _take(self, states: Sequence[_FileState], readings: Iterator[Reading]) -> None:
        run, own, left = self.run, self.run.taker.get_source(self.source.name), self.run.limit
        for cursor in (state.cursor for state in states if state.cursor.done):
            known = cursor.rows if left is None else min(left, cursor.rows)
            own.files_done += 1
            run.taker.count_known(known, sum(cursor.drops.values()))
            left = None if left is None else left - known
        waiting = [state for state in states if not state.cursor.done]
        doing = f"importing {self.source.name}"
        run.progress(doing, 0, len(waiting))
        for number, (state, reading) in enumerate(zip(waiting, readings, strict=False), 1):
            if left is not None and left <= 0:
                break
            own.files += 1
            run.taker.report.dropped_before += sum(state.cursor.drops.values())
            cursor = run.taker.take_input(
                state.name, state.cursor, reading.results, account=reading.account, limit=left, since=run.since
            )
            left = None if left is None else left - cursor.rows
            run.progress(doing, number, len(waiting))


def _make_job(weight: int, stream: Callable[..., Any], shared: SharedSource, *given: Any) -> Job[list[Reading]]:
    given = (shared, *given)
    return Job(collect, (stream, *given), max(1, weight), lambda: stream(*given), shared.path is None)


def _join_name(*parts: str) -> str:
    return ":".join(part for part in parts if part)


def count_in_flight_bytes(pool: Pool | None) -> int:
    """How many bytes may be read ahead of what was taken: for each worker, its current job and the next one."""
    return max(_IN_FLIGHT_BYTES, 2 * _ROWS_BYTES * (0 if pool is None else pool.workers))
