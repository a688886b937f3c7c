"""`foretrace predict`: guess at the steps of a dataset, for `score` and `replay`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from foretrace.cli.options import out_option, parse_file
from foretrace.cli.output import Output

_Dataset = Annotated[Path, typer.Argument(metavar="DATASET", help="What `foretrace build` wrote.")]
_Predictor = Annotated[
    str,
    typer.Option(
        "--predictor", metavar="NAME", help="majority, markov:1 to markov:3, regression, memory, or module:Class."
    ),
]
_Rows = Annotated[
    Literal["eval", "proposer"],
    typer.Option("--rows", help="Config to predict: eval, or the train rows of proposer, each learnt from the others."),
]
_K = Annotated[int, typer.Option("--k", metavar="K", help="Guesses at a step at most.")]
_Limit = Annotated[int | None, typer.Option("--limit", metavar="N", help="Only the first N rows.")]
_Seed = Annotated[int, typer.Option("--seed", metavar="N", help="Assigns groups to folds.")]
_Folds = Annotated[int, typer.Option("--folds", metavar="N", help="With train rows: parts of the groups.")]
_Times = Annotated[
    bool, typer.Option("--times/--no-times", help="Write seconds; without them the same rows give the same bytes.")
]


def predict(
    output: Output,
    dataset: _Dataset,
    *,
    predictor: _Predictor,
    out: Annotated[Path, out_option("FILE", "File of predictions.", parser=parse_file)],
    rows: _Rows = "eval",
    k: _K = 5,
    limit: _Limit = None,
    seed: _Seed = 0,
    folds: _Folds = 5,
    times: _Times = True,
) -> None:
    """Guess at the next action of each row of a dataset, with a predictor that costs nothing.

    It learns from the train rows alone. The file is what `foretrace score` reads: a line for each guess, best first.
    """
    import msgspec

    from foretrace.api.evaluation import predict
    from foretrace.cli.display.predict import show_predictions

    output.interrupt_message = f"interrupted; nothing was written to {out}"
    with output.progress(f"predicting {dataset}") as progress:
        report = predict(
            dataset,
            predictor=predictor,
            out=out,
            rows=rows,
            k=k,
            limit=limit,
            seed=seed,
            folds=folds,
            times=times,
            progress=progress,
        )
    if not output.write_json({"dataset": str(dataset), **msgspec.to_builtins(report)}):
        show_predictions(output, report)
