"""The gate on copies: no statement, and no two traces that are copies, stand in rows of two splits."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, combinations
from typing import NamedTuple

import numpy as np

from foretrace.core.trace import Trace
from foretrace.dataset.filters.base import ExaminedTrace
from foretrace.dataset.filters.copies import CopyFilter, find_trace_copies, read_statement
from foretrace.dataset.gate import MAX_NAMED_ROWS, Gate
from foretrace.dataset.settings import SPLITS


class TraceRows(NamedTuple):
    """What was read of a trace's rows."""

    splits: list[str]
    """In which they stand."""
    statement: bytes
    """The digest of its statement, 16 bytes; none where that is nothing to compare."""


class RowsExaminer:
    """Notes of each trace what was read of its rows."""

    name = "rows"

    def __init__(self, keys: Mapping[str, set[str]]) -> None:
        """
        Args:
            keys: Of the rows that were read back, by split.
        """
        self._keys = keys

    def examine(self, trace: Trace) -> TraceRows | None:
        """Its splits and its statement; `None` without rows."""
        splits = [split for split in SPLITS if trace.key in self._keys[split]]
        if not splits:
            return None
        statement = read_statement(trace)
        return TraceRows(splits, b"" if statement is None else statement.digest)


def make_copies_gate(kept_together: Sequence[Sequence[str]], examined: Sequence[ExaminedTrace]) -> Gate:
    """The verdict on what was written.

    Args:
        kept_together: Keys of traces that are copies, as it was decided, each cluster by itself.
        examined: By `CopyFilter`, since copies are looked for once more, and by `RowsExaminer`; in the order of keys.
    """
    decided = {key for cluster in kept_together for key in cluster}
    splits = {trace.key: rows.splits for trace, rows in _read_rows(examined) if trace.key in decided}
    known = ([(key, splits.get(key, [])) for key in cluster] for cluster in kept_together)
    parted: dict[tuple[str, ...], list[str]] = {}
    for cluster in chain(known, _find_clusters(examined)):
        by_split = {split: key for key, of_key in reversed(cluster) for split in of_key}
        if len(by_split) > 1:
            parted[tuple(key for key, _ in cluster)] = [by_split[split] for split in SPLITS if split in by_split]
    statements, shared = _find_shared_statements(examined)
    named = sorted({" and ".join(sorted(pair[:2])) for pair in (*parted.values(), *shared)})
    return Gate(
        name="copies_disjoint",
        verdict="fail" if parted or shared else "pass",
        figure={
            "clusters": len(kept_together),
            "parted": len(parted),
            "statements": statements,
            "shared": len(shared),
        },
        rows=tuple(named[:MAX_NAMED_ROWS]),
    )


def _read_rows(examined: Iterable[ExaminedTrace]) -> Iterator[tuple[ExaminedTrace, TraceRows]]:
    """The traces that have rows."""
    for trace in examined:
        if (found := trace.findings.get(RowsExaminer.name)) is not None:
            yield trace, TraceRows(*found)


def _find_clusters(examined: Sequence[ExaminedTrace]) -> Iterator[list[tuple[str, list[str]]]]:
    """Traces that are copies of one another: their keys, each with the splits of its rows."""
    for copies in find_trace_copies(trace.findings[CopyFilter.name] for trace in examined):
        for cluster in copies.iterate_clusters():
            traces = (examined[place] for place in cluster)
            yield [(trace.key, trace.findings.get(RowsExaminer.name, [[]])[0]) for trace in traces]


def _find_shared_statements(examined: Sequence[ExaminedTrace]) -> tuple[int, list[list[str]]]:
    """How many statements there are, and for each that two splits share the keys of two traces."""
    digests = {split: bytearray() for split in SPLITS}
    for _, rows in _read_rows(examined):
        for split in rows.splits:
            digests[split] += rows.statement
    # all have one length, so the zeros at the end that numpy leaves out of such texts tell nothing
    found = {split: np.unique(np.frombuffer(of_split, dtype="S16")) for split, of_split in digests.items()}
    count = len(np.unique(np.concatenate([*found.values()])))
    pairs = [*combinations(SPLITS, 2)]
    shared = [(digest, (a, b)) for a, b in pairs for digest in np.intersect1d(found[a], found[b])]
    keys: dict[tuple[bytes, str], str] = defaultdict(str)
    for trace, rows in _read_rows(examined) if shared else ():
        for split in rows.splits:
            keys[rows.statement.rstrip(b"\0"), split] = trace.key
    return count, [[keys[digest, split] for split in pair] for digest, pair in shared]
