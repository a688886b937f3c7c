"""`foretrace score`: how good predictions are on the eval rows of a dataset."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from foretrace.cli.output import Output


def score(
    say: Output,
    predictions: Annotated[Path, typer.Argument(metavar="PREDICTIONS", help="JSON lines, one prediction a row.")],
    dataset: Annotated[Path, typer.Argument(metavar="DATASET", help="What `foretrace build` wrote.")],
    *,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Seed of the bootstrap.")] = 0,
) -> None:
    """Score predictions on the eval rows of a dataset.

    Accuracy of action, tool and call, macro-F1, per class, each with an interval by task.
    """
    import msgspec

    from foretrace.dataset.score import score as run

    say.kept = "interrupted"
    with say.progress(f"scoring {predictions}"):
        report = run(predictions, dataset, seed=seed)
    if say.emit({"predictions": str(predictions), "dataset": str(dataset), **msgspec.to_builtins(report)}):
        return
    names = ("slice", "metric", "value", "low", "high", "n")
    say.table(names, [tuple(getattr(score, name) for name in names) for score in report.scores])
    say.line(
        f"{report.rows:,} eval rows; {report.missing:,} without a prediction and {report.unreadable:,} with one that "
        f"names no action count as wrong; {report.unknown:,} predictions for other rows are ignored"
    )
