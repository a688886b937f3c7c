"""Convert rows and session files to encoded traces, here or in worker processes; needs no traces folder."""

from __future__ import annotations

import functools
import pickle
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

from foretrace.core.errors import SourceError
from foretrace.core.internal_errors import INTERNAL_ERROR, contain_errors
from foretrace.core.segments import SegmentRow
from foretrace.core.store import encode_row
from foretrace.core.trace import Provenance, Trace, add_trace_id
from foretrace.rows.base import Drop, RowRef, UndecodedRow
from foretrace.rows.files import decode_row
from foretrace.sources.account import Account
from foretrace.sources.base import FileSource, RowError, Source
from foretrace.sources.conversation import read_time
from foretrace.sources.report import TraceCounts, count_trace

T = TypeVar("T")
BEFORE_SINCE = "before_since"
"""Reason of the Drop for a conversation that ended before the given date."""
_CLEANED_AT_ONCE, _MAX_GROUP = 4 << 20, 256
"""Most characters, and most traces, that are cleaned together."""


class ConvertedTrace(NamedTuple):
    """A trace, encoded as a row of a segment."""

    row: SegmentRow
    origin: Provenance
    counts: TraceCounts


PlacedResult = tuple[str, ConvertedTrace | Drop]
"""Where a row or conversation is, as shown in messages, and what it was converted to."""


class Reading(NamedTuple):
    """The contents of a batch of rows, or of a session file."""

    results: Iterable[PlacedResult]
    """Can be read once."""
    account: Account | None = None
    """Of a session file; complete once the results have been read."""


class Cleaner(Protocol):
    """Cleans every trace before it is written; it is sent to workers with the source."""

    def apply(self, traces: Sequence[Trace]) -> list[Trace | Drop]:
        """Each trace in the form that may be written, or why it may not be. Faster for many at once."""
        ...

    def redact_texts(self, texts: Sequence[str]) -> Sequence[str]:
        """Texts of the input in the form that a report, or names in an account, may show. Faster for many at once."""
        ...


class SharedSource:
    """A source that each worker reads once from a file: what it has learned from a scan may be large."""

    def __init__(self, source: Source | FileSource, since: float | None, cleaner: Cleaner | None = None) -> None:
        self.source = source
        self.since = since
        """Seconds since 1970; conversations that ended before are left out."""
        self.cleaner = cleaner
        """If `None`, traces are written as they are."""
        self.path: Path | None = None
        """The file that workers read; `None` if they cannot."""

    def share(self, path: Path) -> None:
        """Write it to a file for the workers, if it can be pickled."""
        try:
            data = pickle.dumps((self.source, self.since, self.cleaner))
        except Exception:  # a plugin may hold what cannot be pickled: an open file, a lambda
            return
        path.write_bytes(data)
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return _load_source, (str(self.path),)


@functools.lru_cache(maxsize=64)
def _load_source(path: str) -> SharedSource:
    return SharedSource(*pickle.loads(Path(path).read_bytes()))


def cut_batches(items: Iterable[T], weigh: Callable[[T], int], most: int, count: int) -> Iterator[tuple[list[T], int]]:
    """The items in batches of about `most` bytes and `count` items at most, each with its weight."""
    batch: list[T] = []
    weight = 0
    try:
        for item in items:
            own = weigh(item)
            if batch and (len(batch) >= count or weight + own > most):
                yield batch, weight
                batch, weight = [], 0
            batch.append(item)
            weight += own
    except Exception:  # do not lose what was read before
        if batch:
            yield batch, weight
        raise
    if batch:
        yield batch, weight


def collect(stream: Callable[..., Iterable[Reading]], *given: Any) -> list[Reading]:
    """What `stream` reads a few results at a time, as a whole: for a worker."""
    return [Reading(list(results), account) for results, account in stream(*given)]


def stream_rows(shared: SharedSource, label: str, rows: Iterable[UndecodedRow]) -> list[Reading]:
    """Convert rows; one that cannot be converted is a Drop."""
    places: deque[str] = deque()

    def convert() -> Iterator[Trace | Drop]:
        for at, value in rows:
            places.append(f"{at.file or label} row {at.row}")
            row = decode_row(value) if isinstance(value, bytes) else value
            yield row if isinstance(row, Drop) else _convert_row(shared.source, row, at)

    return [Reading((places.popleft(), result) for result in _finish(shared, convert()))]


