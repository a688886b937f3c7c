"""`foretrace label`: what every step of every trace does, as one file of rows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from foretrace.cli.options import Workers
from foretrace.cli.output import Output

if TYPE_CHECKING:
    from foretrace.api import LabelReport


def label(
    output: Output,
    traces: Annotated[Path, typer.Argument(metavar="TRACES", help="Traces folder.")],
    *,
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="Labels: .parquet, .jsonl or .csv.")],
    workers: Workers = 1,
) -> None:
    """Label every step of every trace with the kind of action it takes.

    One row a step: which of the nine actions it is, the rule that decided, what running it would touch.
    """
    import msgspec

    from foretrace.cli.display.dataset import show_actions
    from foretrace.core.files import describe_output

    report = label_with_progress(output, traces, out, workers=workers)
    if output.write_json(msgspec.to_builtins(report)):
        return
    show_actions(output, report.actions)
    output.print_fields(
        [
            ("traces", report.traces),
            ("steps", report.steps),
            ("not a step", report.nonsteps),
            ("labels", describe_output(out, report.replaced)),
        ]
    )


def label_with_progress(output: Output, traces: Path, out: Path, *, workers: int) -> LabelReport:
    """Write the labels of a traces folder, with progress on stderr."""
    output.stay_small()
    from foretrace.api import label_folder
    from foretrace.cli.display.traces import warn_unsealed

    warn_unsealed(output, traces)
    output.interrupt_message = f"interrupted; nothing was written to {out}"
    with output.progress(f"labelling {traces}") as progress:
        return label_folder(traces, out=out, workers=workers, progress=progress)
