"""`foretrace score`: how good predictions are on the eval rows of a dataset."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from foretrace.cli.options import out_option, parse_file
from foretrace.cli.output import Output
from foretrace.core.errors import Setting, UsageError

if TYPE_CHECKING:
    from foretrace.evaluation.pair_accuracy import PairReport
    from foretrace.evaluation.score_report import ScoreReport


def score(
    output: Output,
    predictions: Annotated[
        Path,
        typer.Argument(metavar="PREDICTIONS", help="JSON lines: `key`, `step` and the guess; or scores of pairs."),
    ],
    dataset: Annotated[Path, typer.Argument(metavar="DATASET", help="What `foretrace build` wrote.")],
    *,
    against: Annotated[
        Path | None, typer.Option("--against", metavar="FILE", help="Other predictions: by how much is it better?")
    ] = None,
    validation: Annotated[
        Path | None,
        typer.Option("--validation", metavar="FILE", help="Scored predictions to choose a verifier's thresholds on."),
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
    Scores that `foretrace verify` added, to predictions or to pairs, are measured too.
    """
    import msgspec

    from foretrace.cli.display.score import show_pair_scores, show_scores
    from foretrace.core.files import replace_file
    from foretrace.evaluation.score_report import ScoreReport

    given = {"against": against, "validation": validation, "allow": allow or ()}
    allowed = {"seed": seed, "allow_partial": allow_partial, "allow_other_version": allow_other_version}
    with output.progress(f"scoring {predictions}"):
        report = _score(predictions, dataset, given, allowed)
    facts = {"predictions": str(predictions), "dataset": str(dataset), **msgspec.to_builtins(report)}
    if out is not None:
        replace_file(out, msgspec.json.format(msgspec.json.encode(facts), indent=1) + b"\n")
    if output.write_json(facts):
        return
    if isinstance(report, ScoreReport):
        show_scores(output, report, predictions, details=details)
    else:
        show_pair_scores(output, report, predictions)


def _score(
    predictions: Path, dataset: Path, given: dict[str, Any], allowed: dict[str, Any]
) -> ScoreReport | PairReport:
    """Score what the file holds, predictions or scores of pairs; `given` is for predictions alone."""
    from foretrace.api.scoring import score, score_pairs
    from foretrace.core.pair_scores import is_pair_scores

    if not is_pair_scores(predictions):
        return score(predictions, dataset, **given, **allowed)
    if unfit := [name for name, value in given.items() if value]:
        raise UsageError(Setting(unfit[0]), f" is for predictions; {predictions} holds scores of pairs")
    return score_pairs(predictions, dataset, **allowed)
