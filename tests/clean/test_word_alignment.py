"""What counts as a copy follows from what differs, how much and where."""

from __future__ import annotations

import random

import numpy as np
import pytest

from foretrace.clean.word_alignment import ComparedText, is_near_copy
from foretrace.clean.word_texts import make_word_text, split_sentences

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
