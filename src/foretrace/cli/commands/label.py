"""`foretrace label`: what every step of every trace does, as one file of rows; why; and which labels are unsure."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from foretrace.cli.options import EngineOptions, corrections_option, out_option, parse_file
from foretrace.cli.output import Output
from foretrace.core.errors import Setting, UsageError


def label(
    output: Output,
    traces: Annotated[Path, typer.Argument(metavar="TRACES", help="Traces folder.")],
    *,
    out: Annotated[Path | None, out_option("FILE", "Labels: .parquet, .jsonl or .csv.", parser=parse_file)] = None,
    explain: Annotated[
        str | None, typer.Option("--explain", metavar="KEY", help="Show why each step of one trace has its label.")
    ] = None,
    review: Annotated[
        Path | None,
        typer.Option("--review", metavar="FILE", parser=parse_file, help="Least sure steps, to edit: .csv or .jsonl."),
    ] = None,
    lowest: Annotated[int, typer.Option("--lowest", metavar="N", min=1, help="Steps of --review at most.")] = 200,
    corrections: Annotated[Path | None, corrections_option()] = None,
    workers: Annotated[
        int | None, typer.Option("--workers", metavar="N", min=1, help="Processes that work at once (default: 1).")
    ] = None,
    engine: EngineOptions,
) -> None:
    """Label every step of every trace with the kind of action it takes.

    One row a step: which of the nine actions it is, the rule that decided, how sure that is, what running
    it would touch. --review lists unsure steps; fill in its last column and give it back to --corrections.
    """
    import msgspec

    from foretrace.cli.display.dataset import show_labels
    from foretrace.cli.with_progress import label_with_progress

    if explain is not None:
        for setting, given in (("out", out), ("review", review)):
            if given is not None:
                raise UsageError(Setting("explain"), " shows one trace; leave out ", Setting(setting))
        _explain(output, traces, explain, corrections)
        return
    if out is None and review is None:
        shows = (
            Setting("out", "labels.parquet"),
            ", ",
            Setting("review", "unsure.csv"),
            " or ",
            Setting("explain", "KEY"),
        )
        raise UsageError("say what to make of the labels: ", *shows)
    where = engine.make_engine(workers, processes=1)
    report = label_with_progress(
        output, traces, out, review=review, lowest=lowest, corrections=corrections, engine=where
    )
    if not output.write_json(msgspec.to_builtins(report)):
        show_labels(output, report)


def _explain(output: Output, traces: Path, key: str, corrections: Path | None) -> None:
    import msgspec

    from foretrace.actions.corrections import read_corrections
    from foretrace.actions.explain import explain_trace
    from foretrace.cli.display.explanation import show_explanation
    from foretrace.cli.display.traces import warn_unsealed
    from foretrace.core.store import TraceStore
    from foretrace.objectstores.traces import open_traces_for_reading

    given = None if corrections is None else read_corrections(corrections)
    with open_traces_for_reading(traces) as folder:
        warn_unsealed(output, folder)
        trace = TraceStore(folder).get(key)
    steps = explain_trace(trace, given)
    if not output.write_json({"key": trace.key, "steps": msgspec.to_builtins(steps)}):
        show_explanation(output, trace, steps)
