"""The statistical gate: silent on clean pairs, loud on every planted shortcut, undecided when it cannot know."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretrace.dataset import blind_guessers
from foretrace.dataset.blind_guessers import (
    Pair,
    Shortcut,
    describe_shortcut,
    find_shortcuts,
    sample_pairs,
    split_by_group,
)
from foretrace.dataset.pairwise_accuracy import measure_interval
from portions import in_portions_of

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


def corpus(seed: int, *, groups: int = 400, change: Change | None = None, most: int = 2) -> list[Pair]:
    """Pairs of independent actions, 1 to `most` a group, so that nothing tells chosen from rejected but `change`."""
    rng = random.Random(seed)
    pairs: list[Pair] = []
    for group in range(groups):
        for number in range(rng.randint(1, most)):
            texts = compact(action(rng)), compact(action(rng))
            pairs.append(Pair(f"{group}.{number}", f"group {group}", *(change(rng, *texts) if change else texts)))
    return pairs


def mirrored(seed: int, *, groups: int, change: Change | None = None) -> list[Pair]:
    """Each pair of `corpus` and, in the same group, its mirror: every string is as often chosen as rejected."""
    pairs = corpus(seed, groups=groups, change=change, most=1)
    return [
        both for pair in pairs for both in (pair, Pair(f"{pair.id} mirrored", pair.group, pair.rejected, pair.chosen))
    ]


@lru_cache(maxsize=64)
def found(seed: int, groups: int = 400, change: Change | None = None, most: int = 2) -> dict[str, Shortcut]:
    pairs = corpus(seed, groups=groups, change=change, most=most)
    return {shortcut.guesser: shortcut for shortcut in find_shortcuts({"sibling": pairs}, seed=seed)}


# What a careless generator does to the rejected side.


def wordy(rng: random.Random, chosen: str, rejected: str) -> tuple[str, str]:
    return chosen, rejected.replace("src/", "src/" + "".join(f"{rng.choice(WORDS)}/" for _ in range(5)))


def spaced(rng: random.Random, chosen: str, rejected: str) -> tuple[str, str]:
    return chosen, json.dumps(json.loads(rejected))


def extra_key(rng: random.Random, chosen: str, rejected: str) -> tuple[str, str]:
    return chosen, compact({**json.loads(rejected), "reason": rng.choice(WORDS)})


def no_tool(rng: random.Random, chosen: str, rejected: str) -> tuple[str, str]:
    return chosen, compact({key: value for key, value in json.loads(rejected).items() if key != "tool"})


def newline(rng: random.Random, chosen: str, rejected: str) -> tuple[str, str]:
    return chosen, rejected + "\n"


def other_order(rng: random.Random, chosen: str, rejected: str) -> tuple[str, str]:
    return chosen, compact(dict(reversed(json.loads(rejected).items())))


def marker(rng: random.Random, chosen: str, rejected: str) -> tuple[str, str]:
    """Same length and same punctuation, so that only the characters can tell."""
    at = max(rejected.find(word) for word in WORDS)
    return chosen, rejected[:at] + "foo" + rejected[at + 3 :]


def other_words(rng: random.Random, chosen: str, rejected: str) -> tuple[str, str]:
    """No word is a sure sign, but each is twice as likely on one side; the sides' words are equally long."""
    return tuple(  # type: ignore[return-value]
        compact({"action": "search", "tool": "grep", "arguments": {"query": " ".join(rng.choices(WORDS, odds, k=4))}})
        for odds in ([1, 2, 2, 1] * 7 + [1, 2], [2, 1, 1, 2] * 7 + [2, 1])
    )


def subtly_longer(rng: random.Random, chosen: str, rejected: str) -> tuple[str, str]:
    """The rejected one is the longer one in 69 pairs of 100."""
    shorter, longer = sorted((chosen, rejected), key=len)
    return (shorter, longer) if rng.random() < 0.69 else (longer, shorter)


def in_some(change: Change, share: float) -> Change:
    def some(rng: random.Random, chosen: str, rejected: str) -> tuple[str, str]:
        return change(rng, chosen, rejected) if rng.random() < share else (chosen, rejected)

    return some


PLANTED: list[tuple[Change, str]] = [
    (wordy, "length"),
    (spaced, "format"),
    (extra_key, "format"),
    (no_tool, "format"),
    (newline, "format"),
    (other_order, "format"),
    (marker, "completion"),
    (other_words, "completion"),
]


