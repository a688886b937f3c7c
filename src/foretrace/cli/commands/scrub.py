"""`foretrace scrub`: copy a traces folder without its secrets."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from foretrace.cli.options import RedactAddresses, RedactEmails, out_option
from foretrace.cli.output import Output


def scrub(
    output: Output,
    traces: Annotated[Path, typer.Argument(metavar="TRACES", help="Traces folder.")],
    *,
    out: Annotated[Path, out_option("CLEAN", "Traces folder for the clean traces, made if absent.")],
    redact_emails: RedactEmails = False,
    redact_addresses: RedactAddresses = False,
) -> None:
    """Copy a traces folder without the secrets and user names in its traces.

    For folders that were written before foretrace looked for them, or with --no-redact. The folder stays as it is.
    """
    import msgspec

    from foretrace.api.traces import scrub
    from foretrace.cli.display.traces import show_scrubbed, warn_unsealed

    warn_unsealed(output, traces)
    output.interrupt_message = (
        f"interrupted; what was sealed so far is kept in {out}, the same command goes on from there"
    )
    with output.progress(f"scrubbing {traces}") as progress:
        report = scrub(
            traces, out=out, redact_emails=redact_emails, redact_addresses=redact_addresses, progress=progress
        )
    if not output.write_json(msgspec.to_builtins(report)):
        show_scrubbed(output, report)
