"""`foretrace import`: add raw rows and session files to a traces folder."""

from __future__ import annotations

import contextlib
import shutil
import sys
import tempfile
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Annotated

import typer

from foretrace.cli.options import EngineOptions, NoRedact, RedactAddresses, RedactEmails, out_option
from foretrace.cli.output import Output
from foretrace.core.places import write_place

_Source = Annotated[
    str,
    typer.Argument(
        metavar="SOURCE",
        help="A source (`foretrace sources` lists them), source:split, module:Class, or auto. May be left out: auto.",
    ),
]
_Paths = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="PATH",
        help="Files, folders, patterns, - for JSON lines on stdin, or hf://datasets/OWNER/NAME. Without one, a source "
        "of rows is read from its place on the Hugging Face Hub.",
    ),
]
_Out = Annotated[Path, out_option("TRACES", "Traces folder, made if absent.")]
_Split = Annotated[str | None, typer.Option("--split", metavar="S", help="Split on the Hub.")]
_Revision = Annotated[str | None, typer.Option("--revision", metavar="R", help="Commit or branch on the Hub.")]
_Repo = Annotated[
    str | None, typer.Option("--repo", metavar="REPO", help="Another repository on the Hub, or a local dataset folder.")
]
_Limit = Annotated[int | None, typer.Option("--limit", metavar="N", min=1, help="Read at most N rows of each input.")]
_Since = Annotated[
    str | None, typer.Option("--since", metavar="DATE", help="Leave out sessions that ended before, e.g. 2026-01-31.")
]
_Workers = Annotated[
    int | None, typer.Option("--workers", metavar="N", min=1, help="Processes that convert (default: all cores).")
]
_Map = Annotated[
    list[str] | None,
    typer.Option(
        "--map",
        metavar="FIELD=COLUMN",
        help="Column, or path into objects, that holds a field (source chat); may be repeated.",
    ),
]
_License = Annotated[str | None, typer.Option("--license", metavar="L", help="License of the rows (source chat).")]
_CallPattern = Annotated[
    str | None,
    typer.Option(
        "--call-pattern",
        metavar="REGEX",
        help="How calls are written in the text: named groups `tool`, and one for each argument (source chat).",
    ),
]
_KeepPrefixRows = Annotated[
    bool,
    typer.Option("--keep-prefix-rows", help="Keep rows that are the beginning of a longer one (source toolbench)."),
]
_Replace = Annotated[
    bool, typer.Option("--replace", help="Replace stored traces of the same key whose content differs.")
]
_Shards = Annotated[
    int | None,
    typer.Option("--shards", metavar="N", min=1, help="Number of files that a new traces folder is split into."),
]

_Details = Annotated[
    bool,
    typer.Option("--details", help="Show what became of every record, by source and type, and more examples of drops."),
]


def import_(
    output: Output,
    source: _Source,
    paths: _Paths = None,
    *,
    out: _Out,
    split: _Split = None,
    revision: _Revision = None,
    repo: _Repo = None,
    limit: _Limit = None,
    since: _Since = None,
    columns: _Map = None,
    license: _License = None,
    call_pattern: _CallPattern = None,
    keep_prefix_rows: _KeepPrefixRows = False,
    replace: _Replace = False,
    shards: _Shards = None,
    workers: _Workers = None,
    engine: EngineOptions,
    details: _Details = False,
    no_redact: NoRedact = False,
    redact_emails: RedactEmails = False,
    redact_addresses: RedactAddresses = False,
) -> None:
    """Convert agent logs to traces, and add them to a traces folder.

    Without a source, folders are searched, and each file goes to the source that knows its format. Every row or
    conversation becomes a trace, is dropped and counted with the reason, or was already there. The same command again
    goes on where an interrupted one stopped, and takes what was written since. Files that no source knows are listed;
    those that several know are listed too, and then the exit code is 1.
    """
    from foretrace.clean.redact import make_redactor
    from foretrace.cli.display.imports import show_import
    from foretrace.core.pairs import parse_pairs
    from foretrace.engines.one_pool import OnePool
    from foretrace.engines.processes import usable_cores
    from foretrace.registry import AUTO, is_path, open_inputs
    from foretrace.sources.importing import import_inputs
    from foretrace.sources.report import check_not_empty

    options = {
        "columns": parse_pairs("columns", columns or [], form="FIELD=COLUMN", example="messages=turns"),
        "license": license,
        "call_pattern": call_pattern,
        "keep_prefix_rows": keep_prefix_rows,
    }
    cleaner = make_redactor(not no_redact, emails=redact_emails, addresses=redact_addresses)
    hub = {"split": split, "revision": revision, "repo": repo}
    output.interrupt_message = f"interrupted; nothing was imported into {write_place(out)}"
    where = engine.make_engine(workers, processes=usable_cores())
    if is_path(source):
        source, paths = AUTO, [source, *(paths or [])]
    with _keep_stdin(paths or []) as files, OnePool() as one:
        with output.progress("opening the input") as progress:
            if paths and ":" not in source and not any("://" in path for path in paths):
                output.stay_small()
            opened = open_inputs(
                source, files, hub=hub, options=options, since=since, engine=one.share_here(where), progress=progress
            )
        with output.progress(f"importing {opened.label}") as progress:
            report = import_inputs(
                opened.groups,
                out,
                limit=limit,
                since=since,
                replace=replace,
                shards=shards,
                engine=one.share(where),
                cleaner=cleaner,
                progress=progress,
            )
    output.interrupt_message = f"interrupted; the import into {write_place(out)} is done"
    report.found = opened.found
    show_import(output, report, opened.label, out, details=details)
    check_not_empty(report, opened.label, out)
    if opened.found is not None:
        opened.found.check_not_ambiguous()


@contextlib.contextmanager
def _keep_stdin(paths: Sequence[str]) -> Generator[list[str | Path]]:
    """The paths, with a file that holds what comes on stdin in the place of `-`."""
    if "-" not in paths:
        yield list(paths)
        return
    with tempfile.TemporaryDirectory(prefix="foretrace-") as folder:
        file = Path(folder, "stdin.jsonl")
        with file.open("wb") as copy:
            shutil.copyfileobj(sys.stdin.buffer, copy)
        yield [file if path == "-" else path for path in paths]
