"""Scores that a verifier gave to the two actions of each `verifier` row of test groups, and how often it is right.

A file of such scores has a header line, then one line of JSON for each pair:

    {"pair_scores": 1, "verifier": "openai:judge", "dataset": "5f0c...", ...}
    {"key": K, "step": S, "family": F, "pair": P, "chosen": .9, "rejected": .2}

A file from elsewhere, such as a reward model's, does not need a header.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from foretrace.core.errors import PredictionError
from foretrace.core.files import atomic_file
from foretrace.core.places import make_local_path
from foretrace.core.predictions import FORMAT, read_format_header, read_json_lines, read_number, read_place
from foretrace.core.report import Report
from foretrace.evaluation.bootstrap import Resamples
from foretrace.evaluation.dataset_rows import check_fit, read_columns, read_target
from foretrace.evaluation.figures import make_share
from foretrace.evaluation.score_report import Share

_KIND = "score of a pair"


class PairPlace(NamedTuple):
    """Identifies a row of the config `verifier`: no two rows have the same four values."""

    key: str
    step: int
    family: str
    pair: str


PairScores = Mapping[PairPlace, tuple[float | None, float | None]]
"""The scores of the right and of the wrong action, higher is better; None if the verifier gave none."""


class PairScoresHeader(msgspec.Struct, frozen=True, kw_only=True):
    """What a file of pair scores is about."""

    pair_scores: int = FORMAT
    verifier: str = ""
    dataset: str = ""
    """Digest of the dataset's manifest (`core.predictions.digest_dataset`)."""
    split: str = "test"
    latency_s: dict[str, float] = {}
    """Seconds per score: `p50`, `p95`, `mean`."""
    settings: dict[str, Any] = {}


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
    groups: int
    missing: int
    """Pairs without two scores: counted as wrong."""
    unknown: int
    """Scores of pairs that the dataset does not have: ignored, unless they are more than half."""
    problems: dict[str, int]
    """Faulty lines by kind: `torn_last_line`, `bad_chosen`, `bad_rejected` (not numbers)."""
    latency_s: dict[str, float] = {}
    seed: int = 0


def is_pair_scores(path: Path) -> bool:
    """Whether a file contains scores of pairs, judging by its first line."""
    try:
        for _, value in read_json_lines(path, _KIND, Counter()):
            return "pair_scores" in value or {"chosen", "rejected"} <= value.keys()
    except PredictionError:
        pass
    return False


def read_pair_scores(path: Path) -> tuple[PairScoresHeader, PairScores, dict[str, int]]:
    """The header, the scores, and the number of lines with each kind of fault that is counted but not refused."""
    header, problems = PairScoresHeader(), Counter[str]()
    scores: dict[PairPlace, tuple[float | None, float | None]] = {}
    for number, value in read_json_lines(path, _KIND, problems):
        where = f"{path} line {number}"
        if number == 1 and "pair_scores" in value:
            header = read_format_header(value, PairScoresHeader, where)
            continue
        key, step = read_place(value, where, _KIND)
        family, pair = value.get("family"), value.get("pair")
        if not isinstance(family, str) or not isinstance(pair, str):
            raise PredictionError(f"{where}: is not a {_KIND}: it has no family or no pair")
        place = PairPlace(key, step, family, pair)
        if place in scores:
            raise PredictionError(f"{where}: a second score of the {family} pair {pair} at {key} step {step}")
        chosen, rejected = (read_number(value, name, problems, -math.inf, math.inf) for name in ("chosen", "rejected"))
        scores[place] = chosen, rejected
    if not scores:
        raise PredictionError(f"{path}: holds no scores of pairs")
    return header, scores, dict(sorted((+problems).items()))


def write_pair_scores(path: Path, header: PairScoresHeader, scores: PairScores) -> None:
    """Write a file completely or not at all; unknown scores are left out."""
    with atomic_file(path) as file:
        file.write(msgspec.json.encode(header) + b"\n")
        for place, both in scores.items():
            known = {name: v for name, v in zip(("chosen", "rejected"), both, strict=True) if v is not None}
            file.write(msgspec.json.encode(place._asdict() | known) + b"\n")


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
    path, dataset = make_local_path(scores), make_local_path(dataset)
    read_target(dataset)
    header, given, problems = read_pair_scores(path)
    rows = [*read_columns(dataset, "verifier", "test", (*PairPlace._fields, "group"))]
    groups, pairs = [row.pop("group") for row in rows], [PairPlace(**row) for row in rows]
    if not pairs:
        raise PredictionError(f"{dataset}: has no test rows of the config verifier")
    allowed = {"allow_partial": allow_partial, "allow_other_version": allow_other_version}
    unknown = check_fit(str(path), header.dataset, dataset, given, {*pairs}, "test pairs", **allowed)
    hits = np.array([_judge(*given.get(pair, (None, None))) for pair in pairs])
    known, resamples = ~np.isnan(hits), Resamples(groups, seed)
    families = np.array([pair.family for pair in pairs])
    chosen = {"": np.ones(len(pairs), bool)} | {name: families == name for name in sorted({*families.tolist()})}
    return PairReport(
        verifier=header.verifier,
        families=[
            FamilyRow(name=name, accuracy=make_share(np.nan_to_num(hits), own, resamples))
            for name, own in chosen.items()
        ],
        rows=len(pairs),
        groups=len({*groups}),
        missing=int((~known).sum()),
        unknown=unknown,
        problems=problems,
        latency_s=header.latency_s,
        seed=seed,
    )


def _judge(chosen: float | None, rejected: float | None) -> float:
    """1 if the right action has the higher score, 0.5 for a tie, 0 if it has the lower; NaN without two scores."""
    if chosen is None or rejected is None:
        return math.nan
    return 0.5 + 0.5 * float(np.sign(chosen - rejected))
