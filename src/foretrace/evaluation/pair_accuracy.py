"""How often a verifier prefers the right action of a pair: on the `verifier` rows of test groups, by family."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from foretrace.core.errors import PredictionError
from foretrace.core.pair_scores import PairPlace, PairScore, PairScoresHeader, read_pair_scores
from foretrace.core.report import Report
from foretrace.evaluation.bootstrap import Resamples
from foretrace.evaluation.dataset_rows import check_known, check_version, read_columns, read_target
from foretrace.evaluation.figures import make_share
from foretrace.evaluation.score_report import Share

_PLACE = ("key", "step", "family", "pair")


class FamilyRow(msgspec.Struct, frozen=True, kw_only=True):
    """The pairs of one family, or all (then with an empty name)."""

    name: str
    accuracy: Share
    """Share of pairs whose right action has the higher score; a tie counts one half, a pair without scores as wrong."""


class PairReport(Report, msgspec.Struct, frozen=True, kw_only=True):
    """How a verifier does on pairs, and what was wrong with its scores."""

    verifier: str
    families: list[FamilyRow]
    """All together, then by name."""
    rows: int
    """Pairs of the split."""
    groups: int
    missing: int
    """Pairs without two scores: counted as wrong."""
    unknown: int
    """Scores of pairs that the dataset does not have: ignored. More than half of them are refused."""
    problems: dict[str, int]
    latency_s: dict[str, float] = {}
    seed: int = 0


class _Pair(NamedTuple):
    place: PairPlace
    group: str


def score_pairs(
    scores: Path | str,
    dataset: Path | str,
    *,
    seed: int = 0,
    allow_partial: bool = False,
    allow_other_version: bool = False,
) -> PairReport:
    """Measure pairwise accuracy on the `verifier` rows of the test split.

    Args:
        scores: A file of pair scores (see `core/pair_scores.py`).
        dataset: Folder that `build` wrote.
        seed: Seed of the bootstrap over groups.
        allow_partial: Score although most of them are of pairs that the dataset does not have.
        allow_other_version: Score although they were made for another version of the dataset.

    Raises:
        PredictionError: no pairs, or scores that cannot be read or do not fit.
    """
    dataset = Path(dataset)
    read_target(dataset)
    file = read_pair_scores(Path(scores))
    if not file.scores:
        raise PredictionError(f"{file.path}: holds no scores of pairs")
    header = file.header or PairScoresHeader()
    check_version(file.path, header.dataset, dataset, allowed=allow_other_version)
    pairs = [*_read_pairs(dataset)]
    if not pairs:
        raise PredictionError(f"{dataset}: has no test rows of the config verifier")
    places = {pair.place for pair in pairs}
    unknown = [place for place in file.scores if place not in places]
    where = f"the test pairs of {dataset}"
    check_known(file.path, "scores are of pairs", unknown, len(file.scores), where, allowed=allow_partial)
    judged = [_judge(file.scores.get(pair.place)) for pair in pairs]
    return PairReport(
        verifier=header.verifier,
        families=_measure_families(pairs, judged, seed),
        rows=len(pairs),
        groups=len({pair.group for pair in pairs}),
        missing=sum(each is None for each in judged),
        unknown=len(unknown),
        problems=file.problems,
        latency_s=header.latency_s,
        seed=seed,
    )


def _read_pairs(dataset: Path) -> Iterator[_Pair]:
    for row in read_columns(dataset, "verifier", "test", (*_PLACE, "group")):
        yield _Pair(PairPlace(*(row[name] for name in _PLACE)), row["group"])


def _judge(score: PairScore | None) -> float | None:
    """1 where the right action has the higher score, .5 where they are equal; None without two scores."""
    if score is None or score.chosen is None or score.rejected is None:
        return None
    return 0.5 + 0.5 * float(np.sign(score.chosen - score.rejected))


def _measure_families(pairs: list[_Pair], judged: list[float | None], seed: int) -> list[FamilyRow]:
    hits = np.array([each or 0.0 for each in judged])
    names = np.array([pair.place.family for pair in pairs])
    resamples = Resamples([pair.group for pair in pairs], seed)
    chosen: dict[str, Any] = {"": np.ones(len(pairs), bool)}
    chosen |= {name: names == name for name in sorted({*names.tolist()})}
    return [FamilyRow(name=name, accuracy=make_share(hits, own, resamples)) for name, own in chosen.items()]
