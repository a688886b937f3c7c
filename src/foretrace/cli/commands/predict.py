"""`foretrace predict`: guess at the steps of a dataset, for `score` and `replay`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from foretrace.cli.options import ServerOptions, out_option, parse_file
from foretrace.cli.output import Output
from foretrace.core.errors import Setting, UsageError

_Dataset = Annotated[Path, typer.Argument(metavar="DATASET", help="What `foretrace build` wrote.")]
_Predictor = Annotated[
    str | None,
    typer.Option(
        "--predictor", metavar="NAME", help="majority, markov:1 to markov:3, regression, memory, or module:Class."
    ),
]
_Rows = Annotated[
    Literal["eval", "proposer", "validation"],
    typer.Option(
        "--rows",
        help="Rows to predict: eval; proposer, its train rows, each learnt from the others; or its validation rows.",
    ),
]
_Model = Annotated[
    str | None, typer.Option("--model", metavar="KIND:NAME", help="E.g. openai:NAME, ollama:NAME (docs/models.md).")
]
_Samples = Annotated[int, typer.Option("--samples", metavar="N", help="Answers of the model to each prompt.")]
_Logprobs = Annotated[
    bool, typer.Option("--logprobs", help="Confidence from the probability of the reply, not from the samples.")
]
_Temperature = Annotated[float, typer.Option("--temperature", metavar="T", help="Of the model's sampling.")]
_MaxTokens = Annotated[
    int, typer.Option("--max-tokens", metavar="N", help="Tokens of one answer at most; thinking counts.")
]
_Concurrency = Annotated[
    int | None,
    typer.Option("--concurrency", metavar="N", help="Requests at a time; else found out (default: auto)."),
]
_K = Annotated[int, typer.Option("--k", metavar="K", help="Guesses at a step at most.")]
_Limit = Annotated[int | None, typer.Option("--limit", metavar="N", help="Only the first N rows.")]
_Seed = Annotated[int, typer.Option("--seed", metavar="N", help="Assigns groups to folds, and seeds answers.")]
_Folds = Annotated[
    int | None,
    typer.Option("--folds", metavar="N", help="With train rows: parts of the groups (default: 5)."),
]
_Times = Annotated[
    bool, typer.Option("--times/--no-times", help="Write seconds; without them the same rows give the same bytes.")
]


def predict(
    output: Output,
    dataset: _Dataset,
    *,
    out: Annotated[Path, out_option("FILE", "File of predictions.", parser=parse_file)],
    predictor: _Predictor = None,
    model: _Model = None,
    server: ServerOptions,
    samples: _Samples = 5,
    logprobs: _Logprobs = False,
    temperature: _Temperature = 0.7,
    max_tokens: _MaxTokens = 1024,
    concurrency: _Concurrency = None,
    rows: _Rows = "eval",
    k: _K = 5,
    limit: _Limit = None,
    seed: _Seed = 0,
    folds: _Folds = None,
    times: _Times = True,
) -> None:
    """Guess at the next action of each row of a dataset, with a predictor that costs nothing or with your own model.

    A predictor learns from the train rows alone. The same command with a model goes on where an interrupted one
    stopped. The file is what `foretrace score` reads: a line for each guess, best first.
    """
    import msgspec

    from foretrace.api.evaluation import predict
    from foretrace.cli.display.predict import show_predictions

    if model is None and server.list_given():
        raise UsageError(Setting(server.list_given()[0]), " is for a model: name it with ", Setting("model"))
    output.interrupt_message = (
        f"interrupted; nothing was written to {out}"
        if model is None
        else f"interrupted; what was answered is kept beside {out}, the same command goes on from there"
    )
    with output.progress(f"predicting {dataset}") as progress:
        report = predict(
            dataset,
            out=out,
            predictor=predictor,
            model=model,
            server=None if model is None else server.make_server(),
            samples=samples,
            logprobs=logprobs,
            temperature=temperature,
            max_tokens=max_tokens,
            concurrency=concurrency,
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
