"""`foretrace ceiling`: what a perfect predictor of the next calls would save, without any model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from foretrace.cli.options import AssumeTimes
from foretrace.cli.output import Output


def ceiling(
    output: Output,
    traces: Annotated[Path, typer.Argument(metavar="TRACES", help="Traces folder.")],
    *,
    guess_latency: Annotated[
        float, typer.Option("--guess-latency", metavar="S", help="Seconds that one guess of a predictor takes.")
    ] = 0.2,
    assume_times: AssumeTimes = None,
    allow: Annotated[
        list[str] | None,
        typer.Option(
            "--allow", metavar="EFFECT", help="Also safe to run early, beside pure_read: sandbox_exec; may be repeated."
        ),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Seed of the bootstrap.")] = 0,
) -> None:
    """Measure what a perfect predictor of the next call would save on your traces.

    Needs no model: the upper limit of prefetching calls, of running steps ahead, and of starting calls early, from the
    times that the traces have. Times are assumed only with --assume-times. Intervals are 95%, a bootstrap over tasks.
    """
    output.stay_small()
    import msgspec

    from foretrace.api.evaluation import ceiling
    from foretrace.cli.display.ceiling import show_ceiling
    from foretrace.cli.display.traces import warn_unsealed

    warn_unsealed(output, traces)
    with output.progress(f"measuring {traces}") as progress:
        report = ceiling(
            traces,
            guess_latency=guess_latency,
            assume_times=assume_times,
            allow=allow or (),
            seed=seed,
            progress=progress,
        )
    if not output.write_json({"traces_folder": str(traces), **msgspec.to_builtins(report)}):
        show_ceiling(output, report)