def stream_files(shared: SharedSource, paths: Sequence[Path]) -> list[Reading]:
    """Read session files; one that cannot be read is a Drop."""

    def stream(path: Path) -> Reading:
        account = Account()
        results = _finish(shared, _read_conversations(shared, path, account))
        return Reading(((str(path), result) for result in results), account)

    return [stream(path) for path in paths]


def _convert_row(source: Any, row: dict[str, Any], at: RowRef) -> Trace | Drop:
    with contain_errors(source.name, f"{at.file or 'the Hub'} row {at.row}") as found:
        try:
            return source.to_trace(row, at)
        except RowError as error:
            return error.drop
        except UnicodeEncodeError as error:
            return _drop_half_pair(error)
    return Drop(INTERNAL_ERROR, found.text)


def _read_conversations(shared: SharedSource, path: Path, account: Account) -> Iterator[Trace | Drop]:
    source: Any = shared.source
    found = 0
    failed: Drop | None = None
    with contain_errors(source.name, path.name) as wrong:
        try:
            for result in source.read_traces(path, account):
                found += 1
                if isinstance(result, Trace) and not any(message.role == "assistant" for message in result.messages):
                    result = Drop(
                        "no_agent_turn", f"{result.key}: the agent says nothing in it; {account.describe_records()}"
                    )
                yield result
        except OSError as error:
            failed = Drop("unreadable_file", f"cannot read: {error.strerror or error}")
        except SourceError as error:
            failed = Drop("unreadable_file", str(error).removeprefix(f"{path}: "))
    if wrong.text:
        failed = Drop(INTERNAL_ERROR, wrong.text)
    if failed is not None:
        yield failed
    elif not found:
        yield Drop("no_agent_turn", f"no agent turn in {account.records:,} records ({account.describe_records()})")
    if shared.cleaner is not None:
        account.rename(shared.cleaner.redact_texts)


def _finish(shared: SharedSource, results: Iterable[Trace | Drop]) -> Iterator[ConvertedTrace | Drop]:
    """The same results, in the same order, cleaned and encoded."""
    if shared.cleaner is not None:
        results = _clean(shared.cleaner, results)
    for result in results:
        yield result if isinstance(result, Drop) else _encode(shared.source.name, result, shared.since)


def _clean(cleaner: Cleaner, results: Iterable[Trace | Drop]) -> Iterator[Trace | Drop]:
    def count_chars(result: Trace | Drop) -> int:
        return sum(len(message.content) for message in result.messages) if isinstance(result, Trace) else 0

    for group, _ in cut_batches(results, count_chars, _CLEANED_AT_ONCE, _MAX_GROUP):
        cleaned = iter(cleaner.apply([result for result in group if isinstance(result, Trace)]))
        group = [next(cleaned) if isinstance(result, Trace) else result for result in group]
        details = cleaner.redact_texts([each.detail if isinstance(each, Drop) else "" for each in group])
        for each, detail in zip(group, details, strict=True):
            yield Drop(each.reason, detail, each.remedy) if isinstance(each, Drop) else each


def _encode(source: str, trace: Any, since: float | None) -> ConvertedTrace | Drop:
    with contain_errors(source, str(getattr(trace, "key", "a result"))) as found:
        if not isinstance(trace, Trace):  # a plugin may return anything
            raise TypeError(f"{source} returned a {type(trace).__name__}")
        try:
            if since is not None and (end := _find_last_stamp(trace)) is not None and end < since:
                return Drop(BEFORE_SINCE)
            return ConvertedTrace(encode_row(add_trace_id(trace)), trace.provenance, count_trace(trace))
        except UnicodeEncodeError as error:
            return _drop_half_pair(error)
    return Drop(INTERNAL_ERROR, found.text)


def _drop_half_pair(error: UnicodeEncodeError) -> Drop:
    """A Drop for text with half of a surrogate pair (decoded by somebody else), which no file can hold."""
    return Drop("not_utf8", f"half of a surrogate pair: {ascii(error.object[error.start : error.end])[:60]}")


def _find_last_stamp(trace: Trace) -> float | None:
    """The latest timestamp of a trace, in seconds since 1970; `None` if it has none."""
    stamps = [message.started for message in trace.messages] + [trace.provenance.created_at]
    return max((at for stamp in stamps if stamp and (at := read_time(stamp)) is not None), default=None)
