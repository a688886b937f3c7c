"""Whether confidences are what they say: expected calibration error, reliability, risk against coverage."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from foretrace.evaluation.score_report import Calibration, CoverageRow, ReliabilityBin

BINS = 10
"""Bins of equal width between 0 and 1."""
RISKS = (0.05, 0.1, 0.2, 0.3, 0.5)
"""Shares of wrong guesses for which the coverage is said."""
_DIGITS = 4


def measure_calibration(confidence: Any, right: Any, of: Literal["type", "call"]) -> Calibration | None:
    """The calibration of some guesses; None where none has a confidence.

    Args:
        confidence: In [0, 1], (guesses,); NaN where there is none.
        right: Whether the guess is right, (guesses,).
        of: What is right.
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
    """Expected calibration error: mean distance of confidence and share of right ones, bin by bin."""
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
    """For each confidence that occurs, the highest first: errors and number of the guesses that have it, and itself."""
    thresholds, number = np.unique(-confidence, return_inverse=True)
    errors = np.bincount(number, 1 - hits, len(thresholds))
    return errors, np.bincount(number, minlength=len(thresholds)), -thresholds


def _measure_aurc(errors: Any, counts: Any) -> float:
    """Mean over n = 1, 2, ... of the share of wrong ones among the n most confident; guesses of one confidence come in
    any order, so what is expected of them counts."""
    rate = np.repeat(errors / counts, counts)
    return float(np.mean(np.cumsum(rate) / np.arange(1, len(rate) + 1)))


def _find_coverage(risk: float, errors: Any, counts: Any, thresholds: Any) -> CoverageRow:
    last = _find_last(risk, errors, counts)
    if last is None:
        return CoverageRow(risk=risk, coverage=0.0, threshold=None)
    coverage = round(float(counts[: last + 1].sum() / counts.sum()), _DIGITS)
    return CoverageRow(risk=risk, coverage=coverage, threshold=round(float(thresholds[last]), 6))


def find_threshold(values: Any, right: Any, risk: float) -> float | None:
    """The lowest value from which on at most a share `risk` of the guesses is wrong; None where there is no such value.

    Args:
        values: Higher is better, (guesses,); one of -inf is never taken.
        right: (guesses,).
        risk: In [0, 1].
    """
    known = ~np.isinf(values)
    if not known.any():
        return None
    errors, counts, thresholds = _sort_by_confidence(values[known], right[known].astype(float))
    last = _find_last(risk, errors, counts)
    return None if last is None else float(thresholds[last])


def _find_last(risk: float, errors: Any, counts: Any) -> int | None:
    """The lowest threshold, by its place, from which on at most a share `risk` is wrong."""
    good = np.flatnonzero(np.cumsum(errors) <= risk * np.cumsum(counts) + 1e-9)
    return int(good[-1]) if len(good) else None
