"""A cascade of a proposer and the large model, against plain numpy."""

from __future__ import annotations

import random

import numpy as np
import pytest

from foretrace.core.predictions import PredictedCall, Prediction
from foretrace.evaluation.bootstrap import Resamples
from foretrace.evaluation.confidences import SHARES, measure_cascade
from foretrace.evaluation.dataset_rows import GoldStep
from foretrace.evaluation.figures import JudgedSteps, judge_guesses
from foretrace.evaluation.score_report import CascadeRow

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


def test_a_curve_takes_more_and_more_and_ends_with_all_that_have_a_value() -> None:
    of, groups = judged()
    rows = [row for row in measure_cascade(of, Resamples(groups, 0), name="p", cost=0.1) if row.by == "confidence"]
    accepted = [row.accepted.value or 0.0 for row in rows]
    assert accepted == sorted({*accepted})
    assert all(got >= share for got, share in zip(accepted, SHARES, strict=False))
    for row in rows:
        assert row.cost.value == pytest.approx(1.1 - (row.accepted.value or 0.0), abs=2e-4)
