"""Intervals by a seeded bootstrap: units (tasks, groups) are drawn anew with replacement, their rows with them."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

RESAMPLES = 1000
_CELLS = 4_000_000
"""Draws that are held at one time, so that memory does not grow with the number of units."""
_BOUNDS = (0.025, 0.975)

Column = Mapping[int, float]
"""Values by the number of their task; a task without one has 0."""


class Resamples:
    """Some rows, and `RESAMPLES` times what is drawn of them; whole units are drawn.

    Whatever is measured comes as an array of (1 + RESAMPLES,): of the rows as they are, then of each draw.
    """

    def __init__(self, units: Sequence[str], seed: int) -> None:
        """
        Args:
            units: Name of the unit of each row.
            seed: Seed of the draws, which do not depend on the order of the rows.
        """
        numbers = {name: number for number, name in enumerate(sorted({*units}))}
        self._unit = np.array([numbers[name] for name in units], np.int64)
        count = len(numbers)
        drawn = _draw(np.random.default_rng(seed), count, RESAMPLES) if count else ()
        self._weights = np.array([np.ones(count), *drawn], float)
        """How often each unit was drawn, (1 + RESAMPLES, units)."""

    def sum(self, values: Any) -> Any:
        """Sum of the values of the rows."""
        return self._weights @ np.bincount(self._unit, values, self._weights.shape[1])

    def measure_share(self, hits: Any, among: Any) -> Any:
        """Share of hits, which may be parts of 1, among the rows that count; NaN in a draw without one of these."""
        whole = self.sum(among)
        return np.divide(self.sum(hits * among), whole, out=np.full(len(whole), np.nan), where=whole > 0)

    def measure_f1(self, gold: Any, guess: Any) -> Any:
        """F1 of a class; NaN in a draw that does not hold it."""
        held = self.sum(gold)
        f1 = np.full(len(held), np.nan)
        return np.divide(2 * self.sum(gold & guess), held + self.sum(guess), out=f1, where=held > 0)

    def weigh_rows(self) -> Iterator[Any]:
        """How often each row was drawn, (draws, rows) of a few draws at a time."""
        at_once = max(1, _CELLS // max(len(self._unit), 1))
        for begin in range(0, len(self._weights), at_once):
            yield self._weights[begin : begin + at_once, self._unit]


def find_interval(values: Any) -> tuple[float, float] | None:
    """The 95 % interval of what was measured by `Resamples`; None where no draw has a value."""
    spread = values[1:]
    spread = spread[~np.isnan(spread)]
    if not len(spread):
        return None
    low, high = np.quantile(spread, _BOUNDS)
    return float(low), float(high)


def measure_intervals(
    ratios: Mapping[Hashable, tuple[Column, Column]], tasks: int, *, seed: int, resamples: int = RESAMPLES
) -> dict[Hashable, tuple[float, float]]:
    """The 95 % interval of each ratio of two sums over tasks.

    Args:
        ratios: By name, what is summed above and below the line. All share the draws.
        tasks: Number of tasks.
        seed: Seed of the draws.
        resamples: How often all tasks are drawn.

    Returns:
        Low and high by name, without the ratios to which fewer than two tasks add: they have no interval. A draw whose
        lower sum is 0 counts for nothing.
    """
    generator = np.random.default_rng(seed)
    columns = {name: (_split(above), _split(below)) for name, (above, below) in ratios.items() if len(below) > 1}
    shares = {name: np.full(resamples, np.nan) for name in columns}
    at_once = max(1, _CELLS // max(tasks, 1))
    for begin in range(0, resamples if tasks else 0, at_once):
        count = min(at_once, resamples - begin)
        weights = np.array([*_draw(generator, tasks, count)], float)
        for name, ((upper, above), (lower, below)) in columns.items():
            sums = weights[:, lower] @ below
            top = weights[:, upper] @ above
            np.divide(top, sums, out=shares[name][begin : begin + count], where=sums > 0)
    return {
        name: (float(low), float(high))
        for name, drawn in shares.items()
        for low, high in [np.nanquantile(drawn, _BOUNDS)]
    }


def _draw(generator: np.random.Generator, units: int, times: int) -> Iterator[Any]:
    """How often each unit is drawn, `times` times."""
    return (np.bincount(generator.integers(0, units, units), minlength=units) for _ in range(times))


def _split(column: Column) -> tuple[np.ndarray, np.ndarray]:
    """Numbers of tasks, ascending, and their values."""
    numbers = sorted(column)
    return np.array(numbers, np.int64), np.array([column[number] for number in numbers], np.float64)
