"""The figures of the predictions that lie in a dataset's folder `references`."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from foretrace.core.errors import PredictionError
from foretrace.core.predictions import digest_dataset
from foretrace.core.references import FOLDER, Reference, References
from foretrace.evaluation.score import score


def score_references(dataset: Path) -> References:
    """Score all predictions in the folder. Each goes by the name of its predictor; by that of its file where it names
    none, or another one names the same.

    Raises:
        PredictionError: there are none, or one that cannot be scored.
    """
    paths = sorted((dataset / FOLDER).glob("*.jsonl"))
    if not paths:
        raise PredictionError(f"{dataset / FOLDER}: holds no predictions (NAME.jsonl)")
    reports = {path: score(path, dataset) for path in paths}
    named = Counter(report.predictor for report in reports.values() if report.predictor)
    return References(
        dataset=digest_dataset(dataset),
        allow=next(iter(reports.values())).allow,
        predictors=[
            Reference(
                predictor=report.predictor if named[report.predictor] == 1 else path.stem,
                predictions=f"{FOLDER}/{path.name}",
                scores=report.scores,
            )
            for path, report in reports.items()
        ],
    )
