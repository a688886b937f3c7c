"""End to end: a pair family whose answers can be guessed without the prompt is removed and named; a clean one stays."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dataset.little import build, corpus, files, rows, runs, says, seen, trace, tree, user
from foretrace.core.trace import Trace
from foretrace.dataset import statistical_gates
from foretrace.dataset.recipes.base import Gate
from foretrace.dataset.report import BuildReport
from foretrace.dataset.statistical_gates import (
    Pair,
    PairSample,
    make_statistical_gates,
    measure_accuracy,
    measure_shortcuts,
    split_by_group,
)
from portions import in_portions_of

GROUPS = 480


def command(rng: random.Random) -> str:
    first, second, third = (rng.choice(WORDS) for _ in range(3))
    return rng.choice(
        [f"cat src/{first}/{second}.py", f"grep -n {first} src/{second}.py", f"sed -n {rng.randrange(99)}p {third}.c"]
    )


def test_a_sample_does_not_depend_on_which_job_ends_first() -> None:
    jobs = {n: [Pair(str(place), f"{n}.{place}", "g", "yes", "no") for place in range(4)] for n in range(5)}

    def take(order: Iterable[int]) -> dict[str, list[Pair]]:
        sample = PairSample[Pair](7)
        for number in order:
            sample.add("a", jobs[number])
        return sample.take()

    assert take(range(5)) == take(reversed(range(5))) == take([3, 0, 4, 1, 2])
    assert [pair.id for pair in take(range(5))["a"]] == ["0.0", "1.0", "2.0", "3.0", "4.0", "0.1", "1.1"]


def siblings(groups: int = GROUPS) -> list[Trace]:
    """A solved and a failed attempt a group that part at the first step, which is always longer in the failed one."""
    traces: list[Trace] = []
    for number in range(groups):
        rng = random.Random(f"siblings {number}")
        for success in (True, False):
            first = command(rng) + (" --verbose | tail" if not success else "")
            said = [user(f"Fix issue {number}."), runs(first), seen(f"{rng.random()}"), runs(command(rng)), seen("ok")]
            key = f"{number:04d}/{success}"
            traces.append(trace(key, *said, says("Done."), task=key[:4], group=key[:4], success=success))
    return traces


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("planted")
    build(folder, *siblings(), recipes=["verifier"], statistical_gates=True)
    return folder / "d"


def test_a_family_with_a_planted_shortcut_is_removed_and_named(planted: Path) -> None:
    """No row of it is left; manifest and card say so, with the figure that told; its pairs are counted as drops."""
    manifest = json.loads((planted / "manifest.json").read_text())
    card = (planted / "README.md").read_text()
    found = {g["name"]: g for g in manifest["gates"] if g["name"].startswith("shortcut/sibling/")}
    assert set(found) >= {"shortcut/sibling/length", "shortcut/sibling/completion"}
    assert all(gate["verdict"] == "removed" and gate["figure"]["low"] > 0.9 for gate in found.values())
    told = "pair family sibling was removed: its answers can be guessed without the prompt"
    assert manifest["warnings"] == [told] and f"- {told}" in card
    assert "| shortcut/sibling/length | REMOVED |" in card and "sibling" not in manifest["families"]
    assert manifest["drops"]["verifier"]["sibling_family_removed"] > 450


def test_other_families_are_as_they_would_have_been(planted: Path) -> None:
    """What stays adds up in rows, files, gates and balance: the gates saw the files that were kept."""
    manifest = json.loads((planted / "manifest.json").read_text())
    pairs, single = (list(rows(planted, config)) for config in ("verifier", "verifier_unpaired"))
    assert {r["family"] for r in pairs} == {r["family"] for r in single} == set(manifest["families"])
    assert "sibling" not in manifest["families"] and len(single) == 2 * len(pairs) > 100
    assert sum(manifest["families"].values()) == sum(manifest["strengths"].values()) == len(pairs)
    assert sum(manifest["prompt_tokens"]["verifier"]) == len(pairs)
    gates = {g["name"]: g for g in manifest["gates"]}
    assert gates["counts"]["figure"]["rows"] == len(pairs) + len(single)
    assert sum(gates[f"shortcut/{family}"]["figure"]["pairs"] for family in manifest["families"]) == len(pairs)
    listed = {f for config in manifest["configs"].values() for about in config.values() for f in about["files"]}
    assert listed == {name for name in tree(planted) if name.endswith(".parquet")}
    assert listed == {p.relative_to(planted).as_posix() for c in manifest["configs"] for p in files(planted, c)}
    for config, about in manifest["configs"].items():
        for split, held in about.items():
            assert held["rows"] == len(list(rows(planted, config, split)))


def test_a_mirrored_family_is_proved_and_not_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few pairs or many, its gate passes by its balance: no guesser is asked, and nothing is left to allow."""
    monkeypatch.setattr(statistical_gates, "_measure_guesser", lambda *_: pytest.fail("a guesser was fitted"))
    manifest = build(tmp_path, *corpus(6), statistical_gates=True)
    (gate,) = [g for g in manifest["gates"] if g["name"].startswith("shortcut")]
    pairs = manifest["families"]["redundancy"]
    assert (gate["name"], gate["verdict"]) == ("shortcut/redundancy", "pass")
    assert gate["figure"] == {"accuracy": 0.5, "pairs": pairs, "without_mirror": 0}
    assert BuildReport(manifest).undecided == []
    told = f"| shortcut/redundancy | PASS | .500 exactly, n={pairs}, each in both orders |"
    assert told in (tmp_path / "d" / "README.md").read_text()


