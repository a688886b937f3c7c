"""Splits: a group's place is its own hash, whatever else there is, and no split with a share stays empty."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrace.core.digest import hash_fraction
from foretrace.core.errors import UsageError
from foretrace.dataset.plan import assign_splits
from foretrace.dataset.settings import SPLITS, BuildSettings

SHARES = (0.8, 0.1, 0.1)
groups_of = st.sets(st.text(min_size=1, max_size=12), min_size=1, max_size=40)
shares_of = st.sampled_from([SHARES, (0.5, 0.25, 0.25), (1.0, 0.0, 0.0), (0.9, 0.0, 0.1), (0.2, 0.4, 0.4)])


@given(groups_of, shares_of, st.integers(0, 3))
def test_every_group_has_one_split_and_no_share_stays_empty(
    groups: set[str], shares: tuple[float, float, float], seed: int
) -> None:
    """With enough groups each split with a share gets one; a split without a share never does."""
    found, warnings = assign_splits(groups, shares, seed)
    assert (found, warnings) == assign_splits(sorted(groups, reverse=True), shares, seed)
    assert set(found) == groups
    used = set(found.values())
    wanted = {name for name, share in zip(SPLITS, shares, strict=True) if share}
    assert used <= wanted
    assert "train" in used
    assert used == wanted or (len(groups) < len(wanted) and any("is empty" in w for w in warnings))


@given(groups_of, groups_of, shares_of)
def test_other_groups_move_a_group_only_to_fill_an_empty_split(
    some: set[str], more: set[str], shares: tuple[float, float, float]
) -> None:
    one, warned = assign_splits(some, shares, 0)
    both, warned_too = assign_splits(some | more, shares, 0)
    if not warned and not warned_too:
        assert {g: both[g] for g in some} == one
    moved = sum(both[g] != one[g] for g in some)
    assert moved <= len(warned) + len(warned_too)


def test_shares_are_roughly_held_and_seeds_differ() -> None:
    groups = [f"owner/repo-{n}" for n in range(2000)]
    found, warnings = assign_splits(groups, SHARES, 0)
    counts = Counter(found.values())
    assert not warnings
    assert abs(counts["train"] - 1600) < 80
    assert abs(counts["validation"] - 200) < 60
    assert abs(counts["test"] - 200) < 60
    assert assign_splits(groups, SHARES, 1)[0] != found


def test_a_split_that_would_be_empty_takes_the_nearest_group_and_says_so() -> None:
    """Two shares to fill from few groups: each move is told with the group and where it came from."""
    groups = [f"g{n}" for n in range(4)]
    found, warnings = assign_splits(groups, (0.98, 0.01, 0.01), 0)
    assert Counter(found.values()) == {"train": 2, "validation": 1, "test": 1}
    assert len(warnings) == 2
    moved = next(g for g, s in found.items() if s == "validation")
    assert moved == max(groups, key=lambda group: hash_fraction("split", "0", group))  # all lie below that range
    assert warnings[0] == (
        f"split validation would have been empty: group {moved!r}, nearest to its range, moved there from train"
    )


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("seed", range(40))
def test_too_few_groups_fill_train_first_and_the_empty_splits_are_told(count: int, seed: int) -> None:
    groups = [f"g{n}" for n in range(count)]
    found, warnings = assign_splits(groups, SHARES, seed)
    assert "train" in found.values()
    assert [w for w in warnings if "is empty" in w] == [
        f"split {name} is empty: too few groups ({count}); add traces of other repositories or tasks to fill it"
        for name in SPLITS
        if name not in found.values()
    ]


@pytest.mark.parametrize(
    "change",
    [
        {"split": (0.5, 0.5, 0.5)},
        {"split": (0.0, 0.5, 0.5)},
        {"split": (1.2, -0.1, -0.1)},
        {"split": (float("nan"), 0.5, 0.5)},
        {"max_context_tokens": 1023},
        {"eval_size": -1},
        {"pairs": -1},
        {"recipes": ("eval", "eval")},
        {"outcomes": "all", "weights": {"good": 1.0}},
        {"outcomes": "all", "weights": {"failed": -1.0}},
        {"outcomes": "all", "weights": {"failed": float("nan")}},
        {"weights": {"unknown": 0.5}},
    ],
    ids=str,
)
def test_settings_that_cannot_be_served_are_refused(change: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        BuildSettings(**change).check()  # type: ignore[arg-type]


def test_a_split_with_groups_that_give_no_rows_is_empty() -> None:
    """A group of failed attempts alone fills no split: one that gives rows moves in."""
    groups = [f"g{n}" for n in range(14)]
    alone, _ = assign_splits(groups, (0.8, 0.1, 0.1), 1)
    barren = {g for g, s in alone.items() if s == "test"}
    split, warnings = assign_splits(groups, (0.8, 0.1, 0.1), 1, set(groups) - barren)
    assert "test" in {s for g, s in split.items() if g not in barren}
    assert not barren or any("split test would have been empty" in w for w in warnings)
