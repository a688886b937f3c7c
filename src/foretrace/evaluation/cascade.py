"""A cascade: confident guesses of a proposer are accepted, and the large model is asked for the rest.

The large model is the agent that took these steps, so it is right by definition. Each threshold has the share of steps
whose guess is accepted, the share of all steps that come out right, and the cost relative to always asking the model.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from foretrace.evaluation.bootstrap import Resamples
from foretrace.evaluation.figures import JudgedSteps, make_share
from foretrace.evaluation.score_report import CascadeRow

SHARES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
"""Thresholds are chosen to accept at least these shares of all steps, the most confident first."""
_VALUES = {"score": "verifier", "confidence": "confidence"}
"""The name used in the rows for each field that measures a guess's certainty."""


def measure_cascade(judged: JudgedSteps, resamples: Resamples, *, name: str, cost: float) -> Iterator[CascadeRow]:
    """The rows of one predictor: by its verifier's scores, by its own confidences, and one that takes every guess.

    Args:
        judged: Steps in their natural distribution.
        resamples: Draws of these steps.
        name: Name of the predictor.
        cost: Cost of a guess and its verification, relative to asking the large model.
    """
    guessed = judged.action >= 0
    for field, by in _VALUES.items():
        values = np.where(guessed, np.nan_to_num(getattr(judged, field), nan=-np.inf), -np.inf)
        for threshold in _choose_thresholds(values):
            yield _measure_row(values >= threshold, judged.right, resamples, name, by, threshold, cost)
    yield _measure_row(guessed, judged.right, resamples, name, "all guesses", None, cost)


def _choose_thresholds(values: Any) -> list[float]:
    """The thresholds that accept `SHARES` of all steps, the highest first, without duplicates."""
    known = np.sort(values[np.isfinite(values)])[::-1]
    places = [int(np.ceil(share * len(values))) - 1 for share in SHARES]
    return list(dict.fromkeys(float(known[place]) for place in places if 0 <= place < len(known)))


def _measure_row(
    taken: Any, right: Any, resamples: Resamples, name: str, by: str, threshold: float | None, cost: float
) -> CascadeRow:
    every = np.ones(len(taken), bool)
    return CascadeRow(
        predictor=name,
        by=by,
        threshold=None if threshold is None else round(threshold, 6),
        accepted=make_share(taken, every, resamples),
        precision=make_share(right, taken, resamples),
        accuracy=make_share(right | ~taken, every, resamples),
        cost=make_share(cost + ~taken, every, resamples),
    )
