"""References of a dataset: what free predictors reach on its eval rows, so that every score has something beside it.

`references/NAME.jsonl` are their predictions, and `references.json` the figures, which `score` and the card show.
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
    """One figure: a share in [0, 1] with its 95% interval over resampled groups, which the splits keep whole."""

    slice: str
    metric: str
    value: float
    low: float
    high: float
    n: int
    """Gold rows that it is taken over."""


class Reference(msgspec.Struct, frozen=True, kw_only=True):
    """One predictor's figures."""

    predictor: str
    predictions: str
    """Its file, as a path in the dataset."""
    scores: list[ScoreRow]


class References(Report, msgspec.Struct, frozen=True, kw_only=True):
    """The figures of all of them."""

    references: int = FORMAT
    dataset: str
    """Digest of the dataset's manifest."""
    allow: list[str]
    """Effects that are safe to run early, for the slice `eligible`."""
    predictors: list[Reference]


def read_references(dataset: Path) -> References | None:
    """The references of a dataset; None where it has none.

    Raises:
        PredictionError: there is a file of them that cannot be read.
    """
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
    """Write them into the dataset, whole or not at all."""
    data = msgspec.json.format(msgspec.json.encode(references), indent=1)
    replace_file(dataset / FILE, data + b"\n")
