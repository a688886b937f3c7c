"""Confidences and scores: calibration, a verifier's thresholds, and a cascade, against scikit-learn and plain numpy."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataset.little import corpus, rows
from evaluation.planted import build_dataset, guess_at, write_lines
from foretrace.core.errors import PredictionError
from foretrace.core.predictions import PredictedCall, Prediction
from foretrace.evaluation.bootstrap import Resamples
from foretrace.evaluation.confidences import (
    BINS,
    choose_half,
    find_threshold,
    measure_auroc,
    measure_calibration,
    measure_cascade,
)
from foretrace.evaluation.dataset_rows import GoldStep
from foretrace.evaluation.figures import JudgedSteps, judge_guesses
from foretrace.evaluation.score import score
from foretrace.evaluation.score_report import AcceptRow, Calibration, CascadeRow, VerifierScore

Row = dict[str, Any]
_COARSE = st.sampled_from([-3.0, 0.0, 0.25, 0.5, 7.0])
_GUESSES = st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1, max_size=40)
_SOME = st.sampled_from([0.0, 0.1, 0.5, 0.9, 1.0])
_COARSE_GUESSES = st.lists(st.tuples(_SOME, st.booleans()), min_size=1, max_size=12)


def measure(guesses: list[tuple[float, bool]]) -> Calibration:
    confidence, right = (np.array(column) for column in zip(*guesses, strict=True))
    found = measure_calibration(confidence.astype(float), right.astype(bool), "guess")
    assert found is not None
    return found


@given(guesses=_GUESSES)
def test_laws(guesses: list[tuple[float, bool]]) -> None:
    from sklearn.metrics import brier_score_loss

    found = measure(guesses)
    assert 0 <= found.ece <= 1 and 0 <= found.aurc <= 1 and len(found.bins) == BINS
    assert sum(each.n for each in found.bins) == found.n == len(guesses)
    mean_gap = abs(np.mean([c for c, _ in guesses]) - np.mean([r for _, r in guesses]))
    assert found.ece >= mean_gap - 1e-4, "bins can only add to what is off on the whole"
    confidence, right = zip(*guesses, strict=True)
    assert found.brier == pytest.approx(brier_score_loss(right, confidence, pos_label=True), abs=1e-4)
    coverages = [row.coverage for row in found.coverage]
    assert coverages == sorted(coverages), "whoever bears more risk takes more"
    shuffled = guesses[:]
    random.Random(0).shuffle(shuffled)
    assert measure(shuffled) == found


def test_a_planted_calibration_is_measured_as_what_it_is() -> None:
    rng = random.Random(2)
    drawn = [rng.random() for _ in range(20_000)]
    honest = measure([(c, rng.random() < c) for c in drawn])
    boastful = measure([(min(1.0, c + 0.2), rng.random() < c) for c in drawn])
    assert honest.ece < 0.02
    assert boastful.ece == pytest.approx(0.18, abs=0.02), "above .8 it cannot boast by .2 any more"
    assert honest.aurc == pytest.approx(0.25, abs=0.01), "mean over coverage c of the mean risk c / 2"


@given(pairs=st.lists(st.tuples(_COARSE | st.floats(-9, 9), st.booleans(), st.sampled_from("abc")), min_size=1))
def test_auroc_is_that_of_scikit_learn(pairs: list[tuple[float, bool, str]]) -> None:
    from sklearn.metrics import roc_auc_score

    scores, right, groups = (np.array(column) for column in zip(*pairs, strict=True))
    found = measure_auroc(scores, right, Resamples(groups.tolist(), 0))
    if right.all() or not right.any():
        assert found.value is None
    else:
        assert found.value == pytest.approx(roc_auc_score(right, scores), abs=1e-4)
        assert found.low is not None and found.high is not None and 0 <= found.low <= found.high <= 1


@pytest.mark.slow
def test_the_interval_of_auroc_is_that_of_drawn_groups() -> None:
    """Against scikit-learn with the draws as weights."""
    from sklearn.metrics import roc_auc_score

    rng = random.Random(3)
    right = np.array([rng.random() < 0.4 for _ in range(120)])
    scores = np.round(right + np.array([rng.gauss(0, 1.5) for _ in right]), 1)
    resamples = Resamples([f"g{number % 12}" for number in range(120)], 5)
    weights = np.concatenate([*resamples.weigh_rows()])
    drawn = [roc_auc_score(right, scores, sample_weight=weight) for weight in weights[1:]]
    found = measure_auroc(scores, right, resamples)
    assert (found.low, found.high) == pytest.approx(tuple(np.quantile(drawn, [0.025, 0.975])), abs=1e-4)


@given(
    guesses=st.lists(st.tuples(_COARSE, st.booleans()), min_size=1, max_size=10),
    risk=st.sampled_from([0.01, 0.1, 0.34, 0.5]),
)
def test_the_threshold_is_the_lowest_that_is_precise_enough(guesses: list[tuple[float, bool]], risk: float) -> None:
    values, right = (np.array(column) for column in zip(*guesses, strict=True))
    good = [value for value in values if 1 - right[values >= value].mean() <= risk + 1e-9]
    assert find_threshold(values, right, risk) == (min(good) if good else None)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_dataset(tmp_path_factory.mktemp("accept"), corpus(40), split=(0.1, 0.4, 0.5))


@pytest.fixture(scope="module")
def gold(dataset: Path) -> list[Row]:
    return list(rows(dataset, "eval"))


@pytest.fixture(scope="module")
def validation(dataset: Path) -> list[Row]:
    return list(rows(dataset, "proposer", "validation"))


@pytest.fixture
def verified(dataset: Path, tmp_path: Path) -> Callable[..., VerifierScore]:
    def run(lines: list[Row], validation: list[Row] | None = None) -> VerifierScore:
        given = None if validation is None else write_lines(tmp_path / "v.jsonl", *validation)
        found = score(write_lines(tmp_path / "p.jsonl", *lines), dataset, validation=given).verifier
        assert found is not None
        return found

    return run


def plant(row: Row, right: bool, value: float | None, **more: Any) -> Row:
    return guess_at(row, right=right, score=value, **more)


def find(found: VerifierScore, policy: str, precision: float | None = None) -> AcceptRow:
    return next(row for row in found.policies if (row.policy, row.precision_wanted) == (policy, precision))


def test_a_perfect_verifier_and_a_random_one(verified: Any, gold: list[Row], validation: list[Row]) -> None:
    rng = random.Random(0)

    def both(make: Callable[[bool], float]) -> VerifierScore:
        lines = [[plant(r, hit := rng.random() < 0.5, make(hit)) for r in part] for part in (gold, validation)]
        return verified(*lines)

    perfect = both(lambda hit: 3.0 + hit)
    assert perfect.auroc.value == 1 and perfect.thresholds_from == "validation"
    for precision in (0.90, 0.95, 0.99):
        row, oracle = find(perfect, "verifier", precision), find(perfect, "oracle")
        assert (row.accepted, row.precision, row.recall, row.threshold) == (oracle.accepted, 1, 1, 4)
    luck = both(lambda hit: rng.random())
    assert luck.auroc.low is not None and luck.auroc.high is not None
    assert luck.auroc.low < 0.5 < luck.auroc.high
    assert find(luck, "verifier", 0.9).accepted < 0.2


def test_policies_by_hand(verified: Any, gold: list[Row], validation: list[Row]) -> None:
    """Validation says: from score .6 on 9 of 10 are right. On test, 3 of 4 of those are; the confidence knows."""
    hits = [number % 10 != 0 for number in range(10)]
    tuned = [plant(r, hit, 0.6) for r, hit in zip(validation, hits, strict=False)]
    tuned += [plant(r, False, 0.5) for r in validation[10:20]]
    lines = [
        plant(r, number % 4 != 0, 0.7 if number % 2 else 0.6, confidence=0.1 + 0.8 * (number % 4 != 0))
        for number, r in enumerate(gold[:20])
    ]
    lines += [plant(r, True, 0.2) for r in gold[20:24]]
    found = verified(lines, tuned)
    assert (found.n, found.chosen_on) == (24, 20)
    row = find(found, "verifier", 0.9)
    assert (row.threshold, row.accepted, row.precision) == (0.6, round(20 / 24, 4), 0.75)
    assert row.recall == round(15 / 19, 4)
    nothing = find(found, "verifier", 0.95)
    assert (nothing.threshold, nothing.accepted, nothing.precision, nothing.recall) == (None, 0, None, 0)
    assert find(found, "confidence", 0.9).accepted == 0, "validation guesses without a confidence give no threshold"
    every, none, oracle = (find(found, policy) for policy in ("accept_all", "reject_all", "oracle"))
    assert (every.accepted, every.precision, every.recall) == (1, round(19 / 24, 4), 1)
    assert (none.accepted, none.precision, none.recall) == (0, None, 0)
    assert (oracle.accepted, oracle.precision, oracle.recall) == (round(19 / 24, 4), 1, 1)


def test_thresholds_never_come_from_what_is_measured(verified: Any, gold: list[Row], validation: list[Row]) -> None:
    """With validation guesses, whatever is right on test changes no threshold; without, one half changes the other's
    figures alone."""
    rng = random.Random(1)
    tuned = [plant(r, hit := rng.random() < 0.6, hit + rng.random()) for r in validation]
    values = [rng.random() * 2 for _ in gold]

    def thresholds(right: bool) -> set[float | None]:
        found = verified([plant(r, right, v) for r, v in zip(gold, values, strict=True)], tuned)
        return {row.threshold for row in found.policies if row.policy == "verifier"}

    assert thresholds(True) == thresholds(False) != {None}
    without = [r["group"] == gold[0]["group"] for r in gold]
    lines = [plant(r, rng.random() < 0.5, None if no else v) for r, v, no in zip(gold, values, without, strict=True)]
    halves = verified(lines)
    assert halves.thresholds_from == "half" and halves.n + halves.chosen_on == len(gold) - sum(without)
    assert min(halves.n, halves.chosen_on) > len(gold) // 4


def test_the_halves_are_whole_groups(gold: list[Row]) -> None:
    steps = [GoldStep("k", n, "t", r["group"], "s", "repair", "", (), "", (), ()) for n, r in enumerate(gold)]
    first = choose_half(steps)
    groups = [{step.group for step, chosen in zip(steps, first, strict=True) if chosen == side} for side in (0, 1)]
    assert not groups[0] & groups[1] and abs(len(groups[0]) - len(groups[1])) <= 1


def test_bad_validation_guesses(verified: Any, gold: list[Row], validation: list[Row]) -> None:
    good = [plant(r, True, 0.5) for r in gold]
    with pytest.raises(PredictionError, match="has no scores to choose a threshold on"):
        verified(good, [plant(r, True, None) for r in validation])
    with pytest.raises(PredictionError, match="are not among the validation rows"):
        verified(good, good)
    with pytest.raises(PredictionError, match=r"rows of the config eval; rows of proposer are wanted here"):
        verified(good, [{"predictions": 1, "config": "eval"}, *good])


GROUPS = 7


def judged(count: int = 90, seed: int = 0) -> tuple[JudgedSteps, list[str]]:
    """Steps of which a sure guess is right more often; some lack a guess, a score or both."""
    rng = random.Random(seed)
    steps: list[GoldStep] = []
    guesses: dict[tuple[str, int], list[Prediction]] = {}
    for number in range(count):
        call = PredictedCall(tool="bash", arguments='{"command":"ls"}')
        step = GoldStep(
            key=f"k{number}", step=2, task=f"t{number % 20}", group=f"g{number % GROUPS}", source="s",
            action="file_read", tool="bash", calls=(call,), effect="pure_read", slices=("natural",),
            next_actions=("file_read",),
        )  # fmt: skip
        steps.append(step)
        if rng.random() < 0.9:
            sure = round(rng.random(), 2)
            right = rng.random() < sure
            guess = Prediction(
                key=step.key, step=2, rank=1, action="file_read" if right else "repair", calls=(call,),
                confidence=None if rng.random() < 0.1 else sure, score=None if rng.random() < 0.1 else sure * 2 - 3,
            )  # fmt: skip
            guesses[step.key, 2] = [guess]
    return judge_guesses(steps, guesses, "call"), [step.group for step in steps]


def recompute(of: JudgedSteps, groups: list[str], row: CascadeRow, cost: float) -> list[list[float]]:
    """Value, low and high of the four figures, drawn group by group as the rows say."""
    values = {"verifier": of.score, "confidence": of.confidence, "all guesses": np.zeros(len(groups))}[row.by]
    least = -np.inf if row.threshold is None else row.threshold - 5e-7
    taken = (of.action >= 0) & (np.nan_to_num(values, nan=-np.inf) >= least)
    names = sorted({*groups})
    rng = np.random.default_rng(3)
    draws = [np.arange(len(names)), *(rng.integers(0, len(names), len(names)) for _ in range(1000))]
    members = [np.flatnonzero(np.array(groups) == name) for name in names]
    figures: list[list[float]] = []
    for drawn in draws:
        rows = np.concatenate([members[number] for number in drawn])
        t, r = taken[rows], of.is_right()[rows]
        figures.append([t.mean(), r[t].mean() if t.any() else np.nan, (r | ~t).mean(), cost + (~t).mean()])
    whole = np.array(figures)
    low, high = np.nanquantile(whole[1:], (0.025, 0.975), axis=0)
    return [[*each] for each in zip(whole[0], low, high, strict=True)]


@pytest.mark.parametrize("cost", [0.0, 0.25])
def test_each_figure_is_the_plain_one(cost: float) -> None:
    of, groups = judged()
    rows = list(measure_cascade(of, Resamples(groups, 3), name="p", cost=cost))
    assert {row.by for row in rows} == {"verifier", "confidence", "all guesses"} and len(rows) > 15
    for row in rows:
        found = [row.accepted, row.precision, row.accuracy, row.cost]
        expected = recompute(of, groups, row, cost)
        for share, numbers in zip(found, expected, strict=True):
            assert [share.value, share.low, share.high] == pytest.approx(numbers, abs=6e-5)
