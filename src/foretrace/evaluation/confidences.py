"""How reliable confidences and scores are, and what may be accepted by them: calibration, thresholds, a cascade."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import numpy as np

from foretrace.core.digest import digest
from foretrace.evaluation.bootstrap import Resamples
from foretrace.evaluation.dataset_rows import GoldStep
from foretrace.evaluation.figures import Guesses, JudgedSteps, is_right, make_share, make_share_of
from foretrace.evaluation.score_report import (
    AcceptRow,
    Calibration,
    CascadeRow,
    CoverageRow,
    ReliabilityBin,
    Share,
    VerifierScore,
)

BINS = 10
"""Bins of equal width between 0 and 1."""
RISKS = (0.05, 0.1, 0.2, 0.3, 0.5)
"""Shares of wrong guesses at which the coverage is reported."""
PRECISIONS = (0.90, 0.95, 0.99)
"""Target precisions: shares of the accepted guesses that should be right."""
SHARES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
"""Thresholds of a cascade accept at least these shares of all steps, the most confident first."""
_GATES = {"verifier": "score", "confidence": "confidence"}
"""The fields that measure how certain a guess is, by the name they have in rows."""
_DIGITS = 4


def measure_calibration(confidence: Any, right: Any, of: Literal["type", "guess"]) -> Calibration | None:
    """The calibration of guesses with a confidence in [0, 1] (guesses,); None if all are NaN, which is none."""
    known = ~np.isnan(confidence)
    confidence, hits = confidence[known], right[known].astype(float)
    if not len(confidence):
        return None
    errors, counts, _ = _sort_by_value(confidence, hits)
    # Guesses of equal confidence count by their expected error, since their order is arbitrary.
    rate = np.repeat(errors / counts, counts)
    return Calibration(
        of=of,
        n=len(confidence),
        without_confidence=int((~known).sum()),
        **_fill_bins(confidence, hits),
        brier=round(float(np.mean((confidence - hits) ** 2)), _DIGITS),
        aurc=round(float(np.mean(np.cumsum(rate) / np.arange(1, len(rate) + 1))), _DIGITS),
        coverage=[_find_coverage(confidence, hits, risk) for risk in RISKS],
    )


def _fill_bins(confidence: Any, hits: Any) -> dict[str, Any]:
    number = np.minimum((confidence * BINS).astype(int), BINS - 1)
    sums = [np.bincount(number, values, BINS) for values in (confidence, hits)]
    bins: list[ReliabilityBin] = []
    for each, n in enumerate(np.bincount(number, minlength=BINS).tolist()):
        mean, right = (round(float(values[each] / n), _DIGITS) if n else None for values in sums)
        bins.append(ReliabilityBin(low=each / BINS, high=(each + 1) / BINS, n=n, confidence=mean, right=right))
    return {"bins": bins, "ece": round(float(np.abs(sums[0] - sums[1]).sum() / len(confidence)), _DIGITS)}


def _sort_by_value(values: Any, hits: Any) -> tuple[Any, Any, Any]:
    """Errors and number of guesses of each distinct value, and the value, the highest first."""
    thresholds, number = np.unique(-values, return_inverse=True)
    errors = np.bincount(number, 1 - hits, len(thresholds))
    return errors, np.bincount(number, minlength=len(thresholds)), -thresholds


def find_threshold(values: Any, right: Any, risk: float) -> float | None:
    """The lowest of the values (guesses,) from which on at most a share `risk` is wrong; None if there is none. A value
    of -inf is never accepted."""
    known = ~np.isinf(values)
    errors, counts, thresholds = _sort_by_value(values[known], right[known].astype(float))
    good = np.flatnonzero(np.cumsum(errors) <= risk * np.cumsum(counts) + 1e-9)
    return float(thresholds[good[-1]]) if len(good) else None


def _find_coverage(confidence: Any, hits: Any, risk: float) -> CoverageRow:
    threshold = find_threshold(confidence, hits, risk)
    if threshold is None:
        return CoverageRow(risk=risk, coverage=0.0, threshold=None)
    coverage = round(float(np.mean(confidence >= threshold)), _DIGITS)
    return CoverageRow(risk=risk, coverage=coverage, threshold=round(threshold, 6))


def _get_values(judged: JudgedSteps, by: str) -> Any:
    """How certain the first guesses are; -inf if that is not known, so that they are never accepted."""
    return np.nan_to_num(getattr(judged, _GATES[by]), nan=-np.inf)


def measure_verifier(
    natural: JudgedSteps,
    guesses: Guesses,
    target: str,
    verifier: str | None,
    validation: JudgedSteps | None,
    seed: int,
) -> VerifierScore | None:
    """How good the scores of the guesses at test steps are; None if no guess has one. Thresholds are chosen on the
    steps of `validation`, or on half of the test groups, and acceptance is measured on the other half."""
    listed = [(step, guess) for step in natural.steps for guess in guesses.get((step.key, step.step), ())]
    if all(guess.score is None for _, guess in listed):
        return None
    right = np.array([is_right(step, guess, target) for step, guess in listed])

    def measure(values: Sequence[float | None]) -> Share:
        known = np.array([value is not None for value in values])
        groups = [step.group for (step, _), is_known in zip(listed, known, strict=True) if is_known]
        return measure_auroc(np.array(values, float)[known], right[known], Resamples(groups, seed))

    chosen_on, test = validation, natural
    if chosen_on is None:
        first_half = choose_half(natural.steps)
        chosen_on, test = natural.choose(first_half), natural.choose(~first_half)
    chosen_on, test = (each.choose(~np.isnan(each.score)) for each in (chosen_on, test))
    return VerifierScore(
        verifier=verifier,
        n=len(test.steps),
        without_score=sum(guess.rank == 1 and guess.score is None for _, guess in listed),
        auroc=measure([guess.score for _, guess in listed]),
        auroc_confidence=measure([guess.confidence for _, guess in listed]),
        thresholds_from="half" if validation is None else "validation",
        chosen_on=len(chosen_on.steps),
        policies=_list_policies(chosen_on, test) if len(test.steps) else [],
    )


def measure_auroc(scores: Any, right: Any, resamples: Resamples) -> Share:
    """Probability that a right guess has a higher score than a wrong one (a tie counts one half), with its interval; no
    value if all are right or all are wrong. `scores` and `right` are (guesses,)."""
    if not len(scores):
        return Share(value=None, low=None, high=None, n=0)
    order = np.argsort(scores, kind="stable")
    begins = np.union1d([0], np.flatnonzero(np.diff(scores[order], prepend=scores[order][0]) > 0))
    parts: list[Any] = []
    for weights in resamples.weigh_rows():
        good = np.add.reduceat((weights * right)[:, order], begins, axis=1)
        bad = np.add.reduceat((weights * ~right)[:, order], begins, axis=1)
        won = (good * (np.cumsum(bad, axis=1) - bad / 2)).sum(axis=1)
        pairs = good.sum(axis=1) * bad.sum(axis=1)
        parts.append(np.divide(won, pairs, out=np.full(len(pairs), np.nan), where=pairs > 0))
    return make_share_of(np.concatenate(parts), len(scores))


def choose_half(steps: Sequence[GoldStep]) -> Any:
    """Mask of the steps in half of the groups, chosen by hash, (steps,)."""
    groups = sorted({step.group for step in steps}, key=lambda group: digest("thresholds", group))
    first = {*groups[: (len(groups) + 1) // 2]}
    return np.fromiter((step.group in first for step in steps), bool, len(steps))


def _list_policies(chosen_on: JudgedSteps, test: JudgedSteps) -> list[AcceptRow]:
    right = test.is_right()

    def measure(policy: str, taken: Any, wanted: float | None = None, threshold: float | None = None) -> AcceptRow:
        hits = int((taken & right).sum())
        return AcceptRow(
            policy=policy,
            precision_wanted=wanted,
            threshold=None if threshold is None else round(threshold, 6),
            accepted=round(float(taken.mean()), _DIGITS),
            precision=round(hits / int(taken.sum()), _DIGITS) if taken.any() else None,
            recall=round(hits / int(right.sum()), _DIGITS) if right.any() else None,
        )

    rows: list[AcceptRow] = []
    for policy in _GATES:
        values = _get_values(test, policy)
        for precision in PRECISIONS if not np.isinf(values).all() else ():
            threshold = find_threshold(_get_values(chosen_on, policy), chosen_on.is_right(), 1 - precision)
            rows.append(measure(policy, values >= (np.inf if threshold is None else threshold), precision, threshold))
    every = np.ones(len(right), bool)
    return [*rows, measure("accept_all", every), measure("reject_all", ~every), measure("oracle", right)]


def measure_cascade(judged: JudgedSteps, resamples: Resamples, *, name: str, cost: float) -> Iterator[CascadeRow]:
    """A cascade: confident guesses of a predictor, each at a `cost` relative to the large model's, are accepted, and
    the large model is asked for the rest. That is the agent that took these steps, so it is right by definition."""
    guessed, right, every = judged.action >= 0, judged.is_right(), np.ones(len(judged.steps), bool)

    def measure(taken: Any, by: str, threshold: float | None = None) -> CascadeRow:
        return CascadeRow(
            predictor=name,
            by=by,
            threshold=None if threshold is None else round(threshold, 6),
            accepted=make_share(taken, every, resamples),
            precision=make_share(right, taken, resamples),
            accuracy=make_share(right | ~taken, every, resamples),
            cost=make_share(cost + ~taken, every, resamples),
        )

    for by in _GATES:
        values = np.where(guessed, _get_values(judged, by), -np.inf)
        known = np.sort(values[np.isfinite(values)])[::-1]
        places = [int(np.ceil(share * len(values))) - 1 for share in SHARES]
        for threshold in dict.fromkeys(float(known[place]) for place in places if 0 <= place < len(known)):
            yield measure(values >= threshold, by, threshold)
    yield measure(guessed, "all guesses")
