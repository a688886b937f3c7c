"""`foretrace replay`: what a predictor would have saved, on the recorded times of traces."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from foretrace.cli.options import AssumeTimes, out_option, parse_file
from foretrace.cli.output import Output


def replay(
    output: Output,
    traces: Annotated[Path, typer.Argument(metavar="TRACES", help="Traces folder.")],
    *,
    predictions: Annotated[
        Path, typer.Option("--predictions", metavar="FILE", help="Guesses at the calls of steps.", parser=parse_file)
    ],
    threshold: Annotated[
        float | None,
        typer.Option("--threshold", metavar="T", help="Launch only guesses of this score, or confidence where none."),
    ] = None,
    ahead: Annotated[int, typer.Option("--ahead", metavar="K", help="Steps that are guessed at once.")] = 1,
    top: Annotated[int, typer.Option("--top", metavar="K", help="Guesses at a step that are run at once.")] = 1,
    parallel: Annotated[
        int | None, typer.Option("--parallel", metavar="N", help="Guessed calls at one time at most; default any.")
    ] = None,
    cancel: Annotated[
        bool, typer.Option("--cancel/--no-cancel", help="End a wrong call when the model's reply is known.")
    ] = True,
    guess_latency: Annotated[
        float | None,
        typer.Option("--guess-latency", metavar="S", help="Seconds of every guess (default: as predicted, else 0.2)."),
    ] = None,
    assume_times: AssumeTimes = None,
    verifier_s: Annotated[
        float | None,
        typer.Option("--verifier-s", metavar="S", help="Seconds between a guess and its launch (default: measured)."),
    ] = None,
    price_token: Annotated[
        float, typer.Option("--price-token", metavar="X", help="Price of a token of the proposer.")
    ] = 0.0,
    price_tool_s: Annotated[
        float, typer.Option("--price-tool-s", metavar="X", help="Price of a second of a tool.")
    ] = 0.0,
    allow: Annotated[
        list[str] | None,
        typer.Option(
            "--allow", metavar="EFFECT", help="Also safe to run early, beside pure_read: sandbox_exec; may be repeated."
        ),
    ] = None,
    frontier: Annotated[
        Path | None,
        typer.Option("--frontier", metavar="FILE", help="Picture of what each threshold saves: .svg."),
    ] = None,
    out: Annotated[
        Path | None, out_option("FILE.json", "File to write all figures to, as --json has them.", parser=parse_file)
    ] = None,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Seed of the bootstrap.")] = 0,
) -> None:
    """Measure what a predictor would have saved on your traces.

    Runs its guesses while the model writes, on the recorded times: what is right is used, what is wrong is wasted. Only
    guessed calls that are safe to run early are launched. Intervals are 95%, a bootstrap over tasks.
    """
    given = locals()
    output.stay_small()
    import msgspec

    from foretrace.api.evaluation import replay
    from foretrace.cli.display.replay import show_replay
    from foretrace.cli.display.traces import warn_unsealed
    from foretrace.core.files import replace_file
    from foretrace.evaluation.frontier_picture import check_picture, write_picture
    from foretrace.evaluation.replay_report import ReplaySettings

    if frontier is not None:
        check_picture(frontier)
    warn_unsealed(output, traces)
    with output.progress(f"replaying {traces}") as progress:
        settings: dict[str, Any] = {name: given[name] for name in ReplaySettings.__struct_fields__}
        settings["allow"] = allow or ()
        report = replay(traces, predictions, **settings, progress=progress)
    if frontier is not None:
        write_picture(frontier, report)
    facts = {"traces_folder": str(traces), "predictions": str(predictions), **msgspec.to_builtins(report)}
    if out is not None:
        replace_file(out, msgspec.json.format(msgspec.json.encode(facts), indent=1) + b"\n")
    if not output.write_json(facts):
        show_replay(output, report)
        if frontier is not None:
            output.print(f"picture: {frontier}")
