"""Import session files: those that are as they were are skipped, those that have grown are read anew."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from foretrace.core.digest import digest
from foretrace.core.progress import ProgressFunc
from foretrace.core.store import Cursor
from foretrace.engines.in_order import Job, Stage
from foretrace.rows.base import Drop
from foretrace.sources.base import FileSource
from foretrace.sources.converting import (
    BEFORE_SINCE,
    ConvertedTrace,
    FileReading,
    SharedSource,
    read_files,
    stream_files,
)
from foretrace.sources.file_states import list_companions, list_states
from foretrace.sources.report import TraceCounts
from foretrace.sources.taking import Taker

_BATCH_BYTES, _BATCH_FILES = 1 << 20, 32
"""How much one job reads."""


class _Input(NamedTuple):
    """A file, or a folder that is read as one, as it is now."""

    path: Path
    name: str
    """The key of its cursor: the same when it has grown."""
    fingerprint: str
    size: int
    """Bytes, companions included."""


class FileImport(msgspec.Struct, frozen=True, kw_only=True):
    """The import of files, or folders that are read as one, of one source."""

    source: FileSource
    paths: Sequence[Path]
    limit: int | None
    """Conversations of all files together."""
    since: str
    """Date as the user gave it."""
    taker: Taker
    progress: ProgressFunc
    replace: bool

    def plan(self, shared: SharedSource) -> Stage[list[FileReading]]:
        """The files that are new or have changed, to be read and taken."""
        waiting: list[_Input] = []
        done: list[Cursor] = []
        for state in map(self._look_at, self.paths):
            cursor = self.taker.writer.manifest.inputs.get(state.name)
            if cursor is not None and self._is_done(cursor, state):
                done.append(cursor)
            else:
                waiting.append(state)
        batches = list(_cut_batches(waiting))
        jobs = (_make_job(shared, batch) for batch in batches)
        return Stage(jobs, lambda results: self._take(done, batches, results))

    def _take(
        self, before: Sequence[Cursor], batches: Sequence[list[_Input]], results: Iterator[list[FileReading]]
    ) -> None:
        report, own = self.taker.report, self.taker.get_source(self.source.name)
        left = self.limit
        for cursor in before:
            known = cursor.rows if left is None else min(left, cursor.rows)
            own.files_done += 1
            report.rows += known
            report.already_done += known
            report.dropped_before += min(known, sum(cursor.drops.values()))
            left = None if left is None else left - known
        doing, count = f"importing {self.source.name}", sum(map(len, batches))
        self.progress(doing, 0, count)
        readings = (
            pair for batch, read in zip(batches, results, strict=False) for pair in zip(batch, read, strict=True)
        )
        for done, (state, reading) in enumerate(readings, 1):
            if left is not None and left <= 0:
                break
            taken = self._take_file(state, reading, left)
            own.files += 1
            left = None if left is None else left - taken
            self.progress(doing, done, count)

    def _look_at(self, path: Path) -> _Input:
        real = path.resolve()
        settings = getattr(self.source, "settings", "")
        name = ":".join([self.source.name, "file", digest(str(real), size=16), *([settings] if settings else [])])
        states = list_states([path, *list_companions(self.source, path)])
        fingerprint = digest(*(f"{state.name}:{state.size}:{state.changed_ns}" for state in states))
        return _Input(path, name, fingerprint, sum(state.size for state in states))

    def _is_done(self, cursor: Cursor, state: _Input) -> bool:
        is_same = cursor.done and cursor.fingerprint == state.fingerprint and cursor.since in ("", self.since)
        return is_same and not self.replace

    def _find_start(self, state: _Input) -> Cursor:
        """Where to go on in a file that was read in part, and is as it was; else its beginning."""
        before = self.taker.writer.manifest.inputs.get(state.name)
        fresh = Cursor(label=state.path.name, source=self.source.name, rows=0, fingerprint=state.fingerprint)
        if before is None or before.done or self.replace or before.fingerprint != state.fingerprint:
            return fresh
        return before if before.since in ("", self.since) else fresh

    def _take_file(self, state: _Input, reading: FileReading, limit: int | None) -> int:
        """Take the conversations of one file; returns how many they are."""
        taker, report, own = self.taker, self.taker.report, self.taker.get_source(self.source.name)
        cursor = self._find_start(state)
        known, drops = cursor.rows, Counter(cursor.drops)
        report.dropped_before += drops.total()
        counts, seen, since, is_whole = TraceCounts(), 0, cursor.since, True
        for result in reading.results:
            if limit is not None and seen >= limit:
                is_whole = False
                break
            seen += 1
            if isinstance(result, Drop) and result.reason == BEFORE_SINCE:
                since = self.since
            if seen <= known:
                report.rows += 1
                report.already_done += 1
                if isinstance(result, ConvertedTrace):
                    counts.add(result.counts)
                    own.counts.add(result.counts)
                continue
            reason, before = taker.take(result, str(state.path), may_grow=True)
            if reason is not None:
                drops[reason] += 1
                own.drops[reason] += 1
            elif isinstance(result, ConvertedTrace):
                counts.add(result.counts)
                own.counts.replace(before, result.counts)
            if taker.is_full:
                cursor = msgspec.structs.replace(cursor, rows=seen, drops=dict(sorted(drops.items())), since=since)
                taker.note_cursor(state.name, cursor)
                taker.checkpoint()
        reading.account.check()
        own.account.add(reading.account)
        cursor = msgspec.structs.replace(
            cursor, rows=seen, drops=dict(sorted(drops.items())), since=since, done=is_whole,
            account=reading.account.to_dict(), counts=counts.to_dict(),
        )  # fmt: skip
        taker.note_cursor(state.name, cursor)
        return seen


def _make_job(shared: SharedSource, batch: Sequence[_Input]) -> Job[list[FileReading]]:
    paths = [state.path for state in batch]
    weight = max(1, sum(state.size for state in batch))
    return Job(read_files, (shared, paths), weight, lambda: stream_files(shared, paths), not shared.is_shared)


def _cut_batches(states: Sequence[_Input]) -> Iterator[list[_Input]]:
    batch: list[_Input] = []
    for state in states:
        if batch and (len(batch) >= _BATCH_FILES or sum(s.size for s in batch) + state.size > _BATCH_BYTES):
            yield batch
            batch = []
        batch.append(state)
    if batch:
        yield batch
