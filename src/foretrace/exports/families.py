"""Traces with those that they started, in the order of the traces folder. Only traces with a parent are in memory."""

from __future__ import annotations

from collections.abc import Iterator

from foretrace.core.store import TraceStore
from foretrace.core.trace import Trace, decode_trace, encode_trace
from foretrace.exports.base import Family

MAX_DEPTH = 8
"""Generations below a trace that are written with it. Those below are written separately, as if without a parent."""


def read_families(store: TraceStore) -> Iterator[Family]:
    """Each trace that no other in the folder started, with all below it, sorted by key under each parent.

    A trace whose parent is not in the folder, or that is its own ancestor, counts as one of these.
    """
    keys = set(store.read_columns("key")["key"].to_pylist())
    encoded: dict[str, bytes] = {}
    parents: dict[str, str] = {}
    for trace in store.read():
        if trace.parent is not None and trace.parent.key in keys:
            encoded[trace.key], parents[trace.key] = encode_trace(trace), trace.parent.key
    for key in [key for key in parents if key in _list_ancestors(key, parents)]:
        del parents[key]
    depths = {key: len(_list_ancestors(key, parents)) for key in parents}
    children: dict[str, list[str]] = {}
    for key in sorted(parents):
        if depths[key] % (MAX_DEPTH + 1):
            children.setdefault(parents[key], []).append(key)
    with_parent = {key for below in children.values() for key in below}

    def grow(trace: Trace) -> Family:
        return Family(trace, [grow(decode_trace(encoded[key])) for key in children.get(trace.key, ())])

    for trace in store.read():
        if trace.key not in with_parent:
            yield grow(trace)


def _list_ancestors(key: str, parents: dict[str, str]) -> list[str]:
    """The traces above one, each once; in a cycle, including itself."""
    found: list[str] = []
    above = parents.get(key)
    while above is not None and above not in found:
        found.append(above)
        above = parents.get(above)
    return found
