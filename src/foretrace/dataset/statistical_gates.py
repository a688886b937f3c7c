"""The statistical gates: families of pairs that can be guessed without reading the prompt are removed and named.

Three blind guessers see only the two completions of a pair. Each is a logistic model on phi(chosen) - phi(rejected)
without an intercept, so that the order of a pair cannot help. It learns on half of a family's groups, and is measured
on the other half."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from foretrace.core.digest import digest
from foretrace.dataset.recipes.base import Gate, GateVerdict

CONFIDENCE = 0.99
"""Two-sided confidence of the reported intervals. `measure_accuracy` explains why .99."""
_NO_SCORE = 1e-9
"""A score this close to zero is a tie, so that rounding cannot make the two orders of a pair differ."""

_NEWTON_STEPS, _NEWTON_TOLERANCE = 50, 1e-6
"""Most steps of the fit, and the change of a margin at which it ends: four to eight steps as a rule."""

Floats = NDArray[np.float64]


class PairwiseAccuracy(NamedTuple):
    """How often scores are right. Shares are fractions, rounded to 4 decimals."""

    accuracy: float
    """Share of pairs whose chosen completion got the higher score; a tie counts one half."""
    low: float
    high: float
    effective_groups: float
    """The number of equally large groups that is equivalent to the actual groups."""


def measure_accuracy(scores: Floats, groups: Sequence[str]) -> PairwiseAccuracy:
    """How often the scores, score(chosen) - score(rejected), are right, with a t interval from the delete-one-group
    jackknife.

    Pairs of one group resemble one another, so groups are the units. Degrees of freedom: the effective number of
    groups, G = (sum n)^2 / sum n^2, minus one. The half-width is at least 1.5/G: even if all G groups agree, up to 3/G
    of all groups may differ (the rule of three), each by half a point.

    Why 99%: three guessers are tried on each of four families. For a family at blind chance the probability that one
    guesser's interval lies wholly above .55 is at most .004 (.013 at 95%), so that a small family raises a false alarm
    in about 1% of builds. A true .65 fails 98 times in 100 on 500 independent held-out pairs, and 65 on 200.
    """
    right = np.where(np.abs(scores) <= _NO_SCORE, 0.5, (scores > 0).astype(np.float64))
    index = {group: at for at, group in enumerate(dict.fromkeys(groups))}
    where = np.array([index[group] for group in groups])
    sizes = np.bincount(where).astype(np.float64)
    points = np.bincount(where, weights=right)
    total, count = float(sizes.sum()), len(index)
    accuracy = float(points.sum()) / total
    effective = total**2 / float((sizes**2).sum())
    if count < 2:
        return PairwiseAccuracy(round(accuracy, 4), 0.0, 1.0, effective)
    from scipy.special import stdtrit  # imported late, because it is slow

    without = (points.sum() - points) / (total - sizes)
    error = math.sqrt((count - 1) / count * float(((without - without.mean()) ** 2).sum()))
    half = max(float(stdtrit(max(effective - 1, 1.0), (1 + CONFIDENCE) / 2)) * error, 1.5 / effective)
    low, high = max(0.0, accuracy - half), min(1.0, accuracy + half)
    return PairwiseAccuracy(round(accuracy, 4), round(low, 4), round(high, 4), effective)


def scale_columns(train: Floats, test: Floats) -> tuple[Floats, Floats]:
    """Divide the columns of both by their root mean square in train, without columns of zeros there. They are not
    centered, which would break the antisymmetry; values are limited to 5, so that none dominates."""
    size = np.sqrt((train**2).mean(axis=0))
    kept = size > 0
    return np.clip(train[:, kept] / size[kept], -5, 5), np.clip(test[:, kept] / size[kept], -5, 5)


def format_fraction(fraction: float, decimals: int) -> str:
    """A fraction in [0, 1] as `.512`, or `1.000`."""
    text = f"{fraction:.{decimals}f}"
    return text.removeprefix("0") if fraction < 1 else text


LIMIT = 0.55
"""Pairwise accuracy, as a fraction, above which a guesser has found a shortcut; blind chance is .5."""
SHORTCUT = 0.65
"""The pairwise accuracy that a test must be able to distinguish from `LIMIT`; otherwise it is undecided."""
MIN_GROUPS = 20
"""Fewest effective held-out groups (see `measure_accuracy`) for a decision."""
READ_CHARS = 1200
"""Most characters of a completion that `completion` reads, half of them from each end."""

_BUCKETS_LOG2 = 14
_NGRAMS = (2, 3, 4, 5)
_MIN_PAIRS_WITH_NGRAM = 3
_LENGTH_BINS = 8


class Pair(NamedTuple):
    """One preference pair as a blind guesser may see it."""

    place: str
    """A hash that orders the pairs of the family; the first ones form the sample of a build."""
    id: str
    """Unique within the family."""
    group: str
    """All pairs of a group are on the same side: learned from, or measured on."""
    chosen: str
    rejected: str


_Differences = Callable[[Sequence[Pair], Sequence[Pair]], tuple[Any, Any, float]]
"""(train pairs, test pairs) -> (train rows, test rows, C). A row is phi(chosen) - phi(rejected). C is the inverse
penalty strength, as in scikit-learn."""


def make_statistical_gates(families: Mapping[str, Sequence[Pair]], seed: int) -> tuple[list[Gate], list[str]]:
    """One gate for each family and blind guesser, and the families to remove: a shortcut does not fail the build."""
    gates = measure_shortcuts(families, seed)
    removed = {gate.name.split("/")[1] for gate in gates if gate.verdict == "removed"}
    return [g for g in gates if g.verdict != "undecided" or g.name.split("/")[1] not in removed], sorted(removed)


def measure_shortcuts(families: Mapping[str, Sequence[Pair]], seed: int) -> list[Gate]:
    """Measure the blind guessers on every family, sorted by family. The order of the pairs does not matter.

    A build measures only families that are not mirrored: one with the reverse of each pair in the same group gives
    exactly .5."""
    gates: list[Gate] = []
    for family, pairs in sorted(families.items()):
        shuffled = sorted(pairs, key=lambda pair: (digest("shortcuts/sample", str(seed), pair.id), pair))
        train, test = split_by_group(shuffled, seed)
        groups = len({pair.group for pair in pairs})
        for guesser, differences in _GUESSERS.items():
            found = _measure_guesser(differences, train, test)
            verdict = _decide_verdict(found)
            accuracy, low, high, _ = found or (None,) * 4
            figure = {"accuracy": accuracy, "low": low, "high": high}
            figure |= {"n": len(test), "pairs": len(pairs), "groups": groups}
            detail = f"{family}/{guesser}: {describe_shortcut(figure, verdict)}"
            gates.append(Gate(name=f"shortcut/{family}/{guesser}", verdict=verdict, figure=figure, detail=detail))
    return gates


def describe_shortcut(figure: Mapping[str, Any], verdict: GateVerdict) -> str:
    """A guesser's figures in one line: `.512 [.47, .55] n=480 pass`, where n counts held-out pairs; or `UNDECIDED at
    n=14`, where n counts all pairs of the family, followed by the interval if there is one."""
    interval = ""
    if figure["accuracy"] is not None:
        low, high = (format_fraction(figure[name], 2) for name in ("low", "high"))
        interval = f"{format_fraction(figure['accuracy'], 3)} [{low}, {high}]"
    if verdict == "undecided":
        seen = f" ({interval} on {figure['n']} held out)" if interval else ""
        return f"UNDECIDED at n={figure['pairs']}{seen}"
    return f"{interval} n={figure['n']} {'fail' if verdict == 'removed' else verdict}"


def split_by_group(pairs: Sequence[Pair], seed: int) -> tuple[list[Pair], list[Pair]]:
    """(learned from, held out): the groups in order of their hash with the seed, cut in the middle."""
    groups = sorted({pair.group for pair in pairs}, key=lambda group: digest("shortcuts/split", str(seed), group))
    learned = frozenset(groups[: len(groups) // 2])
    return [pair for pair in pairs if pair.group in learned], [pair for pair in pairs if pair.group not in learned]


def _decide_verdict(found: PairwiseAccuracy | None) -> GateVerdict:
    """`removed`: the interval is entirely above `LIMIT`. `pass`: it is entirely at or below `LIMIT`, or so narrow that
    an observed `SHORTCUT` would have been removed. `undecided`: neither, or too few groups."""
    if found is None or found.effective_groups < MIN_GROUPS:
        return "undecided"
    if found.low > LIMIT:
        return "removed"
    narrow = (found.high - found.low) / 2 <= SHORTCUT - LIMIT
    return "pass" if narrow or found.high <= LIMIT else "undecided"


def _measure_guesser(differences: _Differences, train: Sequence[Pair], test: Sequence[Pair]) -> PairwiseAccuracy | None:
    if len(train) < 2 or not test:
        return None
    return measure_accuracy(score_rows(*differences(train, test)), [pair.group for pair in test])


def score_rows(train: Any, test: Any, strength: float) -> Floats:
    """Scores of the test rows by a logistic model learned from the train rows; positive if `chosen` looks better.

    Each row is a difference chosen - rejected, dense or sparse. The model equals scikit-learn's `LogisticRegression`
    with `C=strength`, whose import takes a second and 60 MB.
    """
    if not train.shape[1]:
        return np.zeros(test.shape[0])
    from threadpoolctl import threadpool_limits

    with threadpool_limits(limits=1):  # sums of floats must not depend on the number of cores
        # Newton's method in the space of the rows: the best weights are a combination of rows, `train.T @ alpha`
        kernel = np.asarray((train @ train.T).todense() if hasattr(train, "todense") else train @ train.T)
        alpha = np.zeros(train.shape[0])
        for _ in range(_NEWTON_STEPS):
            margins = kernel @ alpha
            wrong = 1 / (1 + np.exp(np.clip(margins, -500, 500)))
            slope = np.eye(len(alpha)) / strength + (wrong * (1 - wrong))[:, None] * kernel
            step = np.linalg.solve(slope, wrong - alpha / strength)
            alpha += step
            if np.abs(kernel @ step).max() < _NEWTON_TOLERANCE:
                break
        return np.asarray(test @ (train.T @ alpha), dtype=np.float64)


def _compare_lengths(train: Sequence[Pair], test: Sequence[Pair]) -> tuple[Floats, Floats, float]:
    """Sizes, and the bin of each completion among the train completions' sizes."""
    sizes = {text: _measure_sizes(text) for pair in (*train, *test) for text in (pair.chosen, pair.rejected)}
    chars = [sizes[text][0] for pair in train for text in (pair.chosen, pair.rejected)]
    edges: list[float] = np.quantile(np.array(chars), np.arange(1, _LENGTH_BINS) / _LENGTH_BINS).tolist()

    def list_features(text: str) -> list[float]:
        own = bisect_left(edges, sizes[text][0])
        bins = [float(at == own) for at in range(_LENGTH_BINS)]
        return [*sizes[text], *(math.log1p(size) for size in sizes[text]), *bins]

    return (*scale_columns(_make_differences(train, list_features), _make_differences(test, list_features)), 0.1)


def _measure_sizes(text: str) -> tuple[float, ...]:
    lines = text.split("\n")
    return len(text), len(_encode_utf8(text)), len(lines), max(map(len, lines))


def _compare_formats(train: Sequence[Pair], test: Sequence[Pair]) -> tuple[Floats, Floats, float]:
    """Punctuation, white space, and the share of character classes."""
    return (*scale_columns(_make_differences(train, _count_marks), _make_differences(test, _count_marks)), 0.1)


_PUNCTUATION = np.array([code for code in range(128) if not chr(code).isalnum()])
_SEQUENCES = (": ", ", ", "  ", "\n\n", "\n ", "\n\t", "```", "\\n", "\\t", '\\"', "\\\\", "\\u", "{}", "[]", '""')
_EDGES = "{}[]()<>\"'`"


