"""`foretrace verify`: a verifier's scores for predictions, or for the test pairs of a dataset."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from foretrace.cli.options import ServerOptions, out_option, parse_file
from foretrace.cli.output import Output
from foretrace.core.errors import ModelError, Setting, UsageError


def verify(
    output: Output,
    inputs: Annotated[
        list[Path],
        typer.Argument(metavar="[PREDICTIONS] DATASET", help="Predictions and their dataset; with --pairs the latter."),
    ],
    *,
    out: Annotated[Path, out_option("FILE", "File to write, JSON lines.", parser=parse_file)],
    model: Annotated[
        str | None,
        typer.Option("--model", metavar="KIND:NAME", help="Model that says yes or no, e.g. openai:NAME."),
    ] = None,
    server: ServerOptions,
    scores: Annotated[
        Path | None,
        typer.Option("--scores", metavar="FILE", help="Scores of a reward model: lines with key, step, rank, score."),
    ] = None,
    pairs: Annotated[bool, typer.Option("--pairs", help="Score the test pairs of DATASET instead.")] = False,
    concurrency: Annotated[int, typer.Option("--concurrency", metavar="N", min=1, help="Requests at one time.")] = 8,
    max_tokens: Annotated[
        int, typer.Option("--max-tokens", metavar="N", min=1, help="Tokens of an answer; more for one that thinks.")
    ] = 8,
    allow_other_version: Annotated[
        bool, typer.Option("--allow-other-version", help="Verify although they were made for another version of it.")
    ] = False,
) -> None:
    """Add a verifier's score to each prediction.

    A model is shown the prompt and the predicted action, and asked whether it is what comes next: the score is
    the probability of a yes. An interrupted run goes on where it stopped. `foretrace score` measures the scores.
    """
    import msgspec

    from foretrace.cli.display.score import show_verified

    predictions, dataset = _name_inputs(inputs, pairs=pairs)
    if pairs and (scores is not None or model is None):
        raise UsageError(
            Setting("pairs"),
            " wants ",
            Setting("model"),
            "; scores of pairs that a reward model gave go to `foretrace score` as they are",
        )
    if model is None and (given := server.list_given()):
        raise UsageError(Setting(given[0]), " is for ", Setting("model"))
    output.interrupt_message = "interrupted; what was answered is kept, the same command goes on"
    asked: dict[str, Any] = {"out": out, "concurrency": concurrency, "max_tokens": max_tokens}
    with output.progress(f"verifying {predictions or dataset}") as progress:
        try:
            report = _run(
                predictions, dataset, model, server, scores, allow_other_version, {**asked, "progress": progress}
            )
        except ModelError:
            output.note("what was answered is kept, the same command goes on")
            raise
    if not output.write_json(msgspec.to_builtins(report)):
        show_verified(output, report)


def _run(
    predictions: Path | None,
    dataset: Path,
    model: str | None,
    server: ServerOptions,
    scores: Path | None,
    allow_other_version: bool,
    asked: dict[str, Any],
) -> Any:
    from foretrace.api.scoring import verify, verify_pairs

    at = None if model is None else server.make_server()
    if predictions is None:
        assert model is not None
        return verify_pairs(dataset, model=model, server=at, **asked)
    return verify(
        predictions,
        dataset,
        model=model,
        server=at,
        scores=scores,
        allow_other_version=allow_other_version,
        **asked,
    )


def _name_inputs(inputs: list[Path], *, pairs: bool) -> tuple[Path | None, Path]:
    """The file of predictions, and the dataset."""
    if pairs and len(inputs) != 1:
        raise UsageError(Setting("pairs"), " takes one folder, the dataset")
    if not pairs and len(inputs) != 2:
        raise UsageError("verify takes a file of predictions and the dataset that they are for, or the dataset with ",
                         Setting("pairs"))  # fmt: skip
    return (None, inputs[0]) if pairs else (inputs[0], inputs[1])
