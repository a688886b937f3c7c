"""The inputs of an import: the unread part of each, split into jobs, and the cursor that says how far it was read.

Rows continue from their cursor. An unchanged session file is skipped, and one that has grown is read again.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec

from foretrace.core.digest import digest
from foretrace.core.errors import Setting, UsageError
from foretrace.core.progress import ProgressFunc
from foretrace.core.store import Cursor
from foretrace.engines.engine import Pool
from foretrace.engines.in_order import Job, Stage
from foretrace.rows.base import RawRow, Rows, UndecodedRow
from foretrace.sources.base import FileSource, Source, TwoPassSource
from foretrace.sources.converting import (
    FileReading,
    PlacedResult,
    SharedSource,
    convert_rows,
    read_files,
    stream_files,
    stream_rows,
)
from foretrace.sources.file_states import list_companions, list_states
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


class RowImport(msgspec.Struct, frozen=True, kw_only=True):
    """The import of one input of rows."""

    source: Source
    rows: Rows
    limit: int | None
    since: str
    """Date as the user gave it; part of the cursor's name, since it decides which rows are taken."""
    taker: Taker
    progress: ProgressFunc

    @property
    def name(self) -> str:
        """The key of this input's cursor. It includes the settings, as the traces depend on them."""
        since = f"since={self.since}" if self.since else ""
        return _join_name(self.source.name, self.rows.fingerprint, getattr(self.source, "settings", ""), since)

    @property
    def cursor(self) -> Cursor:
        """How far the input was read before."""
        limit = self.limit if isinstance(self.source, TwoPassSource) else None
        fresh = Cursor(label=self.rows.label.rsplit("/", 1)[-1], source=self.source.name, rows=0, limit=limit)
        return self.taker.writer.manifest.inputs.get(self.name, fresh)

    @property
    def is_finished(self) -> bool:
        """Whether no rows are left to read."""
        cursor = self.cursor
        return cursor.done or (self.limit is not None and cursor.rows >= self.limit)

    def read(self) -> Iterator[RawRow]:
        """All rows up to the limit, from the first one."""
        return itertools.islice(self.rows.read(), self.limit)

    def reset_cursor(self) -> None:
        """Start over: with `replace`, rows that were read before are read again."""
        self.taker.forget_drops(self.name)
        self.taker.writer.manifest.inputs.pop(self.name, None)

    def open_for_scan(self) -> bool:
        """Whether rows are left.

        Raises:
            UsageError: the earlier rows were judged by a scan with another limit.
        """
        cursor = self.cursor
        if self.is_finished:
            return False
        if cursor.limit != self.limit:
            was = " without " if cursor.limit is None else " with "
            raise UsageError(
                f"{self.rows.label}: was imported{was}",
                Setting("limit", cursor.limit),
                f", and {self.source.name} judges a row by all rows that are read: use the same ",
                Setting("limit"),
                " to go on, or import into a new folder",
            )
        return True

    def plan(self, shared: SharedSource) -> Stage[Iterable[PlacedResult]]:
        """The stage that converts and takes the remaining rows."""
        return Stage(() if self.is_finished else self._make_jobs(shared, self.cursor.rows), self._take)

    def report_progress(self, rows: Iterable[T], doing: str, start: int = 0) -> Iterator[T]:
        """The same rows; reports progress."""
        count = getattr(self.rows, "count", lambda: None)()
        total = min((number for number in (count, self.limit) if number is not None), default=None)
        text = f"{doing} {self.rows.label}"
        self.progress(text, start, total)
        for done, row in enumerate(rows, start + 1):
            yield row
            if done <= _REPORT_EVERY or done % _REPORT_EVERY == 0:  # if there are few rows, each may be large
                self.progress(text, done, total)

    def _take(self, results: Iterator[Iterable[PlacedResult]]) -> None:
        taker, cursor, own = self.taker, self.cursor, self.taker.get_source(self.source.name)
        known = cursor.rows if self.limit is None else min(cursor.rows, self.limit)
        taker.count_known(known, sum(cursor.drops.values()))
        if self.is_finished:
            own.files_done += 1
            return
        own.files += 1
        rows = self.report_progress(itertools.chain.from_iterable(results), "importing", cursor.rows)
        cursor = taker.take_input(self.name, cursor, rows)
        if self.limit is not None and cursor.rows >= self.limit:  # there may be more rows
            taker.note_cursor(self.name, msgspec.structs.replace(cursor, done=False))

    def _make_jobs(self, shared: SharedSource, start: int) -> Iterator[Job[Iterable[PlacedResult]]]:
        rows: Any = self.rows
        found: Iterator[UndecodedRow] = getattr(rows, "read_undecoded", rows.read)(start)
        left = itertools.islice(found, None if self.limit is None else max(0, self.limit - start))
        for batch in _cut_batches(left, _weigh_row, _ROWS_BYTES, _MAX_ROWS):
            given = (shared, rows.label, batch)
            weight = sum(map(_weigh_row, batch))
            yield Job(convert_rows, given, weight, lambda given=given: stream_rows(*given), not shared.is_shared)


