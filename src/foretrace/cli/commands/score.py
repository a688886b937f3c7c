"""`foretrace score`: how good predictions are on the eval rows of a dataset."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from foretrace.cli.options import out_option, parse_file
from foretrace.cli.output import Output


def score(
    output: Output,
    predictions: Annotated[
        Path,
        typer.Argument(metavar="PREDICTIONS", help="JSON lines: `key`, `step` and the guess for each eval row."),
    ],
    dataset: Annotated[Path, typer.Argument(metavar="DATASET", help="What `foretrace build` wrote.")],
    *,
    against: Annotated[
        Path | None, typer.Option("--against", metavar="FILE", help="Other predictions: by how much is it better?")
    ] = None,
    allow: Annotated[
        list[str] | None,
        typer.Option(
            "--allow", metavar="EFFECT", help="Also safe to run early, beside pure_read: sandbox_exec; may be repeated."
        ),
    ] = None,
    details: Annotated[bool, typer.Option("--details", help="Show every figure.")] = False,
    out: Annotated[
        Path | None, out_option("FILE.json", "File to write all figures to, as --json has them.", parser=parse_file)
    ] = None,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Seed of the bootstrap.")] = 0,
    allow_partial: Annotated[
        bool, typer.Option("--allow-partial", help="Score although most predictions are for rows that DATASET lacks.")
    ] = False,
    allow_other_version: Annotated[
        bool, typer.Option("--allow-other-version", help="Score although they were made for another version of it.")
    ] = False,
) -> None:
    """Score predictions on the eval rows of a dataset.

    Whether action type, tool and call are right, also among the first three guesses and where the call is
    safe to run early, and whether confidences are what they say. Each figure has a 95% interval: a
    bootstrap that resamples by group, the unit that the splits keep whole; --against resamples by task.
    """
    import msgspec

    from foretrace.api.evaluation import score
    from foretrace.cli.display.score import show_scores
    from foretrace.core.files import replace_file

    with output.progress(f"scoring {predictions}"):
        report = score(
            predictions,
            dataset,
            against=against,
            allow=allow or (),
            seed=seed,
            allow_partial=allow_partial,
            allow_other_version=allow_other_version,
        )
    facts = {"predictions": str(predictions), "dataset": str(dataset), **msgspec.to_builtins(report)}
    if out is not None:
        replace_file(out, msgspec.json.format(msgspec.json.encode(facts), indent=1) + b"\n")
    if not output.write_json(facts):
        show_scores(output, report, predictions, details=details)
