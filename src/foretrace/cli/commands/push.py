"""`foretrace push`: send a built dataset to the Hugging Face Hub."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from foretrace.cli.output import Output


def push(
    output: Output,
    dataset: Annotated[Path, typer.Argument(metavar="DATASET", help="What `foretrace build` wrote.")],
    *,
    org: Annotated[str, typer.Option("--org", metavar="ORG", help="Organisation or user on the Hub.")],
    name: Annotated[
        str | None, typer.Option("--name", metavar="NAME", help="What the names of the repositories begin with.")
    ] = None,
    private: Annotated[bool, typer.Option("--private", help="Make new repositories private.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be sent, and send nothing.")] = False,
    allow_undecided: Annotated[
        bool, typer.Option("--allow-undecided", help="Push although a gate had too few rows to decide.")
    ] = False,
) -> None:
    """Push a dataset to the Hugging Face Hub.

    Up to four repositories; the token comes from the environment (HF_TOKEN).
    """
    import msgspec

    from foretrace.cli.display.dataset import show_pushed
    from foretrace.cli.with_progress import push_with_progress

    pushed = push_with_progress(
        output, dataset, org, name=name, private=private, dry_run=dry_run, allow_undecided=allow_undecided
    )
    if not output.write_json({"dry_run": dry_run, "repositories": msgspec.to_builtins(pushed)}):
        show_pushed(output, pushed)