@pytest.mark.parametrize(("change", "guesser"), PLANTED, ids=[change.__name__ for change, _ in PLANTED])
def test_a_planted_shortcut_is_caught(change: Change, guesser: str):
    caught = found(0, change=change)[guesser]
    assert caught.verdict == "fail", describe_shortcut(caught)
    assert caught.accuracy is not None and caught.low is not None and caught.high is not None
    assert 0.55 < caught.low <= caught.accuracy <= caught.high <= 1


def test_a_shortcut_that_shows_only_in_the_characters_is_not_put_down_to_length():
    by_guesser = found(0, change=other_words)
    assert by_guesser["completion"].verdict == "fail"
    assert by_guesser["length"].verdict != "fail"


SUBTLE = [(in_some(newline, 0.38), "format"), (in_some(marker, 0.38), "completion"), (subtly_longer, "length")]


@pytest.mark.slow
@pytest.mark.parametrize(("change", "guesser"), SUBTLE, ids=[guesser for _, guesser in SUBTLE])
def test_a_trick_that_works_in_two_pairs_of_three_is_caught(change: Change, guesser: str):
    """Planted in 38 of 100 rejected ones, a trick decides those and half of the rest: .69 at best."""
    caught = [found(seed, 600, change)[guesser] for seed in range(3)]
    assert [shortcut.verdict for shortcut in caught].count("fail") >= 2, [describe_shortcut(one) for one in caught]


@pytest.mark.slow
def test_clean_pairs_pass_in_every_guesser_and_for_every_seed():
    """10 seeds x 3 guessers. By the interval's arithmetic one alarm in all is a 1-in-200 event: none is allowed."""
    results = [found(seed, most=1)[guesser] for seed in range(10) for guesser in GUESSERS]
    assert [describe_shortcut(result) for result in results if result.verdict != "pass"] == []
    assert 0.48 < np.mean([result.accuracy or 0.0 for result in results]) < 0.52


def test_too_few_pairs_are_undecided_however_clean_they_look():
    for groups in (2, 14, 60):
        for guesser, shortcut in found(0, groups, most=1).items():
            assert shortcut.verdict == "undecided", (guesser, describe_shortcut(shortcut))
            assert f"UNDECIDED at n={shortcut.n_pairs}" in describe_shortcut(shortcut)


def test_many_pairs_of_few_groups_are_undecided_because_groups_are_what_counts():
    pairs = [pair._replace(group=f"group {at % 8}") for at, pair in enumerate(corpus(0, groups=800, most=1))]
    assert {one.verdict for one in find_shortcuts({"sibling": pairs})} == {"undecided"}
    assert {one.groups for one in find_shortcuts({"sibling": pairs})} == {8}


def test_a_blatant_shortcut_fails_with_fewer_pairs_than_a_clean_family_needs_to_pass():
    assert found(0, 60, newline, 1)["format"].verdict == "fail"
    assert found(0, 60, None, 1)["format"].verdict == "undecided"


def test_mirrored_pairs_come_out_at_one_half_however_different_their_strings_are():
    for change in (None, spaced, marker, wordy):
        for shortcut in find_shortcuts({"argument": mirrored(0, groups=200, change=change)}):
            assert shortcut.accuracy == 0.5, describe_shortcut(shortcut)
            assert shortcut.verdict == "pass"


def test_a_sample_of_mirrored_pairs_does_not_fail_though_some_lose_their_mirror():
    pairs = mirrored(0, groups=600, change=spaced)
    for seed in range(4):
        results = find_shortcuts({"argument": pairs}, seed=seed, sample=600)
        assert [describe_shortcut(one) for one in results if one.verdict == "fail"] == []


def test_a_tie_counts_one_half():
    same = [Pair(str(at), str(at), "ls", "ls") for at in range(60)]
    assert [(one.accuracy, one.verdict) for one in find_shortcuts({"f": same})] == [(0.5, "pass")] * 3


def test_the_figures_do_not_depend_on_the_order_of_pairs_or_families():
    pairs = {"sibling": corpus(1, groups=200), "argument": corpus(2, groups=200, change=in_some(spaced, 0.4))}
    mixed = {name: random.Random(5).sample(family, len(family)) for name, family in reversed(pairs.items())}
    first = find_shortcuts(pairs, sample=150)
    assert find_shortcuts(mixed, sample=150) == first
    assert [one.family for one in first] == ["argument"] * 3 + ["sibling"] * 3
    assert [one.guesser for one in first] == GUESSERS * 2


