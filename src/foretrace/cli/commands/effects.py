"""`foretrace effects`: what calls would touch, by tool and pattern, as a manifest for runtimes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from foretrace.cli.options import out_option, parse_file
from foretrace.cli.output import Output


def effects(
    output: Output,
    traces: Annotated[Path, typer.Argument(metavar="TRACES", help="Traces folder.")],
    *,
    out: Annotated[Path, out_option("FILE", "Manifest: .json.", parser=parse_file)],
) -> None:
    """Write down which calls a runtime may run early.

    For each tool, and for each pattern of its arguments: read_only, idempotent, unsafe or unknown, with counts as
    evidence and the hints that MCP's tool annotations have. What wrote once is never called read-only.
    """
    output.stay_small()
    import msgspec

    from foretrace.api.evaluation import effects
    from foretrace.cli.display.effects import show_effects
    from foretrace.cli.display.traces import warn_unsealed
    from foretrace.core.files import refuse_inside_folder

    refuse_inside_folder(out, traces)
    warn_unsealed(output, traces)
    replaced = out.exists()
    with output.progress(f"reading {traces}") as progress:
        manifest = effects(traces, out, progress=progress)
    if not output.write_json({"file": str(out), "replaced": replaced, **msgspec.to_builtins(manifest)}):
        show_effects(output, manifest, out, replaced=replaced)
