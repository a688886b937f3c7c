"""The alignment is a shortest one, and what counts as a copy follows from what differs, how much and where."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrace.clean import word_alignment
from foretrace.clean.word_alignment import ComparedText, align, is_near_copy
from foretrace.clean.word_texts import make_word_text, split_sentences

_FEW = st.lists(st.integers(0, 4), max_size=14)
_TEXT = (
    "When the scheduler restarts while a job is being cancelled, release_slot is called twice and the queue counter "
    "drops below zero. After that every new job waits for a worker that is never free, although the dashboard says "
    "that four of them are idle. I expected release_slot to ignore a slot that was given back already. It happens on "
    "version 3.2 of acme/runner with the default settings, and I can reproduce it with the script that is attached."
)


def read(text: str) -> ComparedText:
    found = make_word_text(split_sentences(text))
    return ComparedText(found.read_pieces().tolist(), np.cumsum(found.read_starts()).tolist())


def is_copy(one: str, other: str) -> bool:
    answers = {is_near_copy(read(one), read(other)), is_near_copy(read(other), read(one))}
    assert len(answers) == 1
    return answers.pop()


def count_common(a: list[int], b: list[int]) -> int:
    """Length of the longest common subsequence, the slow way."""
    row = [0] * (len(b) + 1)
    for x in a:
        new = [0]
        for j, y in enumerate(b):
            new.append(row[j] + 1 if x == y else max(row[j + 1], new[j]))
        row = new
    return row[-1]


@given(_FEW, _FEW)
def test_an_alignment_is_a_shortest_one(a: list[int], b: list[int]) -> None:
    cost = len(a) + len(b) - 2 * count_common(a, b)
    regions = align(a, b, cost)
    assert regions is not None
    assert sum(r.a_end - r.a_start + r.b_end - r.b_start for r in regions) == cost
    at_a = at_b = 0
    for region in regions:
        assert a[at_a : region.a_start] == b[at_b : region.b_start]
        at_a, at_b = region.a_end, region.b_end
    assert a[at_a:] == b[at_b:]
    if cost:
        assert align(a, b, cost - 1) is None


def test_reworded_renamed_and_moved_to_another_repository_is_a_copy() -> None:
    rng = random.Random(5)
    words = _TEXT.split()
    for place in rng.sample(range(len(words)), len(words) // 20):
        words[place] = rng.choice(["broken", "windows", "perhaps", "table"])
    other = " ".join(words).replace("release_slot", "give_back_lease").replace("acme/runner", "zeta-soft/task-pool")
    assert is_copy(_TEXT, other)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param("four of them are idle", "nine of them are idle", id="a word"),
        pytest.param("acme/runner", "big-corp/job-runner", id="a repository"),
        pytest.param("version 3.2", "the newest version", id="a number becomes words"),
    ],
)
def test_a_small_difference_leaves_a_copy(old: str, new: str) -> None:
    assert is_copy(_TEXT, _TEXT.replace(old, new))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param("add 3 and 4", "add 5 and 6", id="short, other numbers"),
        pytest.param(_TEXT.replace("four", "4"), _TEXT.replace("four", "9").replace("3.2", "4.7"), id="other numbers"),
        pytest.param(
            f"{_TEXT}\nYour task: heat some potato and put it in the fridge",
            f"{_TEXT}\nYour task: find every receipt older than last May",
            id="another text in the slot of a template",
        ),
        pytest.param(_TEXT, " ".join(_TEXT.split()[::-1]), id="the same words in another order"),
        pytest.param(_TEXT, _TEXT[: len(_TEXT) // 2], id="half of it"),
    ],
)
def test_what_means_something_else_is_no_copy(one: str, other: str) -> None:
    assert not is_copy(one, other)


def test_sentences_that_many_texts_have_do_not_make_a_copy() -> None:
    ask = "What is the capital of {}?"
    one, other = (read(f"{_TEXT}\n{ask.format(country)}") for country in ("France", "Spain"))
    assert is_near_copy(one, other)
    sizes = len(read(_TEXT).pieces)
    own = [place >= sizes for place in range(len(one.pieces))]
    assert not is_near_copy(one._replace(own=own), other._replace(own=own))


def test_a_name_of_code_makes_a_copy_although_many_texts_have_the_other_sentences() -> None:
    ask = "It began when {} was merged."
    one, other, word, another = (
        read(f"{_TEXT}\n{ask.format(name)}") for name in ("read_head", "see_top", "today", "autumn")
    )
    own = [place >= len(read(_TEXT).pieces) for place in range(len(one.pieces))]
    one, other, word, another = (text._replace(own=own) for text in (one, other, word, another))
    assert is_near_copy(one, other)
    assert not is_near_copy(word, another)


def test_the_bound_that_spares_alignments_changes_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(3)
    pairs: list[tuple[ComparedText, ComparedText]] = []
    for _ in range(150):
        first = [rng.randrange(60) for _ in range(rng.randrange(25, 60))]
        second = [rng.randrange(90) if rng.random() < 0.15 else piece for piece in first]
        words = [place // 2 for place in range(len(first))] if rng.random() < 0.3 else list(range(len(first)))
        pairs.append((ComparedText(first, words), ComparedText(second, words)))
    answers = [is_near_copy(a, b) for a, b in pairs]
    monkeypatch.setattr(word_alignment, "_count_least_changed", lambda *_: 0)
    assert answers == [is_near_copy(a, b) for a, b in pairs] and any(answers) and not all(answers)