def test_too_few_pairs_are_undecided_and_reported(tmp_path: Path) -> None:
    manifest = build(tmp_path, *siblings(10), recipes=["verifier"], statistical_gates=True)
    assert "shortcut/sibling/length" in BuildReport(manifest).undecided
    assert manifest["families"]["sibling"] == 10
    assert "UNDECIDED at n=10" in (tmp_path / "d" / "README.md").read_text()


def test_gates_can_be_left_out_but_not_unsaid(tmp_path: Path) -> None:
    """Nothing was measured, so nothing was decided; what needs no measuring is proved all the same."""
    manifest = build(tmp_path, *siblings(10), recipes=["verifier"])
    assert BuildReport(manifest).undecided == ["shortcut"]
    assert [g["name"] for g in manifest["gates"] if g["name"].startswith("shortcut/")] == ["shortcut/redundancy"]
    assert manifest["difficulty"] == {}


GUESSERS = ["length", "format", "completion"]
NAMES = (
    "alpha render config parser index cache token stream buffer query schema model route handler logger worker "
    "session client server engine module widget signal matrix vector tensor kernel panel socket thread"
)
WORDS = sorted(NAMES.split(), key=len)
Change = Callable[[random.Random, str, str], tuple[str, str]]
"""(random, chosen, rejected) -> the pair with a shortcut planted in it."""


def action(rng: random.Random) -> dict[str, Any]:
    """A realistic action: what a coding agent's next call looks like."""
    path = f"src/{rng.choice(WORDS)}/{rng.choice(WORDS)}_{rng.choice(WORDS)}{rng.choice(['.py', '.ts', '.md'])}"
    words = " ".join(rng.choices(WORDS, k=rng.randrange(1, 7)))
    first = rng.randrange(1, 300)
    return rng.choice(
        [
            {"action": "file_read", "tool": "editor", "arguments": {"path": path, "view_range": [first, first + 80]}},
            {"action": "shell", "tool": "bash", "arguments": {"command": f'grep -n "{words}" {path}'}},
            {"action": "file_edit", "tool": "editor", "arguments": {"path": path, "old": words, "new": words[::-1]}},
            {"action": "search", "tool": "code_search", "arguments": {"query": words}},
        ]
    )


def compact(body: dict[str, Any]) -> str:
    return json.dumps(body, separators=(",", ":"))


