"""A file of a verifier's scores for the two actions of each pair: a header line, then one line of JSON for each pair.

    {"pair_scores": 1, "verifier": "openai:judge", "dataset": "5f0c...", ...}
    {"key": K, "step": S, "family": F, "pair": P, "chosen": .9, "rejected": .2}

A file from elsewhere, such as a reward model's, does not need a header.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from foretrace.core.errors import PredictionError
from foretrace.core.files import atomic_file
from foretrace.core.predictions import FORMAT, read_format_header, read_json_lines, read_number, read_place

_KIND = "score of a pair"


class PairPlace(NamedTuple):
    """Identifies a row of the config `verifier`: no two rows have the same four values."""

    key: str
    step: int
    family: str
    pair: str


class PairScore(msgspec.Struct, frozen=True, kw_only=True):
    """The two scores of a pair, higher is better; None if the verifier gave none."""

    place: PairPlace
    chosen: float | None
    rejected: float | None


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


class PairScoresFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file that was read."""

    path: str
    header: PairScoresHeader | None
    scores: dict[PairPlace, PairScore]
    problems: dict[str, int]
    """Number of lines with each kind of fault that is counted but not refused: `torn_last_line`, `bad_chosen`,
    `bad_rejected` (not numbers)."""


def is_pair_scores(path: Path) -> bool:
    """Whether a file contains scores of pairs, judging by its first line."""
    try:
        for _, value in read_json_lines(path, _KIND, Counter()):
            return "pair_scores" in value or {"chosen", "rejected"} <= value.keys()
    except PredictionError:
        pass
    return False


def read_pair_scores(path: Path) -> PairScoresFile:
    """Read a file of pair scores.

    Raises:
        PredictionError: the file cannot be read, a line is not a score of a pair, or a pair occurs twice.
    """
    header: PairScoresHeader | None = None
    problems: Counter[str] = Counter()
    scores: dict[PairPlace, PairScore] = {}
    for number, value in read_json_lines(path, _KIND, problems):
        where = f"{path} line {number}"
        if number == 1 and "pair_scores" in value:
            header = read_format_header(value, PairScoresHeader, where)
            continue
        key, step = read_place(value, where, _KIND)
        if not isinstance(value.get("family"), str) or not isinstance(value.get("pair"), str):
            raise PredictionError(f"{where}: is not a {_KIND}: it has no family or no pair")
        place = PairPlace(key, step, value["family"], value["pair"])
        if place in scores:
            raise PredictionError(
                f"{where}: a second score of the {place.family} pair {place.pair} at {key} step {step}"
            )
        chosen, rejected = (read_number(value, name, problems, -math.inf, math.inf) for name in ("chosen", "rejected"))
        scores[place] = PairScore(place=place, chosen=chosen, rejected=rejected)
    return PairScoresFile(path=str(path), header=header, scores=scores, problems=dict(sorted((+problems).items())))


def write_pair_scores(path: Path, header: PairScoresHeader, scores: Iterable[PairScore]) -> None:
    """Write a file completely or not at all; unknown scores are left out."""
    with atomic_file(path) as file:
        file.write(msgspec.json.encode(header) + b"\n")
        for score in scores:
            both = {"chosen": score.chosen, "rejected": score.rejected}
            line = score.place._asdict() | {name: value for name, value in both.items() if value is not None}
            file.write(msgspec.json.encode(line) + b"\n")