@pytest.mark.slow
def test_the_figures_are_the_same_in_another_process_with_another_hash_seed():
    code = (
        "import msgspec, sys; from foretrace.dataset.blind_guessers import Pair, find_shortcuts;"
        "pairs = msgspec.json.decode(sys.stdin.buffer.read(), type=list[Pair]);"
        "sys.stdout.buffer.write(msgspec.json.encode(find_shortcuts({'f': pairs}, seed=3)))"
    )
    pairs = corpus(1, groups=150, change=in_some(extra_key, 0.4))
    run = subprocess.run(
        [sys.executable, "-c", code],
        input=msgspec.json.encode(pairs),
        capture_output=True,
        check=True,
        env={**os.environ, "PYTHONHASHSEED": "77"},
    )
    assert msgspec.json.decode(run.stdout, type=list[Shortcut]) == find_shortcuts({"f": pairs}, seed=3)


def test_the_seed_draws_another_sample_and_another_split():
    pairs = corpus(1, groups=300)
    assert sample_pairs(pairs, seed=0, sample=50) != sample_pairs(pairs, seed=1, sample=50)
    assert set(split_by_group(pairs, seed=0)[0]) != set(split_by_group(pairs, seed=1)[0])


def test_nothing_to_measure_gives_no_figures():
    assert find_shortcuts({}) == []
    one = [Pair("1", "g", "ls", "pwd")]
    for family in ([], one, [*one, Pair("2", "g", "ls", "cat")]):
        for shortcut in find_shortcuts({"f": family}):
            assert (shortcut.accuracy, shortcut.low, shortcut.high) == (None, None, None)
            assert shortcut.verdict == "undecided" and shortcut.n_pairs == len(family)
            assert describe_shortcut(shortcut) == f"f/{shortcut.guesser}: UNDECIDED at n={len(family)}"
    with pytest.raises(ValueError, match="sample"):
        find_shortcuts({"f": one}, sample=0)


def test_describe():
    shortcut = found(0)["length"]
    figures = msgspec.structs.replace(
        shortcut, family="argument", accuracy=0.5123, low=0.4689, high=0.5512, n_test=480, verdict="pass"
    )
    assert describe_shortcut(figures) == "argument/length: .512 [.47, .55] n=480 pass"
    sure = msgspec.structs.replace(figures, accuracy=1.0, low=0.0, high=1.0, verdict="fail")
    assert describe_shortcut(sure) == "argument/length: 1.000 [.00, 1.00] n=480 fail"
    few = msgspec.structs.replace(figures, n_pairs=14, n_test=7, verdict="undecided")
    assert describe_shortcut(few) == "argument/length: UNDECIDED at n=14 (.512 [.47, .55] on 7 held out)"


@in_portions_of(4)
def test_the_interval_holds_its_level_when_the_pairs_of_a_group_are_alike(portion: int):
    """600 draws at .5 with groups of 1 to 12 like pairs: 99% of the intervals should hold .5."""
    rng, draws, held = np.random.default_rng(0), 600 // portion, 0
    for _ in range(draws):
        sizes = rng.integers(1, 13, size=60)
        right = np.repeat((rng.random(60) < 0.5).astype(np.float64), sizes)
        figures = measure_interval(right, [str(group) for group in np.repeat(np.arange(60), sizes)])
        held += figures.low <= 0.5 <= figures.high
    assert held / draws > 0.97


def test_a_group_of_one_kind_counts_as_one_observation():
    """The same 40 outcomes, each ten times over: ten times the pairs must not narrow the interval."""
    right = np.array([1.0, 0.0] * 20)
    once = measure_interval(right, [str(at) for at in range(40)])
    tenfold = measure_interval(np.repeat(right, 10), [str(at) for at in np.repeat(np.arange(40), 10)])
    assert tenfold == once


def test_one_giant_group_among_small_ones_leaves_too_little_to_decide_on():
    groups = ["giant"] * 300 + [str(at) for at in range(40)]
    figures = measure_interval(np.ones(340), groups)
    assert figures.effective_groups < 2
    assert blind_guessers._decide_verdict(figures) == "undecided"


