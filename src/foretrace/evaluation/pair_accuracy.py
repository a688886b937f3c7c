"""How often a verifier prefers the right action of a pair: on the `verifier` rows of test groups, by family."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from foretrace.core.errors import PredictionError, Setting
from foretrace.core.pair_scores import PairPlace, PairScore, read_pair_scores
from foretrace.core.predictions import digest_dataset
from foretrace.core.report import Report
from foretrace.evaluation.bootstrap import Resamples
from foretrace.evaluation.figures import make_share
from foretrace.evaluation.gold_steps import read_columns, read_target
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
    header = file.header
    if header is not None and header.dataset and header.dataset != digest_dataset(dataset) and not allow_other_version:
        raise PredictionError(
            f"{file.path}: was made for another dataset, or another version of {dataset}: verify again, or ",
            Setting("allow_other_version", True),
            " scores what fits",
        )
    pairs = [*_read_pairs(dataset)]
    if not pairs:
        raise PredictionError(f"{dataset}: has no test rows of the config verifier")
    known = sum(pair.place in file.scores for pair in pairs)
    unknown = len(file.scores) - known
    if unknown > known and not allow_partial:
        raise PredictionError(
            f"{file.path}: {unknown:,} of {len(file.scores):,} scores are of pairs that are not among the test pairs "
            f"of {dataset}: name the dataset whose pairs were verified, or ",
            Setting("allow_partial", True),
            " scores the others",
        )
    judged = [_judge(file.scores.get(pair.place)) for pair in pairs]
    return PairReport(
        verifier="" if header is None else header.verifier,
        families=_measure_families(pairs, judged, seed),
        rows=len(pairs),
        groups=len({pair.group for pair in pairs}),
        missing=sum(each is None for each in judged),
        unknown=unknown,
        problems=file.problems,
        latency_s={} if header is None else header.latency_s,
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