def _count_marks(text: str) -> list[float]:
    data = _encode_utf8(text)
    codes = np.bincount(np.frombuffer(data, dtype=np.uint8), minlength=256)
    digits, upper, lower = codes[48:58].sum(), codes[65:91].sum(), codes[97:123].sum()
    marks, wide = codes[_PUNCTUATION].sum(), codes[128:].sum()
    values = [*np.log1p(codes[_PUNCTUATION]), *(math.log1p(text.count(sequence)) for sequence in _SEQUENCES)]
    classes = (digits, upper, lower, marks, wide)
    values += [math.log1p(int(count)) for count in classes] + [int(count) / (len(data) or 1) for count in classes]
    for edge in (text[:1], text[-1:]):
        values += [float(edge == mark) for mark in _EDGES]
        values += [float(kind) for kind in (edge.isspace(), edge.isalpha(), edge.isdigit(), not edge)]
    return values


def _compare_completions(train: Sequence[Pair], test: Sequence[Pair]) -> tuple[Any, Any, float]:
    """Hashed character 2- to 5-grams that differ in at least three train pairs; rows of unit length."""
    from scipy.sparse import csr_matrix

    def make_rows(pairs: Sequence[Pair]) -> Any:
        found = [_compare_ngrams(pair) for pair in pairs]
        ends = np.cumsum([0, *(len(at) for at, _ in found)])
        columns, values = (np.concatenate(part) for part in zip(*found, strict=True))
        return csr_matrix((values, columns, ends), shape=(len(pairs), 1 << _BUCKETS_LOG2))

    learned, measured = make_rows(train), make_rows(test)
    kept = np.flatnonzero(np.bincount(learned.indices, minlength=learned.shape[1]) >= _MIN_PAIRS_WITH_NGRAM)
    rows = [learned[:, kept], measured[:, kept]]
    return (*(map(_normalize, rows) if kept.size else rows), 3.0)


