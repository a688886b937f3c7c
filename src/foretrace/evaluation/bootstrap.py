"""Intervals by a seeded bootstrap: whole units (tasks, groups) are resampled with replacement."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

RESAMPLES = 1000
_CELLS = 4_000_000
"""Row weights held in memory at a time, so that memory does not grow with the number of rows."""
_BOUNDS = (0.025, 0.975)


class Resamples:
    """A set of rows and `RESAMPLES` bootstrap draws of it; whole units are drawn.

    Measurements are arrays of (1 + RESAMPLES,): first the rows as they are, then each draw.
    """

    def __init__(self, units: Sequence[str], seed: int) -> None:
        """`units`: name of the unit of each row. The draws do not depend on the order of the rows."""
        numbers = {name: number for number, name in enumerate(sorted({*units}))}
        self._unit = np.array([numbers[name] for name in units], np.int64)
        self._units = len(numbers)
        generator = np.random.default_rng(seed)
        drawn = (generator.integers(0, self._units, self._units) for _ in range(RESAMPLES if self._units else 0))
        counts = (np.bincount(each, minlength=self._units) for each in drawn)
        weights = np.array([np.ones(self._units), *counts], np.uint16)
        at_once = max(1, _CELLS // max(len(self._unit), 1))
        self._blocks = [weights[begin : begin + at_once] for begin in range(0, len(weights), at_once)]
        """How often each unit was drawn: blocks of (draws, units), with 1 + RESAMPLES draws in all."""

    def sum(self, values: Any) -> Any:
        """Sum of the rows' values, given as (rows,), or as (rows, figures) for several figures at once."""
        totals = np.zeros((self._units, *np.shape(values)[1:]))
        np.add.at(totals, self._unit, values)
        return np.concatenate([weights @ totals for weights in self._blocks])

    def measure_share(self, hits: Any, among: Any) -> Any:
        """Share of hits (which may be fractions) among the rows that count; NaN in a draw without such rows."""
        return _divide(self.sum(hits * among), self.sum(among))

    def find_ratio_intervals(
        self, ratios: Sequence[tuple[Sequence[float], Sequence[float]]]
    ) -> list[tuple[float, float] | tuple[None, None]]:
        """The 95% interval of each ratio of two sums over the rows; (None, None) if fewer than two rows contribute to
        the denominator."""
        sums = self.sum(np.array([*(part for part, _ in ratios), *(whole for _, whole in ratios)]).T).T
        intervals: list[tuple[float, float] | tuple[None, None]] = []
        for (_, whole), parts, wholes in zip(ratios, sums, sums[len(ratios) :], strict=False):
            found = find_interval(_divide(parts, wholes)) if sum(map(bool, whole)) > 1 else None
            intervals.append(found or (None, None))
        return intervals

    def measure_f1(self, gold: Any, guess: Any) -> Any:
        """F1 of a class; NaN in a draw without that class."""
        held = self.sum(gold)
        return np.where(held > 0, _divide(2 * self.sum(gold & guess), held + self.sum(guess)), np.nan)

    def weigh_rows(self) -> Iterator[Any]:
        """How often each row was drawn: (draws, rows), a few draws at a time."""
        return (weights[:, self._unit].astype(float) for weights in self._blocks)


def _divide(parts: Any, wholes: Any) -> Any:
    """Ratios of two measurements; NaN where the whole is 0."""
    return np.divide(parts, wholes, out=np.full(np.shape(wholes), np.nan), where=np.asarray(wholes) > 0)


def find_interval(values: Any) -> tuple[float, float] | None:
    """The 95% interval of a measurement of `Resamples`; None if no draw has a value."""
    spread = values[1:]
    spread = spread[~np.isnan(spread)]
    if not len(spread):
        return None
    low, high = np.quantile(spread, _BOUNDS)
    return float(low), float(high)
