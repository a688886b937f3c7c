"""The gate on copies: no statement, and no two traces that are copies, stand in rows of two splits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

from foretrace.dataset.filters.copies import find_trace_copies, read_statement_digests
from foretrace.dataset.gate import MAX_NAMED_ROWS, Gate
from foretrace.dataset.settings import SPLITS


def make_copies_gate(
    kept_together: Sequence[Sequence[str]],
    keys: Mapping[str, set[str]],
    texts: Mapping[str, Sequence[Any]],
) -> Gate:
    """The verdict on what was written.

    Args:
        kept_together: Keys of traces that are copies, as it was decided, each cluster by itself.
        keys: Of the rows that were read back, by split.
        texts: What `CopyFilter.examine` returned for each trace, by key, also of those that this filter left out:
            copies are looked for once more, in what it wrote.
    """
    statements = _find_statements(keys, texts)
    parted: list[list[str]] = []
    for cluster in dict.fromkeys([*map(tuple, kept_together), *_find_clusters(texts)]):
        by_split = {split: key for split in SPLITS for key in cluster if key in keys[split]}
        parted += [[*by_split.values()]] if len(by_split) > 1 else []
    shared = [
        (statements[one][each], statements[other][each])
        for one, other in combinations(SPLITS, 2)
        for each in statements[one].keys() & statements[other].keys()
    ]
    named = sorted({" and ".join(sorted(pair[:2])) for pair in (*parted, *shared)})
    return Gate(
        name="copies_disjoint",
        verdict="fail" if parted or shared else "pass",
        figure={
            "clusters": len(kept_together),
            "parted": len(parted),
            "statements": len({digest for found in statements.values() for digest in found}),
            "shared": len(shared),
        },
        rows=tuple(named[:MAX_NAMED_ROWS]),
    )


def _find_statements(keys: Mapping[str, set[str]], texts: Mapping[str, Sequence[Any]]) -> dict[str, dict[bytes, str]]:
    """By split, the digests of the statements of the traces whose rows were read back, each with a key."""
    in_order = [(split, key) for split in SPLITS for key in sorted(keys[split] & texts.keys())]
    digests = read_statement_digests(texts[key] for _, key in in_order)
    found: dict[str, dict[bytes, str]] = {split: {} for split in SPLITS}
    for (split, key), digest in zip(in_order, digests, strict=True):
        if digest is not None:
            found[split].setdefault(digest, key)
    return found


def _find_clusters(texts: Mapping[str, Sequence[Any]]) -> list[tuple[str, ...]]:
    """Keys of traces that are copies of one another."""
    keys = sorted(texts)
    found = find_trace_copies(texts[key] for key in keys)
    return [tuple(keys[place] for place in cluster) for copies in found for cluster in copies.list_clusters()]