def _normalize(rows: Any) -> Any:
    lengths = np.sqrt(np.add.reduceat(np.append(rows.data**2, 0.0), rows.indptr[:-1]))
    lengths[np.diff(rows.indptr) == 0] = 1.0
    rows.data /= np.repeat(lengths, np.diff(rows.indptr))
    return rows


def _compare_ngrams(pair: Pair) -> tuple[NDArray[np.int32], Floats]:
    """(buckets, values): signed log of how many more n-grams of a bucket `chosen` has than `rejected`."""
    chosen, rejected = _hash_ngrams(pair.chosen), _hash_ngrams(pair.rejected)
    size = 1 << _BUCKETS_LOG2
    more = np.bincount(chosen, minlength=size) - np.bincount(rejected, minlength=size)
    at = np.flatnonzero(more)
    return at.astype(np.int32), np.sign(more[at]) * np.log1p(np.abs(more[at]))


def _hash_ngrams(text: str) -> NDArray[np.int64]:
    """Buckets of all n-grams of the shortened text. Start and end are marked, so n-grams there differ.

    Why not scikit-learn's `HashingVectorizer`: it takes 14 times as long for the same n-grams, and fails on lone
    surrogates, which JSON texts may contain. Its hashes also differ, which would change the figures in manifests.
    """
    if len(text) > READ_CHARS:
        text = f"{text[: READ_CHARS // 2]}\0{text[-READ_CHARS // 2 :]}"
    codes = np.frombuffer(f"\2{text}\3".encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
    state, found = codes, list[NDArray[np.uint32]]()
    for n in range(2, max(_NGRAMS) + 1):
        if len(codes) < n:
            break
        state = state[: len(codes) - n + 1] * np.uint32(0x01000193) + codes[n - 1 :]
        if n in _NGRAMS:
            found.append((state ^ (state >> np.uint32(15))) * np.uint32(0x9E3779B1) >> np.uint32(32 - _BUCKETS_LOG2))
    return np.concatenate(found).astype(np.int64)


def _make_differences(pairs: Sequence[Pair], list_features: Callable[[str], list[float]]) -> Floats:
    """phi(chosen) - phi(rejected), and its signs: "the longer one" is a shortcut even if it is only slightly longer."""
    chosen = np.array([list_features(pair.chosen) for pair in pairs], dtype=np.float64)
    rejected = np.array([list_features(pair.rejected) for pair in pairs], dtype=np.float64)
    return np.hstack([chosen - rejected, np.sign(chosen - rejected)])


def _encode_utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


_GUESSERS: dict[str, _Differences] = {
    "length": _compare_lengths,
    "format": _compare_formats,
    "completion": _compare_completions,
}


MAX_SAMPLED_PAIRS = 1000
"""Most pairs of each family that the statistical gates read."""


_PairT = TypeVar("_PairT", bound=tuple[Any, ...])


class PairSample(Generic[_PairT]):
    """The first pairs of each family: tuples that begin with their place in it."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._families: dict[str, list[_PairT]] = {}

    def add(self, family: str, pairs: Iterable[_PairT]) -> None:
        """Add pairs, in any order."""
        sample = self._families.setdefault(family, [])
        sample.extend(pairs)
        if len(sample) > 1.25 * self._most:
            sample[:] = sorted(sample)[: self._most]

    def merge(self, other: PairSample[_PairT]) -> None:
        for family, pairs in other.take().items():
            self.add(family, pairs)

    def take(self) -> dict[str, list[_PairT]]:
        return {family: sorted(sample)[: self._most] for family, sample in self._families.items()}
