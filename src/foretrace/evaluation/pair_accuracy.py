"""How often a verifier prefers the right action of a pair, by family, on the `verifier` rows of test groups."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from foretrace.core.errors import PredictionError
from foretrace.core.pair_scores import PairPlace, PairScore, PairScoresHeader, read_pair_scores
from foretrace.core.places import make_local_path
from foretrace.core.report import Report
from foretrace.evaluation.bootstrap import Resamples
from foretrace.evaluation.dataset_rows import check_known, check_version, read_columns, read_target
from foretrace.evaluation.figures import make_share
from foretrace.evaluation.score_report import Share


class FamilyRow(msgspec.Struct, frozen=True, kw_only=True):
    """The pairs of one family, or all pairs (with an empty name)."""

    name: str
    accuracy: Share
    """Share of pairs whose right action has the higher score; a tie counts one half, missing scores are wrong."""


class PairReport(Report, msgspec.Struct, frozen=True, kw_only=True):
    """How well a verifier does on pairs, and the problems of its scores."""

    verifier: str
    families: list[FamilyRow]
    """All pairs together, then each family by name."""
    rows: int
    """Number of pairs of the split."""
    groups: int
    missing: int
    """Pairs without two scores: counted as wrong."""
    unknown: int
    """Scores of pairs that the dataset does not have: ignored, unless they are more than half."""
    problems: dict[str, int]
    latency_s: dict[str, float] = {}
    seed: int = 0


def score_pairs(
    scores: str | Path,
    dataset: str | Path,
    *,
    seed: int = 0,
    allow_partial: bool = False,
    allow_other_version: bool = False,
) -> PairReport:
    """Measure how often a verifier prefers the right action, on the test pairs of a dataset (docs/speculation.md).

    Args:
        scores: JSON lines with `key`, `step`, `family` and `pair` of a `verifier` row, and the scores `chosen` and
            `rejected`; `verify_pairs` writes such a file.
        seed: Seed of the bootstrap over groups.
        allow_partial: Score even if most of them are of pairs that the dataset does not have.
        allow_other_version: Score even if the file names another version of the dataset.

    Raises:
        PredictionError: no test pairs, or scores that cannot be read or do not fit.
    """
    dataset = make_local_path(dataset)
    read_target(dataset)
    file = read_pair_scores(make_local_path(scores))
    if not file.scores:
        raise PredictionError(f"{file.path}: holds no scores of pairs")
    header = file.header or PairScoresHeader()
    check_version(file.path, header.dataset, dataset, allowed=allow_other_version)
    rows = [*read_columns(dataset, "verifier", "test", (*PairPlace._fields, "group"))]
    groups, pairs = [row.pop("group") for row in rows], [PairPlace(**row) for row in rows]
    if not pairs:
        raise PredictionError(f"{dataset}: has no test rows of the config verifier")
    places = {*pairs}
    unknown = [place for place in file.scores if place not in places]
    where = f"the test pairs of {dataset}"
    check_known(file.path, "scores are of pairs", unknown, len(file.scores), where, allowed=allow_partial)
    judged = [_judge(file.scores.get(pair)) for pair in pairs]
    return PairReport(
        verifier=header.verifier,
        families=_measure_families([pair.family for pair in pairs], groups, judged, seed),
        rows=len(pairs),
        groups=len({*groups}),
        missing=sum(each is None for each in judged),
        unknown=len(unknown),
        problems=file.problems,
        latency_s=header.latency_s,
        seed=seed,
    )


def _judge(score: PairScore | None) -> float | None:
    """1 if the right action has the higher score, 0.5 for a tie, 0 if it has the lower; None without two scores."""
    if score is None or score.chosen is None or score.rejected is None:
        return None
    return 0.5 + 0.5 * float(np.sign(score.chosen - score.rejected))


def _measure_families(
    names: Sequence[str], groups: Sequence[str], judged: Sequence[float | None], seed: int
) -> list[FamilyRow]:
    hits, family, resamples = np.array([each or 0.0 for each in judged]), np.array(names), Resamples(groups, seed)
    chosen: dict[str, Any] = {"": np.ones(len(names), bool)}
    chosen |= {name: family == name for name in sorted({*names})}
    return [FamilyRow(name=name, accuracy=make_share(hits, own, resamples)) for name, own in chosen.items()]