def make_pairs(seed: int, *, groups: int = 400, change: Change | None = None, most: int = 2) -> list[Pair]:
    """Pairs of independent actions, 1 to `most` a group, so that nothing tells chosen from rejected but `change`."""
    rng = random.Random(seed)
    pairs: list[Pair] = []
    for group in range(groups):
        for number in range(rng.randint(1, most)):
            texts = compact(action(rng)), compact(action(rng))
            pairs.append(Pair("", f"{group}.{number}", f"group {group}", *(change(rng, *texts) if change else texts)))
    return pairs


@lru_cache(maxsize=64)
def found(seed: int, groups: int = 400, change: Change | None = None, most: int = 2) -> dict[str, Gate]:
    pairs = make_pairs(seed, groups=groups, change=change, most=most)
    return {gate.name.split("/")[2]: gate for gate in measure_shortcuts({"sibling": pairs}, seed)}


# What a careless generator does to the rejected side.


def wordy(rng: random.Random, chosen: str, rejected: str) -> tuple[str, str]:
    return chosen, rejected.replace("src/", "src/" + "".join(f"{rng.choice(WORDS)}/" for _ in range(5)))


def newline(rng: random.Random, chosen: str, rejected: str) -> tuple[str, str]:
    return chosen, rejected + "\n"


def marker(rng: random.Random, chosen: str, rejected: str) -> tuple[str, str]:
    """Same length and same punctuation, so that only the characters can tell."""
    at = max(rejected.find(word) for word in WORDS)
    return chosen, rejected[:at] + "foo" + rejected[at + 3 :]


def subtly_longer(rng: random.Random, chosen: str, rejected: str) -> tuple[str, str]:
    """The rejected one is the longer one in 69 pairs of 100."""
    shorter, longer = sorted((chosen, rejected), key=len)
    return (shorter, longer) if rng.random() < 0.69 else (longer, shorter)


def in_some(change: Change, share: float) -> Change:
    def some(rng: random.Random, chosen: str, rejected: str) -> tuple[str, str]:
        return change(rng, chosen, rejected) if rng.random() < share else (chosen, rejected)

    return some


PLANTED: list[tuple[Change, str]] = [(wordy, "length"), (newline, "format"), (marker, "completion")]


@pytest.mark.parametrize(("change", "guesser"), PLANTED)
def test_a_planted_shortcut_is_caught(change: Change, guesser: str):
    caught = found(0, change=change)[guesser]
    assert caught.verdict == "removed", caught.detail
    assert 0.55 < caught.figure["low"] <= caught.figure["accuracy"] <= caught.figure["high"] <= 1


SUBTLE = [(in_some(newline, 0.38), "format"), (in_some(marker, 0.38), "completion"), (subtly_longer, "length")]


@pytest.mark.slow
@pytest.mark.parametrize(("change", "guesser"), SUBTLE, ids=[guesser for _, guesser in SUBTLE])
def test_a_trick_that_works_in_two_pairs_of_three_is_caught(change: Change, guesser: str):
    """Planted in 38 of 100 rejected ones, a trick decides those and half of the rest: .69 at best."""
    caught = [found(seed, 600, change)[guesser] for seed in range(3)]
    assert [gate.verdict for gate in caught].count("removed") >= 2, [gate.detail for gate in caught]


@pytest.mark.slow
def test_clean_pairs_pass_in_every_guesser_and_for_every_seed():
    """10 seeds x 3 guessers. By the interval's arithmetic one alarm in all is a 1-in-200 event: none is allowed."""
    results = [found(seed, most=1)[guesser] for seed in range(10) for guesser in GUESSERS]
    assert [result.detail for result in results if result.verdict != "pass"] == []
    assert 0.48 < np.mean([result.figure["accuracy"] for result in results]) < 0.52


def test_too_few_pairs_are_undecided_however_clean_they_look():
    for gate in (gate for groups in (2, 14, 60) for gate in found(0, groups, most=1).values()):
        assert gate.verdict == "undecided" and f"UNDECIDED at n={gate.figure['pairs']}" in gate.detail, gate.detail


def test_a_blatant_shortcut_fails_with_fewer_pairs_than_a_clean_family_needs_to_pass():
    assert found(0, 60, newline, 1)["format"].verdict == "removed"
    assert found(0, 60, None, 1)["format"].verdict == "undecided"
    gates, removed = make_statistical_gates({"sibling": make_pairs(0, groups=60, change=newline, most=1)}, 0)
    assert removed == ["sibling"] and {gate.verdict for gate in gates} == {"removed"}


