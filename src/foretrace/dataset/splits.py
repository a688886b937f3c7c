"""Splits by group: the hash of a group decides its split, and all of its rows go there."""

from __future__ import annotations

from collections.abc import Collection

from foretrace.core.digest import hash_fraction
from foretrace.dataset.settings import SPLITS


def assign_splits(
    groups: Collection[str],
    shares: tuple[float, float, float],
    seed: int,
    groups_with_rows: Collection[str] | None = None,
) -> tuple[dict[str, str], list[str]]:
    """Assign each group to a split; returns the split of each group, and warnings.

    A group's place in [0, 1) is its hash, and the shares cut that range: with shares .8, .1 and .1, a group at .85 is
    in `validation`. Where a split with a share would stay empty, the group nearest to its range moves there, out of a
    split that keeps other groups.

    Args:
        groups_with_rows: Groups that will give rows; a split with none of them counts as empty. `None`: all groups.
    """
    places = {group: hash_fraction("split", str(seed), group) for group in sorted(groups)}
    bounds: dict[str, tuple[float, float]] = {}
    low = 0.0
    for name, share in zip(SPLITS, shares, strict=True):
        bounds[name] = (low, low + share)
        low += share
    result = {group: _find_split(place, bounds) for group, place in places.items()}
    warnings: list[str] = []
    for name, share in zip(SPLITS, shares, strict=True):
        filled = {g: s for g, s in result.items() if groups_with_rows is None or g in groups_with_rows}
        if share == 0 or name in filled.values():
            continue
        sizes = {s: sum(v == s for v in filled.values()) for s in SPLITS}
        movable = [g for g, s in filled.items() if sizes[s] > 1]
        if not movable:
            warnings.append(f"split {name} is empty: {len(filled)} group(s) cannot fill every split")
            continue
        nearest = min(movable, key=lambda g: (_measure_distance(places[g], bounds[name]), g))
        warnings.append(
            f"split {name} would have been empty: group {nearest!r}, nearest to its range, moved there "
            f"from {result[nearest]}"
        )
        result[nearest] = name
    return result, warnings


def _find_split(place: float, bounds: dict[str, tuple[float, float]]) -> str:
    inside = [name for name, (low, high) in bounds.items() if low <= place < high]
    return inside[0] if inside else max((n for n, (a, b) in bounds.items() if b > a), key=lambda n: bounds[n][1])


def _measure_distance(place: float, bounds: tuple[float, float]) -> float:
    low, high = bounds
    return max(low - place, place - high, 0.0)
