"""The shipped predictors on planted attempts: what each can know it guesses, and nothing else."""

from __future__ import annotations

import json
from functools import cache

import pytest

from evaluation.attempts import bash, make_attempts, make_prompt, make_rows, view
from foretrace.actions.same_action import canonicalize_json
from foretrace.actions.taxonomy import ActionType
from foretrace.core.errors import UsageError
from foretrace.core.plugins import BUILT_IN
from foretrace.evaluation.dataset_rows import DatasetRow
from foretrace.evaluation.predict import check_guesses
from foretrace.evaluation.predictors.base import Guess, Predictor
from foretrace.evaluation.predictors.regression import Regression
from foretrace.registry import make_predictor

NAMES = [*(name for name in BUILT_IN["predictor"] if name != "markov"), "markov:1", "markov:2", "markov:3"]
TRAIN, TEST = make_attempts(range(40)), make_attempts(range(100, 110))


def fit(name: str, rows: list[DatasetRow]) -> Predictor:
    predictor = make_predictor(name)
    predictor.fit(rows)
    return predictor


@cache
def fit_once(name: str) -> Predictor:
    """Fitted on `TRAIN`."""
    return fit(name, TRAIN)


def is_exact(guess: Guess, row: DatasetRow) -> bool:
    given = guess.arguments if isinstance(guess.arguments, str) else json.dumps(dict(guess.arguments))
    call = row.calls[0]
    return (guess.tool, canonicalize_json(given)) == (call.tool, canonicalize_json(call.arguments))


def measure_type_accuracy(name: str) -> float:
    predictor = fit_once(name)
    return sum(predictor.predict(row.prompt, 1)[0][0] == row.action for row in TEST) / len(TEST)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name == "memory" else name for name in NAMES]
)
def test_guesses_are_sound_and_the_same_each_time(name: str) -> None:
    one, other = fit_once(name), fit(name, TRAIN)
    for row in TEST[:14]:
        guesses = check_guesses(one.predict(row.prompt, 4), 4)
        assert 1 <= len(guesses) <= 4
        confidences = [guess.confidence or 0.0 for guess in guesses]
        assert confidences == sorted(confidences, reverse=True) and sum(confidences) <= 1 + 1e-9
        assert [*other.predict(row.prompt, 4)] == [*one.predict(row.prompt, 4)]
        assert [*one.predict(row.prompt, 1)] == guesses[:1]


@pytest.mark.parametrize("name", NAMES)
def test_one_row_is_enough_to_learn_from(name: str) -> None:
    predictor = fit(name, TRAIN[:1])
    assert check_guesses(predictor.predict(TEST[0].prompt, 3), 3)[0].action == TRAIN[0].action
    check_guesses(predictor.predict((), 3), 3)


def test_more_knowledge_gives_better_types() -> None:
    majority, markov, regression = map(measure_type_accuracy, ("majority", "markov:2", "regression"))
    assert majority == pytest.approx(2 / 7) or majority < 0.5
    assert majority < markov <= regression
    assert regression > 0.95


def test_a_chain_forgets_what_is_older_than_its_order() -> None:
    """After `b` it depends on what was before it."""
    steps = {"a": bash("a"), "b": view("b"), "c": bash("make test", "ok", ActionType.VERIFIER)}
    rows = [
        row
        for number in range(30)
        for row in make_rows(f"k{number}", "Do.", [steps[s] for s in ("aba" if number % 2 else "bbc")])
    ]
    after_a, after_b = make_prompt("Do.", [steps["a"], steps["b"]]), make_prompt("Do.", [steps["b"], steps["b"]])
    assert fit("markov:1", rows).predict(after_a, 3) == fit("markov:1", rows).predict(after_b, 3)
    assert fit("markov:2", rows).predict(after_a, 3) != fit("markov:2", rows).predict(after_b, 3)


@pytest.mark.parametrize("name", ["markov:0", "markov:4", "markov:x", "majority:2", "nothing"])
def test_predictors_that_do_not_exist(name: str) -> None:
    with pytest.raises(UsageError, match="predictor"):
        make_predictor(name)


def test_memory_copies_the_call_from_the_prompt() -> None:
    """Names differ in every attempt, so a call is right only where the prompt's own files were filled in."""
    predictor = fit_once("memory")
    hits: dict[int, int] = {}
    for row in TEST:
        place = (row.step - 2) // 2
        hits[place] = hits.get(place, 0) + is_exact(Guess(*predictor.predict(row.prompt, 1)[0]), row)
    assert hits.pop(2) == hits.pop(4) == 0, "nobody can guess the text of a new file, or of an edit"
    assert hits == {0: 10, 1: 10, 3: 10, 5: 10, 6: 10}, "look, view what was found, run it, run it again, submit"


def test_types_of_a_held_out_row_are_not_learned_from_its_group() -> None:
    other = next(action for action in ActionType if action not in {row.action for row in TRAIN})
    group = TRAIN[0].group
    model = Regression()
    model.fit([row._replace(action=other) if row.group == group else row for row in TRAIN])
    assert sorted(model.held_out) == [*range(len(TRAIN))]
    own = [model.held_out[at] for at, row in enumerate(TRAIN) if row.group == group]
    others = [model.held_out[at] for at, row in enumerate(TRAIN) if row.group != group]
    assert max(shares[other] for shares in own) < 0.01 < max(shares[other] for shares in others)
