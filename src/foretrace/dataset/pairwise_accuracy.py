"""How often a score tells the preferred completion of a pair from the other, with an interval over groups."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

CONFIDENCE = 0.99
"""Two-sided confidence of the reported intervals; see `measure_interval` for why .99."""
_NO_SCORE = 1e-9
"""A score this near to zero is a tie: both orders of one pair must not differ by a rounding."""

Floats = NDArray[np.float64]


class PairwiseAccuracy(NamedTuple):
    """Shares are fractions, rounded to 4 decimals."""

    accuracy: float
    """Share of pairs whose chosen completion got the higher score; a tie counts one half."""
    low: float
    high: float
    effective_groups: float
    """The number of equally large groups that the sizes of the groups are worth."""


def measure_accuracy(scores: Floats, groups: Sequence[str]) -> PairwiseAccuracy:
    """How often the scores are right.

    Args:
        scores: One a pair, score(chosen) - score(rejected).
        groups: The group of each pair.
    """
    right = np.where(np.abs(scores) <= _NO_SCORE, 0.5, (scores > 0).astype(np.float64))
    return measure_interval(right, groups)


def measure_interval(right: Floats, groups: Sequence[str]) -> PairwiseAccuracy:
    """Accuracy with a t interval from the delete-one-group jackknife.

    Pairs of one group share a task and resemble one another, so groups, not pairs, are the units. The jackknife (leave
    out one group, see how far the accuracy moves) holds its level with few and unequal groups, where a bootstrap over
    groups is too narrow. Degrees of freedom: the number of equally large groups that the sizes are worth, G = (sum n)^2
    / sum n^2, less one. The half-width is at least 1.5/G: were all G groups alike, up to 3/G of all groups could still
    be otherwise (the rule of three), each by half a point.

    Why 99%: three guessers are tried on each of four families. For a family at blind chance the probability that one
    guesser's interval lies wholly above .55 is at most .004 (exact binomial; the worst case is all pairs of a group
    alike and 20 to 30 held-out groups) and below .0001 from 150 groups on. So the three of a small family raise a false
    alarm in about 1% of builds at most, those of an ordinary one never; at 95% it would be up to .013 a guesser. A true
    .65 fails 98 times in 100 on 500 independent held-out pairs, 65 on 200, and 57 on 170, about the fewest that pass.
    """
    index = {group: at for at, group in enumerate(dict.fromkeys(groups))}
    where = np.array([index[group] for group in groups])
    sizes = np.bincount(where).astype(np.float64)
    points = np.bincount(where, weights=right)
    total, count = float(sizes.sum()), len(index)
    accuracy = float(points.sum()) / total
    effective = total**2 / float((sizes**2).sum())
    if count < 2:
        return PairwiseAccuracy(round(accuracy, 4), 0.0, 1.0, effective)
    without = (points.sum() - points) / (total - sizes)
    error = math.sqrt((count - 1) / count * float(((without - without.mean()) ** 2).sum()))
    half = max(find_t_quantile(max(effective - 1, 1.0), CONFIDENCE) * error, 1.5 / effective)
    low, high = max(0.0, accuracy - half), min(1.0, accuracy + half)
    return PairwiseAccuracy(round(accuracy, 4), round(low, 4), round(high, 4), effective)


def find_t_quantile(freedom: float, share: float) -> float:
    """How far from zero Student's t lies at most with the probability `share`: solved here, since importing scipy takes
    longer than all of a build's statistics.

    With t = sqrt(freedom) tan(angle), the density is cos(angle) to the power of freedom - 1, which is smooth: Gauss's
    rule gives its integral to 7 digits and more.

    Args:
        freedom: Degrees of freedom, 1 or more.
        share: Between 0 and 1.
    """
    nodes, weights = np.polynomial.legendre.leggauss(64)
    scale = math.exp(math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)) / math.sqrt(math.pi)

    def find_share(t: float) -> float:
        angle = math.atan(t / math.sqrt(freedom))
        return scale * angle * float(weights @ np.cos(angle * (nodes + 1) / 2) ** (freedom - 1))

    low, high = 0.0, 1.0
    while find_share(high) < share:
        low, high = high, 2 * high
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if find_share(middle) < share else (low, middle)
    return (low + high) / 2


def scale_columns(train: Floats, test: Floats) -> tuple[Floats, Floats]:
    """Divide the columns of both by their root mean square in train; columns that are zero in train are left out.

    The columns are not centred, which would break the antisymmetry. Values are limited to 5, so that a very large
    one does not outweigh all others.
    """
    size = np.sqrt((train**2).mean(axis=0))
    kept = size > 0
    return np.clip(train[:, kept] / size[kept], -5, 5), np.clip(test[:, kept] / size[kept], -5, 5)


def format_fraction(fraction: float, decimals: int) -> str:
    """A fraction in [0, 1] as `.512`, or `1.000`."""
    text = f"{fraction:.{decimals}f}"
    return text.removeprefix("0") if fraction < 1 else text
