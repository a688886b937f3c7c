"""`foretrace export`: the traces of a folder as one file of JSON lines."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from foretrace.cli.options import out_option, parse_file
from foretrace.cli.output import Output

_Format = Annotated[
    Literal["jsonl", "chat", "inline"],
    typer.Option(
        "--format",
        help="jsonl: whole traces; chat: OpenAI messages and tools; inline: one assistant message an attempt.",
    ),
]


def export(
    output: Output,
    traces: Annotated[Path, typer.Argument(metavar="TRACES", help="Traces folder.")],
    *,
    format: _Format,
    out: Annotated[Path, out_option("FILE", "File: .jsonl, or with .gz or .zst.", parser=parse_file)],
) -> None:
    """Write the traces of a folder as JSON lines."""
    from foretrace.api.traces import export
    from foretrace.cli.display.traces import show_export, warn_unsealed

    warn_unsealed(output, traces)
    output.interrupt_message = f"interrupted; nothing was written to {out}"
    with output.progress(f"exporting {traces}") as progress:
        report = export(traces, format=format, out=out, progress=progress)
    if report.from_demo_model and format != "jsonl":
        output.note(
            f"{report.from_demo_model:,} of the traces are the demo model's: they show the form, "
            "and are no training data"
        )
    counts = {"traces": report.traces, "written": report.written}
    if format == "inline":
        counts["with_tokens"] = report.with_tokens
    file = {"format": format, "out": str(out), "bytes": report.bytes, "replaced": report.replaced}
    if not output.write_json({**counts, "dropped": report.dropped, **file}):
        show_export(output, counts, report, out)