def test_an_interval_is_never_a_point_even_if_all_groups_came_out_alike():
    groups = [str(at) for at in range(30)]
    assert measure_interval(np.ones(30), groups)[:3] == (1.0, 0.95, 1.0)
    assert measure_interval(np.full(30, 0.5), groups)[:3] == (0.5, 0.45, 0.55)


def test_a_pair_turned_round_gets_the_opposite_score():
    rng = np.random.default_rng(0)
    train, test = rng.normal(0.5, 1, (31, 4)), rng.normal(size=(9, 4))
    scores, turned = (blind_guessers._score_rows(train, rows, 1.0) for rows in (test, -test))
    assert scores.tolist() == (-turned).tolist()


# Laws

TEXTS = st.text(max_size=40) | st.sampled_from(['{"a":1}', '{"a":[[[]]],"b":null}', "[" * 40, "\ud800{}", "", "{\n}"])
PAIRS = st.lists(
    st.builds(Pair, st.text(max_size=3), st.sampled_from("abcdef"), TEXTS, TEXTS, st.just(())), max_size=24
)


@given(PAIRS, st.integers(0, 9), st.integers(1, 30))
@settings(max_examples=40, deadline=None)
def test_pairs_of_one_group_are_never_on_both_sides_and_none_is_lost(pairs: list[Pair], seed: int, sample: int):
    chosen = sample_pairs(pairs, seed=seed, sample=sample)
    train, test = split_by_group(chosen, seed=seed)
    assert not {pair.group for pair in train} & {pair.group for pair in test}
    assert sorted(train + test) == sorted(chosen)
    assert len(chosen) == min(sample, len(pairs))
    assert abs(len({pair.group for pair in train}) - len({pair.group for pair in test})) <= 1


@given(PAIRS, st.randoms(use_true_random=False))
@settings(max_examples=15, deadline=None)
def test_any_texts_in_any_order_give_the_same_figures_in_range(pairs: list[Pair], rng: random.Random):
    first = find_shortcuts({"f": pairs}, sample=15)
    assert find_shortcuts({"f": rng.sample(pairs, len(pairs))}, sample=15) == first
    for shortcut in first:
        assert shortcut.n_train + shortcut.n_test == min(15, len(pairs))
        if shortcut.accuracy is not None and shortcut.low is not None and shortcut.high is not None:
            assert 0 <= shortcut.low <= shortcut.accuracy <= shortcut.high <= 1


@given(st.lists(st.tuples(TEXTS, TEXTS), min_size=4, max_size=16), st.integers(0, 9))
@settings(max_examples=15, deadline=None)
def test_a_pair_and_its_mirror_always_share_one_point(texts: list[tuple[str, str]], seed: int):
    pairs = [Pair(f"{at}{side}", str(at), *both[::side]) for at, both in enumerate(texts) for side in (1, -1)]
    assert {shortcut.accuracy for shortcut in find_shortcuts({"f": pairs}, seed=seed)} == {0.5}


def test_the_confidence_of_a_proposer_is_a_shortcut_where_it_tells() -> None:
    """And none where the likelier guess is as often wrong; pairs without a standing have no such guesser."""

    def plant(share_right: float) -> list[Pair]:
        rng = random.Random(3)
        pairs: list[Pair] = []
        for number in range(600):
            first, second = (1, rng.uniform(0.4, 0.9)), (rng.choice([2, 3]), rng.uniform(0.01, 0.2))
            right, wrong = (first, second) if rng.random() < share_right else (second, first)
            pairs.append(Pair(str(number), f"g{number // 6}", "same", "same", (*right, *wrong)))
        return pairs

    for share, verdict in ((0.8, "fail"), (0.2, "fail"), (0.5, "pass")):
        found = {each.guesser: each for each in find_shortcuts({"proposer": plant(share)})}
        assert found["confidence"].verdict == verdict, share
        assert found["length"].accuracy == 0.5
    without = [Pair(str(n), f"g{n}", "a", "b", (1, None, 2, None)) for n in range(60)]
    assert find_shortcuts({"f": without})[-1].verdict == "fail"  # the rank alone tells
    assert all(
        each.guesser != "confidence" for each in find_shortcuts({"f": [p._replace(standing=()) for p in without]})
    )
