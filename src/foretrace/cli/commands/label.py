"""`foretrace label`: what every step of every trace does, as one file of rows."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from foretrace.cli.options import Workers, out_option, parse_file
from foretrace.cli.output import Output


def label(
    output: Output,
    traces: Annotated[Path, typer.Argument(metavar="TRACES", help="Traces folder.")],
    *,
    out: Annotated[Path, out_option("FILE", "Labels: .parquet, .jsonl or .csv.", parser=parse_file)],
    workers: Workers = 1,
) -> None:
    """Label every step of every trace with the kind of action it takes.

    One row a step: which of the nine actions it is, the rule that decided, what running it would touch.
    """
    import msgspec

    from foretrace.cli.display.dataset import show_labels
    from foretrace.cli.with_progress import label_with_progress

    report = label_with_progress(output, traces, out, workers=workers)
    if not output.write_json(msgspec.to_builtins(report)):
        show_labels(output, report, out)
