"""The gate on copies: no statement, and no two traces that are copies, stand in rows of two splits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

from foretrace.dataset.gate import MAX_NAMED_ROWS, Gate
from foretrace.dataset.settings import SPLITS


def make_copies_gate(
    kept_together: Sequence[Sequence[str]], keys: Mapping[str, set[str]], statements: Mapping[str, Mapping[bytes, str]]
) -> Gate:
    """The verdict on what was written.

    Args:
        kept_together: Keys of traces that are copies, each cluster by itself.
        keys: Of the rows that were read back, by split.
        statements: By split, the digests of the statements of their traces, each with a key.
    """
    parted: list[list[str]] = []
    for cluster in kept_together:
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