def test_nothing_to_measure_gives_no_figures():
    assert measure_shortcuts({}, 0) == []
    one = [Pair("", "1", "g", "ls", "pwd")]
    for family in ([], one, [*one, Pair("", "2", "g", "ls", "cat")]):
        for gate in measure_shortcuts({"f": family}, 0):
            assert gate.figure["accuracy"] is gate.figure["low"] is gate.figure["high"] is None
            assert gate.verdict == "undecided" and gate.detail == f"{gate.name[9:]}: UNDECIDED at n={len(family)}"


@in_portions_of(4)
def test_the_interval_holds_its_level_when_the_pairs_of_a_group_are_alike(portion: int):
    """600 draws at .5 with groups of 1 to 12 like pairs: 99% of the intervals should hold .5."""
    rng, draws, held = np.random.default_rng(0), 600 // portion, 0
    for _ in range(draws):
        sizes = rng.integers(1, 13, size=60)
        scores = np.repeat(rng.random(60) - 0.5, sizes)
        figures = measure_accuracy(scores, [str(group) for group in np.repeat(np.arange(60), sizes)])
        held += figures.low <= 0.5 <= figures.high
    assert held / draws > 0.97


def test_groups_are_the_units_of_the_interval():
    """The same 40 outcomes, each ten times over: ten times the pairs must not narrow the interval."""
    scores = np.array([1.0, -1.0] * 20)
    once = measure_accuracy(scores, [str(at) for at in range(40)])
    assert measure_accuracy(np.repeat(scores, 10), [str(at) for at in np.repeat(np.arange(40), 10)]) == once
    giant = measure_accuracy(np.ones(340), ["giant"] * 300 + [str(at) for at in range(40)])
    assert giant.effective_groups < 2 and statistical_gates._decide_verdict(giant) == "undecided"


def test_an_interval_is_never_a_point_even_if_all_groups_came_out_alike():
    groups = [str(at) for at in range(30)]
    assert measure_accuracy(np.ones(30), groups)[:3] == (1.0, 0.95, 1.0)
    assert measure_accuracy(np.zeros(30), groups)[:3] == (0.5, 0.45, 0.55)  # a tie counts one half


# Laws

TEXTS = st.text(max_size=40) | st.sampled_from(['{"a":1}', '{"a":[[[]]],"b":null}', "[" * 40, "\ud800{}", "", "{\n}"])
PAIRS = st.lists(
    st.builds(Pair, st.just(""), st.text(max_size=3), st.sampled_from("abcdef"), TEXTS, TEXTS), max_size=24
)


@given(PAIRS, st.integers(0, 9), st.randoms(use_true_random=False))
@settings(max_examples=20, deadline=None)
def test_any_texts_in_any_order_give_the_same_figures_in_range(pairs: list[Pair], seed: int, rng: random.Random):
    train, test = split_by_group(pairs, seed)
    assert not {pair.group for pair in train} & {pair.group for pair in test}
    assert sorted(train + test) == sorted(pairs)
    first = measure_shortcuts({"f": pairs}, seed)
    assert measure_shortcuts({"f": rng.sample(pairs, len(pairs))}, seed) == first
    for figure in (gate.figure for gate in first):
        assert figure["accuracy"] is None or 0 <= figure["low"] <= figure["accuracy"] <= figure["high"] <= 1


@given(st.lists(st.tuples(TEXTS, TEXTS), min_size=4, max_size=16), st.integers(0, 9))
@settings(max_examples=15, deadline=None)
def test_a_pair_and_its_mirror_always_share_one_point(texts: list[tuple[str, str]], seed: int):
    pairs = [Pair("", f"{at}{side}", str(at), *both[::side]) for at, both in enumerate(texts) for side in (1, -1)]
    assert {gate.figure["accuracy"] for gate in measure_shortcuts({"f": pairs}, seed)} == {0.5}
