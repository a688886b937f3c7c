"""Calibration and risk-coverage: against figures by hand, brute force, scikit-learn, and laws."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrace.evaluation.confidences import BINS, measure_calibration
from foretrace.evaluation.score_report import Calibration

_GUESSES = st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1, max_size=40)
_COARSE = st.lists(st.tuples(st.sampled_from([0.0, 0.1, 0.5, 0.9, 1.0]), st.booleans()), min_size=1, max_size=12)


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


@given(guesses=_COARSE)
def test_ties_count_as_the_mean_over_all_orders(guesses: list[tuple[float, bool]]) -> None:
    """Against a simulation: guesses of one confidence in a random order."""
    rng = random.Random(1)
    means = []
    for _ in range(600):
        order = sorted(guesses, key=lambda guess: (-guess[0], rng.random()))
        wrong = np.cumsum([not right for _, right in order])
        means.append(np.mean(wrong / np.arange(1, len(order) + 1)))
    assert measure(guesses).aurc == pytest.approx(np.mean(means), abs=0.06)


@given(guesses=_COARSE)
def test_the_coverage_is_the_best_that_a_threshold_gives(guesses: list[tuple[float, bool]]) -> None:
    for row in measure(guesses).coverage:
        best = 0.0
        for threshold in {confidence for confidence, _ in guesses}:
            taken = [right for confidence, right in guesses if confidence >= threshold]
            if 1 - np.mean(taken) <= row.risk + 1e-9:
                best = max(best, len(taken) / len(guesses))
        assert row.coverage == pytest.approx(best, abs=1e-4)


def test_a_planted_calibration_is_measured_as_what_it_is() -> None:
    rng = random.Random(2)
    drawn = [rng.random() for _ in range(20_000)]
    honest = measure([(c, rng.random() < c) for c in drawn])
    boastful = measure([(min(1.0, c + 0.2), rng.random() < c) for c in drawn])
    assert honest.ece < 0.02
    assert boastful.ece == pytest.approx(0.18, abs=0.02), "above .8 it cannot boast by .2 any more"
    assert honest.aurc == pytest.approx(0.25, abs=0.01), "mean over coverage c of the mean risk c / 2"
