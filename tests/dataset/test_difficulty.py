"""Difficulty: what a shallow model sees is found, what it cannot see is not, and the figure never depends on luck."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from dataset.little import build, corpus
from foretrace.dataset.difficulty import ShallowPair, compare_shallowly, describe_difficulty, measure_difficulty

Pairs = dict[str, list[ShallowPair]]


def call(path: str, action: str = "file_read") -> str:
    return json.dumps({"action": action, "tool": "view", "arguments": {"path": path}})


def make_pairs(rng: random.Random, groups: int, *, planted: bool) -> list[ShallowPair]:
    """Two mirrored pairs a group of two paths; `planted`: the last turn names the right one."""
    pairs: list[ShallowPair] = []
    for group in range(groups):
        paths = [f"src/{rng.randrange(10**9)}/a.py" for _ in range(2)]
        for right, wrong in (paths, paths[::-1]):
            told = right if planted else f"{paths[0]} {paths[1]}"
            prompt = [("system", "x"), ("user", f"fix {rng.random()}"), ("assistant", "ls"), ("user", f"see {told}")]
            pairs.append(ShallowPair("", f"g{group}", compare_shallowly(prompt, call(right), call(wrong))))
    return pairs


def measured(*, planted: bool, seed: int = 0, groups: int = 120) -> dict[str, Any]:
    rng = random.Random(seed)
    pairs: Pairs = {f"{split}/f": make_pairs(rng, groups, planted=planted) for split in ("train", "test")}
    return measure_difficulty(pairs, ["f"])["f"]


def test_what_the_last_turn_gives_away_is_easy() -> None:
    found = measured(planted=True)
    assert found["accuracy"] == 1.0 and found["low"] is not None and found["low"] > 0.95
    assert (found["train"], found["test"], found["groups"]) == (240, 240, 120)


@pytest.mark.parametrize("seed", range(4))
def test_what_is_not_there_to_see_is_not_found(seed: int) -> None:
    found = measured(planted=False, seed=seed)
    assert found["low"] is not None and found["high"] is not None and found["low"] < 0.5 < found["high"]
    assert 0.4 < (found["accuracy"] or 0) < 0.6


def test_features_turn_their_sign_with_the_pair() -> None:
    """The order in which a pair is shown cannot help."""
    prompt = [("system", "x"), ("user", "fix a.py"), ("assistant", call("b.py")), ("user", "no b.py here")]
    texts = (call("a.py"), call("b.py", "repair"))
    forth, back = (compare_shallowly(prompt, *order) for order in (texts, texts[::-1]))
    assert any(forth) and forth == tuple(-value for value in back)


@pytest.mark.parametrize(
    "text", ["", "[1]", "{", '{"action":7,"tool":[1],"arguments":{"a":[1,null]}}', "\ud800", "[" * 9999]
)
@pytest.mark.parametrize("prompt", [[], [("system", "x")], [("system", "x"), ("assistant", "")]])
def test_any_text_has_features(text: str, prompt: list[tuple[str, str]]) -> None:
    assert len(compare_shallowly(prompt, text, call("a"))) == len(compare_shallowly(prompt, call("a"), call("b")))


def test_too_little_is_not_known_and_said() -> None:
    rng = random.Random(0)
    for train, test in ((4, 40), (40, 0)):
        pairs: Pairs = {"train/f": make_pairs(rng, train, planted=True), "test/f": make_pairs(rng, test, planted=True)}
        found = measure_difficulty(pairs, ["f"])["f"]
        assert (found["accuracy"], found["low"], found["high"]) == (None, None, None)
    assert describe_difficulty({"accuracy": None, "train": 80, "test": 0, "groups": 0}) == (
        "not known: 80 train pairs, 0 test pairs in 0 groups"
    )
    figures = {"accuracy": 0.7021, "low": 0.651, "high": 0.75, "train": 9, "test": 384, "groups": 12}
    assert describe_difficulty(figures) == ".702 [.65, .75] of 384 test pairs in 12 groups"


def test_manifest_and_card_say_it_and_no_gate_does(tmp_path: Path) -> None:
    manifest = build(tmp_path, *corpus(40), recipes=["verifier"], statistical_gates=True)
    assert {*manifest["difficulty"]} == {*manifest["families"]}
    card = (tmp_path / "d" / "README.md").read_text()
    for family, figures in manifest["difficulty"].items():
        assert figures["train"] > figures["test"] > 0
        assert f"| {family} | {describe_difficulty(figures)} |" in card
    assert not [gate for gate in manifest["gates"] if "difficulty" in gate["name"]]
