"""`foretrace score`: how good predictions are on the eval rows of a dataset."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from foretrace.cli.output import Output


def score(
    output: Output,
    predictions: Annotated[
        Path,
        typer.Argument(metavar="PREDICTIONS", help="JSON lines: `key`, `step` and `completion` for each eval row."),
    ],
    dataset: Annotated[Path, typer.Argument(metavar="DATASET", help="What `foretrace build` wrote.")],
    *,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Seed of the bootstrap.")] = 0,
    allow_partial: Annotated[
        bool, typer.Option("--allow-partial", help="Score although most predictions are for rows that DATASET lacks.")
    ] = False,
) -> None:
    """Score predictions on the eval rows of a dataset.

    Accuracy of action, tool and call, macro-F1 and the F1 of each class. Each figure has a 95% interval: a bootstrap
    that resamples by group, the unit that the splits keep whole.
    """
    import msgspec

    from foretrace.api.evaluation import score
    from foretrace.cli.display.dataset import show_scores

    with output.progress(f"scoring {predictions}"):
        report = score(predictions, dataset, seed=seed, allow_partial=allow_partial)
    facts = {"predictions": str(predictions), "dataset": str(dataset), **msgspec.to_builtins(report)}
    if not output.write_json(facts):
        show_scores(output, report)
