"""`foretrace push`: send a built dataset to the Hugging Face Hub."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from foretrace.cli.output import Output

if TYPE_CHECKING:
    from foretrace.dataset.push import PushedRepository


def push(
    say: Output,
    dataset: Annotated[Path, typer.Argument(metavar="DATASET", help="What `foretrace build` wrote.")],
    *,
    org: Annotated[str, typer.Option("--org", metavar="ORG", help="Organisation or user on the Hub.")],
    private: Annotated[bool, typer.Option("--private", help="Make new repositories private.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be sent, and send nothing.")] = False,
    allow_undecided: Annotated[
        bool, typer.Option("--allow-undecided", help="Push although a gate had too few rows to decide.")
    ] = False,
) -> None:
    """Push a dataset to the Hugging Face Hub.

    Up to four repositories; the token comes from the environment (HF_TOKEN).
    """
    pushed = push_dataset(say, dataset, org, private=private, dry_run=dry_run, allow_undecided=allow_undecided)
    if not say.emit({"dry_run": dry_run, "repositories": pushed_facts(pushed)}):
        show_pushed(say, pushed, dry_run=dry_run)


def push_dataset(
    say: Output, dataset: Path, org: str, *, private: bool, dry_run: bool = False, allow_undecided: bool
) -> list[PushedRepository]:
    """Push with progress on stderr."""
    from foretrace.dataset.push import find_unpushed_configs
    from foretrace.dataset.push import push as run

    say.kept = "interrupted; repositories that were pushed are whole, the same command goes on with the others"
    for config in find_unpushed_configs(dataset):
        say.warn(f"warning: config {config} belongs to no repository of ours and is not pushed", "yellow")
    with say.progress(f"pushing {dataset} to {org}") as progress:
        return run(dataset, org, private=private, dry_run=dry_run, allow_undecided=allow_undecided, report=progress)


def pushed_facts(pushed: list[PushedRepository]) -> list[dict[str, Any]]:
    """What was pushed, for `--json`."""
    import msgspec

    return [msgspec.to_builtins(p) for p in pushed]


def show_pushed(say: Output, pushed: list[PushedRepository], *, dry_run: bool) -> None:
    """Say what was pushed."""
    done = "would push" if dry_run else "pushed"
    say.table(
        ("repository", "rows", "files", "bytes", "what"),
        [(p.url, p.rows, len(p.files), p.bytes, "is there already" if p.skipped else done) for p in pushed],
    )
