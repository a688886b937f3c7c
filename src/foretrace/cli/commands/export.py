"""`foretrace export`: the traces of a folder as one file of JSON lines."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from foretrace.cli.output import Cell, Output

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
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="File: .jsonl, or with .gz or .zst.")],
) -> None:
    """Write the traces of a folder as JSON lines."""
    from foretrace.api import export
    from foretrace.cli.display.traces import warn_unsealed
    from foretrace.core.files import describe_output

    warn_unsealed(output, traces)
    output.interrupt_message = f"interrupted; nothing was written to {out}"
    with output.progress(f"exporting {traces}") as progress:
        report = export(traces, format=format, out=out, progress=progress)
    if report.from_demo_model and format != "jsonl":
        output.note(
            f"{report.from_demo_model:,} of the traces are the demo model's: they show the form, "
            "and are no training data"
        )
    counts: dict[str, Any] = {"traces": report.traces, "written": report.written}
    if format == "inline":
        counts["with_tokens"] = report.with_tokens
    file = {"format": format, "out": str(out), "bytes": report.bytes, "replaced": report.replaced}
    if output.write_json({**counts, "dropped": report.dropped, **file}):
        return
    fields: list[tuple[str, Cell]] = [(name.replace("_", " "), count) for name, count in counts.items()]
    fields += [(f"dropped, {reason}", count) for reason, count in report.dropped.items()]
    output.print_fields([*fields, ("bytes", report.bytes), ("file", describe_output(out, report.replaced))])
