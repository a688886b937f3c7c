"""`foretrace push`: send a built dataset to the Hugging Face Hub."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from foretrace.cli.output import Output

if TYPE_CHECKING:
    from foretrace.dataset.push import PushedRepository


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

    pushed = push_with_progress(
        output, dataset, org, name=name, private=private, dry_run=dry_run, allow_undecided=allow_undecided
    )
    if not output.write_json({"dry_run": dry_run, "repositories": msgspec.to_builtins(pushed)}):
        show_pushed(output, pushed, dry_run=dry_run)


def push_with_progress(
    output: Output,
    dataset: Path,
    org: str,
    *,
    name: str | None = None,
    private: bool,
    dry_run: bool = False,
    allow_undecided: bool,
) -> list[PushedRepository]:
    """Push with progress on stderr."""
    from foretrace.api import push
    from foretrace.dataset.push import find_unpushed_configs

    output.interrupt_message = (
        "interrupted; repositories that were pushed are whole, the same command goes on with the others"
    )
    for config in find_unpushed_configs(dataset):
        output.warn(f"warning: config {config} belongs to no repository of ours and is not pushed", "yellow")
    with output.progress(f"pushing {dataset} to {org}") as progress:
        return push(
            dataset,
            org=org,
            name=name,
            private=private,
            dry_run=dry_run,
            allow_undecided=allow_undecided,
            progress=progress,
        )


def show_pushed(output: Output, pushed: list[PushedRepository], *, dry_run: bool) -> None:
    """Say what was pushed."""
    done = "would push" if dry_run else "pushed"
    output.print_table(
        ("repository", "rows", "files", "bytes", "what"),
        [(p.url, p.rows, len(p.files), p.bytes, "is there already" if p.skipped else done) for p in pushed],
    )
