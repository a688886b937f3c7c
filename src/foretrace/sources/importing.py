"""Import rows and session files into a traces folder: each becomes a Trace or a counted Drop, or was already there."""

from __future__ import annotations

import functools
import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import AbstractContextManager, ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from foretrace.core.errors import Setting, SourceError, UsageError
from foretrace.core.files import make_own_name
from foretrace.core.places import write_place
from foretrace.core.progress import ProgressFunc, ignore_progress
from foretrace.core.segments import merge_segments
from foretrace.core.store import TraceWriter
from foretrace.engines.engine import Engine, Pool
from foretrace.engines.in_order import Job, Stage, run_in_order, run_stages
from foretrace.engines.processes import THIS_PROCESS
from foretrace.objectstores.folders import open_traces_for_writing
from foretrace.rows.base import Rows
from foretrace.sources.base import FileSource, Source, TwoPassSource
from foretrace.sources.converting import Cleaner, SharedSource
from foretrace.sources.inputs import FileImport, ImportRun, RowImport, count_in_flight_bytes
from foretrace.sources.report import ImportReport
from foretrace.sources.taking import Taker

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
