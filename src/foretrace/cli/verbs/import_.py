"""`foretrace import`: add raw rows to a traces folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from foretrace.cli.output import Output
from foretrace.core.errors import UsageError

if TYPE_CHECKING:
    from foretrace.sources.importing import ImportReport


_OUTCOMES = (("true", "success"), ("false", "failed"), ("unknown", "unknown"))
_Source = Annotated[
    str,
    typer.Argument(metavar="SOURCE", help="A source (`foretrace sources` lists them), source:split, or module:Class."),
]
_Paths = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar="PATH", help="Files, or folders of files. None: the source's place on the Hugging Face Hub."
    ),
]
_Out = Annotated[Path, typer.Option("--out", metavar="TRACES", help="Traces folder, made if absent.")]
_Split = Annotated[str | None, typer.Option("--split", metavar="S", help="Split on the Hub.")]
_Revision = Annotated[str | None, typer.Option("--revision", metavar="R", help="Commit or branch on the Hub.")]
_Repo = Annotated[
    str | None, typer.Option("--repo", metavar="REPO", help="Another repository on the Hub, or a local dataset folder.")
]
_Limit = Annotated[int | None, typer.Option("--limit", metavar="N", min=1, help="Read at most N rows of each input.")]
_Map = Annotated[
    list[str] | None,
    typer.Option("--map", metavar="FIELD=COLUMN", help="Column that holds a field (source chat); may be repeated."),
]
_License = Annotated[str | None, typer.Option("--license", metavar="L", help="License of the rows (source chat).")]
_KeepPrefixRows = Annotated[
    bool, typer.Option("--keep-prefix-rows", help="Keep rows that a longer one goes on from (source toolbench).")
]
_Replace = Annotated[bool, typer.Option("--replace", help="Take a trace whose key is there with other content.")]
_Shards = Annotated[int | None, typer.Option("--shards", metavar="N", min=1, help="Shards of a new folder.")]


def import_(
    say: Output,
    source: _Source,
    paths: _Paths = None,
    *,
    out: _Out,
    split: _Split = None,
    revision: _Revision = None,
    repo: _Repo = None,
    limit: _Limit = None,
    columns: _Map = None,
    license: _License = None,
    keep_prefix_rows: _KeepPrefixRows = False,
    replace: _Replace = False,
    shards: _Shards = None,
) -> None:
    """Add raw rows to a traces folder.

    Every row ends as a trace, a counted drop, or was already there. The same command again goes on where an
    interrupted one stopped.
    """
    from foretrace.sources.importing import check_not_empty, import_source
    from foretrace.sources.registry import make_source, open_files, open_hub, parse_source_spec

    spec = parse_source_spec(source)
    if spec.path is not None:
        raise UsageError(f"{source!r}: name the file behind the source: foretrace import {spec.name} {spec.path}")
    if spec.split and split and spec.split != split:
        raise UsageError(f"{source!r} and --split {split!r} name two splits")
    split = split or spec.split
    plugin = make_source(
        spec.name, {"columns": _mapping(columns or []), "license": license, "keep_prefix_rows": keep_prefix_rows}
    )
    if paths:
        _refuse_hub_options(split, revision, repo)
    say.kept = f"interrupted; what was sealed so far is kept in {out}, the same command goes on from there"
    with say.progress(f"opening {spec.name}") as progress:
        if paths and ":" not in spec.name:
            say.stay_small()
        inputs = open_files(paths) if paths else [open_hub(plugin, split=split, revision=revision, repo=repo)]
        report = import_source(plugin, inputs, out, limit=limit, replace=replace, shards=shards, progress=progress)
    label = inputs[0].label if len(inputs) == 1 else f"{len(inputs)} files"
    show_import(say, report, label, out)
    check_not_empty(report, label, out)


def _mapping(pairs: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for pair in pairs:
        field, equals, column = pair.partition("=")
        if not (field and equals and column):
            raise UsageError(f"--map {pair!r}: write FIELD=COLUMN, e.g. --map messages=turns")
        if field in found:
            raise UsageError(f"--map names the field {field!r} twice")
        found[field] = column
    return found


def _refuse_hub_options(split: str | None, revision: str | None, repo: str | None) -> None:
    for flag, value in (("--split (or source:split)", split), ("--revision", revision), ("--repo", repo)):
        if value is not None:
            raise UsageError(f"{flag} is for rows on the Hub and would be ignored for local files; leave it out")


def import_facts(report: ImportReport, label: str, out: Path) -> dict[str, Any]:
    """The report as one JSON object."""
    return {
        "input": label,
        "out": str(out),
        "rows": report.rows,
        "traces": report.traces,
        "replaced": report.replaced,
        "already_there": report.already,
        "drops": dict(sorted(report.drops.items())),
        "examples": report.examples,
        "success": {name: report.success[name] for name in ("true", "false", "unknown")},
    }


def show_import(say: Output, report: ImportReport, label: str, out: Path) -> None:
    """Say what an import did."""
    for reason, examples in sorted(report.examples.items()):
        for example in examples:
            say.note(f"dropped, {reason}: {example}")
    hint = report.success["unknown"] and not report.success["true"] + report.success["false"]
    if hint:
        say.note(
            "no row says whether its attempt succeeded: `foretrace build` takes successful attempts only, "
            "unless it is given --outcomes not_failed or --outcomes all"
        )
    if say.emit(import_facts(report, label, out)):
        return
    outcomes = report.success
    say.facts(
        [
            ("input", label),
            ("rows", report.rows),
            ("traces", report.traces),
            *([("replaced", report.replaced)] if report.replaced else []),
            ("drops", report.drops.total()),
            *((f"  {reason}", count) for reason, count in sorted(report.drops.items())),
            ("already there", report.already),
            ("outcomes", ", ".join(f"{outcomes[k]:,} {name}" for k, name in _OUTCOMES)),
            ("traces folder", str(out)),
        ]
    )
    say.line(import_sum(report))


def import_sum(report: ImportReport) -> str:
    """What became of the rows, as a sum."""
    replaced = f" + {report.replaced:,} replaced" if report.replaced else ""
    return (
        f"{report.rows:,} rows = {report.traces:,} traces{replaced} + {report.drops.total():,} drops "
        f"+ {report.already:,} already there"
    )
