"""A cascade of a proposer and the large model: guesses that are sure enough are taken; it is asked for the rest.

The large model is the agent whose steps these are, so what it does is right by definition. At each threshold: the share
of guesses that is taken, how many of all steps come out right, and what that costs beside always asking the large one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from foretrace.evaluation.bootstrap import Resamples
from foretrace.evaluation.figures import JudgedSteps, make_share
from foretrace.evaluation.score_report import CascadeRow

SHARES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
"""Shares of all steps whose guesses are taken, at least, the surest first."""
_VALUES = {"score": "verifier", "confidence": "confidence"}
"""By field of the guesses that says how sure one is: what the rows call it."""


def measure_cascade(judged: JudgedSteps, resamples: Resamples, *, name: str, cost: float) -> Iterator[CascadeRow]:
    """The rows of one predictor: by its verifier's scores, by its own confidences, and one that takes every guess.

    Args:
        judged: Steps, as they come.
        resamples: Draws of these steps.
        name: Of the predictor.
        cost: Of a guess and its verification, where asking the large model is 1.
    """
    guessed = judged.action >= 0
    for field, by in _VALUES.items():
        values = np.where(guessed, np.nan_to_num(getattr(judged, field), nan=-np.inf), -np.inf)
        for threshold in _choose_thresholds(values):
            yield _measure_row(values >= threshold, judged.right, resamples, name, by, threshold, cost)
    yield _measure_row(guessed, judged.right, resamples, name, "all guesses", None, cost)


def _choose_thresholds(values: Any) -> list[float]:
    """The values from which on these shares of all steps are taken, without those that repeat, the highest first."""
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
