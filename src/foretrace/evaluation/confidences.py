"""How reliable confidences and scores are: calibration, risk-coverage, and acceptance thresholds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from foretrace.core.digest import digest
from foretrace.evaluation.bootstrap import Resamples
from foretrace.evaluation.dataset_rows import GoldStep
from foretrace.evaluation.figures import Guesses, JudgedSteps, is_right, make_share_of
from foretrace.evaluation.score_report import AcceptRow, Calibration, CoverageRow, ReliabilityBin, Share, VerifierScore

BINS = 10
"""Bins of equal width between 0 and 1."""
RISKS = (0.05, 0.1, 0.2, 0.3, 0.5)
"""Shares of wrong guesses at which the coverage is reported."""
PRECISIONS = (0.90, 0.95, 0.99)
"""Target precisions: shares of the accepted guesses that should be right."""
_DIGITS = 4
_NO_SHARE = Share(value=None, low=None, high=None, n=0)


def measure_calibration(confidence: Any, right: Any, of: Literal["type", "call"]) -> Calibration | None:
    """The calibration of guesses; None if none of them has a confidence.

    Args:
        confidence: In [0, 1], (guesses,); NaN if there is none.
        right: Whether the guess is right, (guesses,).
        of: What `right` refers to.
    """
    known = ~np.isnan(confidence)
    confidence, hits = confidence[known], right[known].astype(float)
    if not len(confidence):
        return None
    errors, counts, thresholds = _sort_by_confidence(confidence, hits)
    return Calibration(
        of=of,
        n=len(confidence),
        without_confidence=int((~known).sum()),
        ece=round(measure_ece(confidence, hits), _DIGITS),
        brier=round(float(np.mean((confidence - hits) ** 2)), _DIGITS),
        bins=_fill_bins(confidence, hits),
        aurc=round(_measure_aurc(errors, counts), _DIGITS),
        coverage=[_find_coverage(risk, errors, counts, thresholds) for risk in RISKS],
    )


def measure_ece(confidence: Any, hits: Any) -> float:
    """Expected calibration error: mean distance between confidence and accuracy over the bins."""
    number = _number_bins(confidence)
    sums = (np.bincount(number, values, BINS) for values in (confidence, hits))
    return float(np.abs(next(sums) - next(sums)).sum() / len(confidence))


def _number_bins(confidence: Any) -> Any:
    return np.minimum((confidence * BINS).astype(int), BINS - 1)


def _fill_bins(confidence: Any, hits: Any) -> list[ReliabilityBin]:
    number = _number_bins(confidence)
    bins: list[ReliabilityBin] = []
    for each in range(BINS):
        own = number == each
        mean, right = (round(float(v[own].mean()), _DIGITS) if own.any() else None for v in (confidence, hits))
        low, high = each / BINS, (each + 1) / BINS
        bins.append(ReliabilityBin(low=low, high=high, n=int(own.sum()), confidence=mean, right=right))
    return bins


def _sort_by_confidence(confidence: Any, hits: Any) -> tuple[Any, Any, Any]:
    """Errors, number of guesses and value of each distinct confidence, the highest first."""
    thresholds, number = np.unique(-confidence, return_inverse=True)
    errors = np.bincount(number, 1 - hits, len(thresholds))
    return errors, np.bincount(number, minlength=len(thresholds)), -thresholds


def _measure_aurc(errors: Any, counts: Any) -> float:
    """Area under the risk-coverage curve: mean over n = 1, 2, ... of the error rate of the n most confident guesses.
    Guesses of equal confidence count by their expected error, since their order is arbitrary."""
    rate = np.repeat(errors / counts, counts)
    return float(np.mean(np.cumsum(rate) / np.arange(1, len(rate) + 1)))


def _find_coverage(risk: float, errors: Any, counts: Any, thresholds: Any) -> CoverageRow:
    last = _find_last(risk, errors, counts)
    if last is None:
        return CoverageRow(risk=risk, coverage=0.0, threshold=None)
    coverage = round(float(counts[: last + 1].sum() / counts.sum()), _DIGITS)
    return CoverageRow(risk=risk, coverage=coverage, threshold=round(float(thresholds[last]), 6))


def find_threshold(values: Any, right: Any, risk: float) -> float | None:
    """The lowest threshold at which at most a share `risk` of the accepted guesses is wrong; None if there is none.

    Args:
        values: Higher is better, (guesses,); -inf is never accepted.
        right: Whether the guess is right, (guesses,).
        risk: In [0, 1].
    """
    known = ~np.isinf(values)
    if not known.any():
        return None
    errors, counts, thresholds = _sort_by_confidence(values[known], right[known].astype(float))
    last = _find_last(risk, errors, counts)
    return None if last is None else float(thresholds[last])


def _find_last(risk: float, errors: Any, counts: Any) -> int | None:
    """Index of the lowest threshold at which at most a share `risk` is wrong."""
    good = np.flatnonzero(np.cumsum(errors) <= risk * np.cumsum(counts) + 1e-9)
    return int(good[-1]) if len(good) else None


def measure_verifier(
    natural: JudgedSteps,
    guesses: Guesses,
    target: str,
    *,
    verifier: str | None,
    validation: JudgedSteps | None,
    seed: int,
) -> VerifierScore | None:
    """How good the scores are; None if no guess has one.

    Args:
        natural: Test steps in their natural distribution.
        guesses: All guesses at these steps.
        target: `type` or `call`.
        verifier: Name of the verifier that gave the scores.
        validation: Steps of the validation split, on which thresholds are chosen. Without them, thresholds are chosen
            on half of the test groups, and acceptance is measured on the other half.
        seed: Seed of the intervals.
    """
    listed = [(step, guess) for step in natural.steps for guess in guesses.get((step.key, step.step), ())]
    scored = [(step, guess, guess.score) for step, guess in listed if guess.score is not None]
    if not scored:
        return None
    with_confidence = [(step, guess, guess.confidence) for step, guess in listed if guess.confidence is not None]
    if validation is None:
        first_half = _choose_half(natural.steps)
        chosen_on, test = natural.choose(first_half), natural.choose(~first_half)
    else:
        chosen_on, test = validation, natural
    chosen_on, test = (each.choose(~np.isnan(each.score)) for each in (chosen_on, test))
    return VerifierScore(
        verifier=verifier,
        n=len(test.steps),
        without_score=sum(guess.rank == 1 and guess.score is None for _, guess in listed),
        auroc=_measure_scored(scored, target, seed),
        auroc_confidence=_measure_scored(with_confidence, target, seed) if with_confidence else _NO_SHARE,
        thresholds_from="half" if validation is None else "validation",
        chosen_on=len(chosen_on.steps),
        policies=_list_policies(chosen_on, test) if len(test.steps) else [],
    )


def _measure_scored(scored: Sequence[tuple[GoldStep, Any, float]], target: str, seed: int) -> Share:
    right = np.array([is_right(step, guess, target) for step, guess, _ in scored])
    values = np.array([value for _, _, value in scored], float)
    return measure_auroc(values, right, Resamples([step.group for step, _, _ in scored], seed))


def measure_auroc(scores: Any, right: Any, resamples: Resamples) -> Share:
    """Probability that a right guess has a higher score than a wrong one (a tie counts one half), with its interval; no
    value if all are right or all are wrong.

    Args:
        scores: (guesses,).
        right: Whether the guess is right, (guesses,).
        resamples: Draws of these guesses.
    """
    order = np.argsort(scores, kind="stable")
    begins = np.flatnonzero(np.diff(scores[order], prepend=-np.inf) > 0)
    if not len(begins):
        begins = np.zeros(1, int)
    parts: list[Any] = []
    for weights in resamples.weigh_rows():
        good = np.add.reduceat((weights * right)[:, order], begins, axis=1)
        bad = np.add.reduceat((weights * ~right)[:, order], begins, axis=1)
        won = (good * (np.cumsum(bad, axis=1) - bad / 2)).sum(axis=1)
        pairs = good.sum(axis=1) * bad.sum(axis=1)
        parts.append(np.divide(won, pairs, out=np.full(len(pairs), np.nan), where=pairs > 0))
    return make_share_of(np.concatenate(parts), len(scores))


def _choose_half(steps: Sequence[GoldStep]) -> Any:
    """Mask of the steps in half of the groups, chosen by hash, (steps,)."""
    groups = sorted({step.group for step in steps}, key=lambda group: digest("thresholds", group))
    first = {*groups[: (len(groups) + 1) // 2]}
    return np.fromiter((step.group in first for step in steps), bool, len(steps))


def _list_policies(chosen_on: JudgedSteps, test: JudgedSteps) -> list[AcceptRow]:
    """What each policy accepts of the test guesses, with thresholds chosen only on `chosen_on`."""
    rows: list[AcceptRow] = []
    right = test.right
    for policy, field in (("verifier", "score"), ("confidence", "confidence")):
        # A guess without a value is never accepted.
        values, known = (np.nan_to_num(getattr(each, field), nan=-np.inf) for each in (test, chosen_on))
        if np.isinf(values).all():
            continue
        for precision in PRECISIONS:
            threshold = find_threshold(known, chosen_on.right, 1 - precision)
            taken = np.zeros(len(right), bool) if threshold is None else values >= threshold
            rows.append(_measure_policy(policy, taken, right, precision, threshold))
    every = np.ones(len(right), bool)
    for policy, taken in (("accept_all", every), ("reject_all", ~every), ("oracle", right)):
        rows.append(_measure_policy(policy, taken, right, None, None))
    return rows


def _measure_policy(policy: str, taken: Any, right: Any, wanted: float | None, threshold: float | None) -> AcceptRow:
    hits = int((taken & right).sum())
    return AcceptRow(
        policy=policy,
        precision_wanted=wanted,
        threshold=None if threshold is None else round(threshold, 6),
        accepted=round(float(taken.mean()), _DIGITS),
        precision=round(hits / int(taken.sum()), _DIGITS) if taken.any() else None,
        recall=round(hits / int(right.sum()), _DIGITS) if right.any() else None,
    )
