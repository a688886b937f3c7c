"""The gate on copies: no statement, and no two traces that are copies, stand in rows of two splits."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, combinations
from typing import NamedTuple

import numpy as np

from foretrace.dataset.filters.base import ExaminedTrace
from foretrace.dataset.filters.copies import CopyFilter, CopyFinding, find_trace_copies
from foretrace.dataset.gate import MAX_NAMED_ROWS, Gate
from foretrace.dataset.settings import SPLITS

_Keys = Mapping[str, Collection[str]]
"""Of the rows that were read back, by split."""


def make_copies_gate(kept_together: Sequence[Sequence[str]], keys: _Keys, examined: Sequence[ExaminedTrace]) -> Gate:
    """The verdict on what was written.

    Args:
        kept_together: Keys of traces that are copies, as it was decided, each cluster by itself.
        keys: Of the rows that were read back, by split.
        examined: By `CopyFilter`, also those that it left out: copies are looked for once more, in what it wrote. They
            are in the order of their keys.
    """
    parted: dict[tuple[str, ...], list[str]] = {}
    for cluster in chain(map(tuple, kept_together), _find_clusters(examined)):
        by_split = {split: key for split in SPLITS for key in reversed(cluster) if key in keys[split]}
        if len(by_split) > 1:
            parted[cluster] = [*by_split.values()]
    statements, shared = _find_shared_statements(keys, examined)
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


def _find_clusters(examined: Sequence[ExaminedTrace]) -> Iterator[tuple[str, ...]]:
    """Keys of traces that are copies of one another."""
    for copies in find_trace_copies(trace.findings[CopyFilter.name] for trace in examined):
        for cluster in copies.iterate_clusters():
            yield tuple(examined[place].key for place in cluster)


class _WrittenStatement(NamedTuple):
    """The statement of a trace that has rows."""

    digest: bytes
    key: str
    splits: list[str]
    """In which the rows stand."""


def _read_statements(keys: _Keys, examined: Iterable[ExaminedTrace]) -> Iterator[_WrittenStatement]:
    for trace in examined:
        splits = [split for split in SPLITS if trace.key in keys[split]]
        digest = CopyFinding(*trace.findings[CopyFilter.name]).statement_digest
        if splits and digest:
            yield _WrittenStatement(digest, trace.key, splits)


def _find_shared_statements(keys: _Keys, examined: Sequence[ExaminedTrace]) -> tuple[int, list[list[str]]]:
    """How many statements there are, and for each that two splits share the keys of two traces."""
    digests = {split: bytearray() for split in SPLITS}
    for statement in _read_statements(keys, examined):
        for split in statement.splits:
            digests[split] += statement.digest
    # all have one length, so the zeros at the end that numpy leaves out of such texts tell nothing
    found = {split: np.unique(np.frombuffer(of_split, dtype="S16")) for split, of_split in digests.items()}
    count = len(np.unique(np.concatenate([*found.values()])))
    pairs = [*combinations(SPLITS, 2)]
    shared = [(digest, (a, b)) for a, b in pairs for digest in np.intersect1d(found[a], found[b])]
    named: dict[tuple[bytes, str], str] = {}
    for statement in _read_statements(keys, examined) if shared else ():
        for split in statement.splits:
            named[statement.digest.rstrip(b"\0"), split] = statement.key
    return count, [[named[digest, split] for split in pair] for digest, pair in shared]
