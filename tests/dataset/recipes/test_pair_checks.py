"""The proof of a mirrored family: every pair in both orders, in its own group, and nothing less."""

from __future__ import annotations

from typing import Any

import pytest

from foretrace.core.message_columns import ChatText
from foretrace.dataset.recipes.base import Gate, RowGroup
from foretrace.dataset.recipes.verifier import MirrorCheck
from foretrace.dataset.settings import BuildSettings

MIRRORED = [("g", "a", "b"), ("g", "b", "a")]


def check(*jobs: list[tuple[str, str, str]], family: str = "argument", split: str = "train") -> dict[str, Gate]:
    """The gates over rows (group, chosen, rejected) of each job."""
    checks = []
    for rows in jobs:
        one = MirrorCheck(BuildSettings())
        plain: dict[str, list[Any]] = {"family": [family] * len(rows), "group": [row[0] for row in rows]}
        sides = {
            name: [[ChatText("assistant", row[at])] for row in rows] for at, name in ((1, "chosen"), (2, "rejected"))
        }
        one.add_rows(split, RowGroup({**plain, **sides}.__getitem__, lambda name: []))
        one.finish()
        checks.append(one)
    return {gate.name: gate for gate in MirrorCheck.make_gates(checks)}


def test_pairs_in_both_orders_pass_with_their_number() -> None:
    gates = check(MIRRORED * 2, [("h", "c", "a"), ("h", "a", "c")])
    assert {name: gate.verdict for name, gate in gates.items()} == {"shortcut/argument": "pass"}
    assert gates["shortcut/argument"].figure == {"accuracy": 0.5, "pairs": 6, "without_mirror": 0}


@pytest.mark.parametrize(
    ("rows", "alone"),
    [
        ([("g", "a", "b"), ("g", "b", "c"), ("g", "c", "a")], 3),
        ([("g", "a", "b"), ("h", "b", "a")], 2),
        ([*MIRRORED, *MIRRORED, ("g", "a", "b"), ("h", "b", "a")], 2),
    ],
    ids=["cycle", "other group", "beside mirrors"],
)
def test_balanced_completions_are_no_proof(rows: list[tuple[str, str, str]], alone: int) -> None:
    """A guesser with a fixed order of a, b and c is right in two of the three pairs of a cycle, though each is chosen
    as often as rejected; and one that knows the group wins where the mirror stands in another."""
    gates = check(rows)
    assert gates["shortcut/argument"].verdict == "fail"
    assert gates["shortcut/argument"].figure["without_mirror"] == alone
    assert gates["shortcut/argument"].rows[0].startswith("train g a")


def test_families_without_mirror_are_left_to_the_guessers() -> None:
    assert {*check([("g", "a", "b")], family="sibling")} == set()
