"""References of a dataset: scores of free predictors on its eval rows, so that every score has something to compare
with.

`references/NAME.jsonl` holds their predictions, `references.json` the figures that `score` and the card show.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from foretrace.core.errors import PredictionError
from foretrace.core.files import replace_file
from foretrace.core.report import Report

FORMAT = 1
FOLDER, FILE = "references", "references.json"


class ScoreRow(msgspec.Struct, frozen=True):
    """One figure: a share in [0, 1] with its 95% interval from resampling groups, which are never split."""

    slice: str
    metric: str
    value: float
    low: float
    high: float
    n: int
    """Number of gold rows behind the figure."""


class Reference(msgspec.Struct, frozen=True, kw_only=True):
    """One predictor's figures."""

    predictor: str
    predictions: str
    """Its predictions file, as a path in the dataset."""
    scores: list[ScoreRow]


class References(Report, msgspec.Struct, frozen=True, kw_only=True):
    """The figures of all predictors."""

    references: int = FORMAT
    dataset: str
    allow: list[str]
    """Effects that are safe to run early, for the slice `eligible`."""
    predictors: list[Reference]


def read_references(dataset: Path) -> References | None:
    """The references of a dataset; None if it has none."""
    path = dataset / FILE
    try:
        found = msgspec.json.decode(path.read_bytes(), type=References)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError, RecursionError) as error:
        raise PredictionError(f"{path}: cannot be read: {error}; remove it, or build with references again") from None
    if found.references != FORMAT:
        raise PredictionError(f"{path}: format {found.references} of references is not known; this reads {FORMAT}")
    return found


def write_references(dataset: Path, references: References) -> None:
    data = msgspec.json.format(msgspec.json.encode(references), indent=1)
    replace_file(dataset / FILE, data + b"\n")