def _weigh_row(row: UndecodedRow) -> int:
    """About how many bytes a row takes."""
    value = row[1]
    return len(value if isinstance(value, bytes) else repr(value))


class _FileState(NamedTuple):
    """The current state of a file, or of a folder that is read as one."""

    path: Path
    name: str
    """The key of its cursor, which stays the same when the file grows."""
    fingerprint: str
    size: int
    """Bytes, including companions."""


class FileImport(msgspec.Struct, frozen=True, kw_only=True):
    """The import of the files (or folders that are read as one) of a source."""

    source: FileSource
    paths: Sequence[Path]
    limit: int | None
    """Most conversations of all files together."""
    since: str
    """Date as the user gave it."""
    taker: Taker
    progress: ProgressFunc
    replace: bool

    def plan(self, shared: SharedSource) -> Stage[list[FileReading]]:
        """The stage that reads new and changed files and takes their conversations."""
        waiting: list[tuple[_FileState, Cursor]] = []
        done: list[Cursor] = []
        for state in map(self._look_at, self.paths):
            cursor = self._find_cursor(state)
            if cursor.done:
                done.append(cursor)
            else:
                waiting.append((state, cursor))
        batches = [*_cut_batches(waiting, lambda each: each[0].size, _FILES_BYTES, _MAX_FILES)]
        jobs = (_make_file_job(shared, [state for state, _ in batch]) for batch in batches)
        return Stage(jobs, lambda results: self._take(done, waiting, itertools.chain.from_iterable(results)))

    def _take(
        self, done: Sequence[Cursor], waiting: Sequence[tuple[_FileState, Cursor]], readings: Iterator[FileReading]
    ) -> None:
        taker, own, left = self.taker, self.taker.get_source(self.source.name), self.limit
        for cursor in done:
            known = cursor.rows if left is None else min(left, cursor.rows)
            own.files_done += 1
            taker.count_known(known, sum(cursor.drops.values()))
            left = None if left is None else left - known
        doing = f"importing {self.source.name}"
        self.progress(doing, 0, len(waiting))
        for number, ((state, cursor), reading) in enumerate(zip(waiting, readings, strict=False), 1):
            if left is not None and left <= 0:
                break
            own.files += 1
            taker.report.dropped_before += sum(cursor.drops.values())
            cursor = taker.take_input(
                state.name, cursor, reading.results, account=reading.account, limit=left, since=self.since
            )
            left = None if left is None else left - cursor.rows
            self.progress(doing, number, len(waiting))

    def _look_at(self, path: Path) -> _FileState:
        name = _join_name(
            self.source.name, "file", digest(str(path.resolve()), size=16), getattr(self.source, "settings", "")
        )
        states = list_states([path, *list_companions(self.source, path)])
        fingerprint = digest(*(f"{state.name}:{state.size}:{state.changed_ns}" for state in states))
        return _FileState(path, name, fingerprint, sum(state.size for state in states))

    def _find_cursor(self, state: _FileState) -> Cursor:
        """The cursor of the file if the file is unchanged, or else one at its beginning."""
        before = self.taker.writer.manifest.inputs.get(state.name)
        is_same = before is not None and before.fingerprint == state.fingerprint and before.since in ("", self.since)
        if before is not None and is_same and not self.replace:
            return before
        return Cursor(label=state.path.name, source=self.source.name, rows=0, fingerprint=state.fingerprint)


def _make_file_job(shared: SharedSource, states: Sequence[_FileState]) -> Job[list[FileReading]]:
    paths = [state.path for state in states]
    weight = max(1, sum(state.size for state in states))
    return Job(read_files, (shared, paths), weight, lambda: stream_files(shared, paths), not shared.is_shared)


def _join_name(*parts: str) -> str:
    return ":".join(part for part in parts if part)


def _cut_batches(items: Iterable[T], weigh: Callable[[T], int], most: int, count: int) -> Iterator[list[T]]:
    """The items in batches of about `most` bytes and `count` items at most."""
    batch: list[T] = []
    weight = 0
    try:
        for item in items:
            own = weigh(item)
            if batch and (len(batch) >= count or weight + own > most):
                yield batch
                batch, weight = [], 0
            batch.append(item)
            weight += own
    except Exception:  # do not lose what was read before
        if batch:
            yield batch
        raise
    if batch:
        yield batch


def count_in_flight_bytes(pool: Pool | None) -> int:
    """How many bytes may be read ahead of what was taken: for each worker, its current job and the next one."""
    return max(_IN_FLIGHT_BYTES, 2 * _ROWS_BYTES * (0 if pool is None else pool.workers))
