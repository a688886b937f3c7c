"""Traces with those that they started, in the order of the traces folder, without holding all of them."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

from foretrace.core.store import TraceStore
from foretrace.core.trace import Trace, decode_trace, encode_trace
from foretrace.exports.base import Family

MAX_DEPTH = 8
"""Generations below a trace that are written with it; those below begin anew, as traces without a parent in reach."""


class _Place(NamedTuple):
    """Where a trace lies in the file of children."""

    start: int
    length: int


def read_families(store: TraceStore) -> Iterator[Family]:
    """Each trace that none in the folder started, with all below it.

    Children lie anywhere in the folder: a first reading puts them into a file, which has no name and goes with the
    process. A trace whose parent is not in the folder, or is below itself, stands for itself.
    """
    with tempfile.TemporaryFile() as file:
        tree = _Tree(store, file)
        for trace in store.read():
            if not tree.has_parent(trace.key):
                yield tree.grow(trace)


class _Tree:
    def __init__(self, store: TraceStore, file: BinaryIO) -> None:
        self._file = file
        self._places: dict[str, _Place] = {}
        self._children: dict[str, list[str]] = {}
        self._parents: dict[str, str] = {}
        keys = set(store.read_columns("key")["key"].to_pylist())
        start = 0
        for trace in store.read():
            if trace.parent is None or trace.parent.key not in keys:
                continue
            length = file.write(encode_trace(trace))
            self._places[trace.key] = _Place(start, length)
            self._parents[trace.key] = trace.parent.key
            start += length
        for key in list(self._parents):
            if self._is_own_ancestor(key):
                del self._parents[key]
        cut = [key for key in self._parents if self._count_ancestors(key) % (MAX_DEPTH + 1) == 0]
        for key in cut:
            del self._parents[key]
        for key, parent in self._parents.items():
            self._children.setdefault(parent, []).append(key)

    def has_parent(self, key: str) -> bool:
        """Whether the trace is written with another one."""
        return key in self._parents

    def grow(self, trace: Trace) -> Family:
        """The trace with all below it, those of one parent by their keys."""
        return Family(trace, [self.grow(self._read(key)) for key in sorted(self._children.get(trace.key, ()))])

    def _is_own_ancestor(self, key: str) -> bool:
        seen = {key}
        at = self._parents.get(key)
        while at is not None and at not in seen:
            seen.add(at)
            at = self._parents.get(at)
        return at == key

    def _count_ancestors(self, key: str) -> int:
        count = 0
        while (above := self._parents.get(key)) is not None:
            count, key = count + 1, above
        return count

    def _read(self, key: str) -> Trace:
        start, length = self._places[key]
        self._file.seek(start)
        return decode_trace(self._file.read(length))
