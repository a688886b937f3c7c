"""`foretrace export`: the traces of a folder in a format that others read."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from foretrace.cli.options import out_option, parse_file
from foretrace.cli.output import Output

_Format = Annotated[
    str,
    typer.Option(
        "--format",
        metavar="FORMAT",
        help="One of: jsonl (whole traces), chat (OpenAI messages and tools, with the outcome), inline (one assistant "
        "message an attempt), openai (fine-tuning), sharegpt, verifiers_sft, otlp (OpenTelemetry spans); atif or "
        "atif:1.8 (Harbor's trajectories) and hub_session (the Hub's viewer) write a folder, a file for each trace.",
    ),
]


def export(
    output: Output,
    traces: Annotated[Path, typer.Argument(metavar="TRACES", help="Traces folder.")],
    *,
    format: _Format,
    out: Annotated[
        Path,
        out_option("FILE", "File: .jsonl, or with .gz or .zst; a folder for atif and hub_session.", parser=parse_file),
    ],
) -> None:
    """Write the traces of a folder in a format that others read, and say what it could not hold."""
    import msgspec

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
    if not output.write_json(msgspec.to_builtins(report)):
        show_export(output, report)
