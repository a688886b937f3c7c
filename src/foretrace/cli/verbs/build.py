"""`foretrace build`: traces, or sources that are imported first, become a dataset."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from foretrace.cli.output import Output
from foretrace.core.errors import BuildError, StoreError, UsageError

if TYPE_CHECKING:
    from foretrace.dataset.settings import BuildSettings
    from foretrace.sources.base import Source
    from foretrace.sources.registry import Spec


_Inputs = Annotated[
    list[str],
    typer.Argument(
        metavar="INPUT",
        help="Traces folders, or sources that are imported first: swe_smith:tool, toolbench, chat=rows.jsonl.",
    ),
]
_Out = Annotated[Path, typer.Option("--out", metavar="DATASET", help="Dataset folder.")]
_Limit = Annotated[int | None, typer.Option("--limit", metavar="N", min=1, help="Import at most N rows of a source.")]
_Target = Annotated[Literal["type", "call", "message"], typer.Option("--target", help="What a proposer predicts.")]
_Outcomes = Annotated[
    Literal["success", "not_failed", "all"], typer.Option("--outcomes", help="Attempts whose steps are targets.")
]
_Context = Annotated[int, typer.Option("--max-context-tokens", metavar="N", help="Longest prompt.")]
_Tokenizer = Annotated[
    Path | None, typer.Option("--tokenizer", metavar="PATH", help="tokenizer.json to count with; else bytes / 3.5.")
]
_Split = Annotated[str, typer.Option("--split", metavar="A/B/C", help="Shares of train, validation and test.")]
_Seed = Annotated[int, typer.Option("--seed", metavar="N", help="Seed of every choice.")]
_EvalSize = Annotated[int, typer.Option("--eval-size", metavar="N", min=0, help="Rows of the natural eval slice.")]
_Pairs = Annotated[int, typer.Option("--pairs", metavar="N", min=0, help="Pairs of a family that one trace may give.")]
_Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace a dataset that is there.")]
_Push = Annotated[str | None, typer.Option("--push", metavar="ORG", help="Push to this organisation afterwards.")]
_Private = Annotated[bool, typer.Option("--private", help="Make new repositories private (with --push).")]
_AllowUndecided = Annotated[
    bool, typer.Option("--allow-undecided", help="Push although a gate could not decide (with --push).")
]
_Recipes = Annotated[
    list[str] | None,
    typer.Option("--recipes", metavar="NAME", help="Build these recipes only.", hidden=True),
]
_Gates = Annotated[
    bool, typer.Option("--statistical-gates/--no-statistical-gates", help="Measure the pair families.", hidden=True)
]
_AllowDemo = Annotated[
    bool,
    typer.Option("--allow-demo", help="Take traces of the demo model; the dataset is a demonstration.", hidden=True),
]
_Workers = Annotated[
    int | None,
    typer.Option("--workers", metavar="N", min=1, help="Processes (default: the cores, 4 at most)."),
]


def build(
    say: Output,
    inputs: _Inputs,
    *,
    out: _Out,
    limit: _Limit = None,
    target: _Target = "call",
    outcomes: _Outcomes = "success",
    max_context_tokens: _Context = 8192,
    tokenizer: _Tokenizer = None,
    split: _Split = "0.8/0.1/0.1",
    seed: _Seed = 0,
    eval_size: _EvalSize = 2000,
    pairs: _Pairs = 4,
    overwrite: _Overwrite = False,
    push: _Push = None,
    private: _Private = False,
    allow_undecided: _AllowUndecided = False,
    recipes: _Recipes = None,
    statistical_gates: _Gates = True,
    allow_demo: _AllowDemo = False,
    workers: _Workers = None,
) -> None:
    """Build a dataset from traces, or from sources.

    Whole or not at all: a failed gate leaves what was there untouched (exit code 3).
    """
    from foretrace.cli.display.dataset import show_dataset
    from foretrace.dataset.demonstration import describe_demonstration
    from foretrace.dataset.settings import BuildSettings

    if push is None and (private or allow_undecided):
        raise UsageError(f"{'--private' if private else '--allow-undecided'} is for --push ORG")
    if push is not None and allow_demo:
        raise UsageError("--allow-demo is for a demonstration, which is never pushed; leave out it or --push")
    settings = BuildSettings(
        target=target,
        outcomes=outcomes,
        max_context_tokens=max_context_tokens,
        tokenizer=None if tokenizer is None else str(tokenizer),
        split=read_shares(split),
        seed=seed,
        eval_size=eval_size,
        pairs=pairs,
        recipes=tuple(recipes or ()),
        statistical_gates=statistical_gates,
        allow_demo=allow_demo,
    )
    settings.check()
    if all(Path(text).is_dir() or ("=" in text and ":" not in text) for text in inputs) and not any(
        ":" in r for r in recipes or ()
    ):
        say.stay_small()  # nothing comes from the Hub, and no code from outside
    check_out(out, overwrite)
    folders, imported = _gather(say, inputs, out, limit, allow_demo=allow_demo)
    manifest = build_dataset(
        say, folders, out, settings, workers=workers or min(4, os.cpu_count() or 1), overwrite=overwrite
    )
    facts: dict[str, Any] = {
        "out": str(out),
        "imported": imported,
        "demonstration": describe_demonstration(manifest),
        "manifest": manifest,
    }
    if not say.json:
        show_dataset(say, manifest, out)
    if push is not None:
        from foretrace.cli.verbs.push import push_dataset, pushed_facts, show_pushed

        pushed = push_dataset(say, out, push, private=private, allow_undecided=allow_undecided)
        facts["repositories"] = pushed_facts(pushed)
        if not say.json:
            show_pushed(say, pushed, dry_run=False)
    say.emit(facts)


def read_shares(text: str) -> tuple[float, float, float]:
    """Three shares as they are written on the command line: 0.8/0.1/0.1."""
    try:
        train, validation, test = (float(part) for part in text.split("/"))
    except ValueError:
        raise UsageError(f"--split {text!r}: write three shares, e.g. 0.8/0.1/0.1") from None
    return train, validation, test


def check_out(out: Path, overwrite: bool) -> None:
    """Refuse an output that is there before hours of work, not after."""
    if out.is_file():
        raise BuildError(f"{out}: is a file; name a folder")
    if not overwrite and out.is_dir() and any(out.iterdir()):
        raise BuildError(f"{out}: is there already; give --overwrite or another --out")


def _gather(
    say: Output, inputs: list[str], out: Path, limit: int | None, *, allow_demo: bool
) -> tuple[list[Path], list[dict[str, Any]]]:
    """Traces folders as they are, and the one into which sources are imported."""
    from foretrace.cli.unsealed import warn_unsealed
    from foretrace.core.store import TraceStore
    from foretrace.dataset.demonstration import refuse_demo_traces

    folders = [Path(text) for text in inputs if Path(text).is_dir()]
    named = [text for text in inputs if not Path(text).is_dir()]
    for folder in folders:
        if not (folder / "manifest.json").is_file():
            raise StoreError(f"{folder}: is no traces folder (it has no manifest.json); import its files first")
    stores = [TraceStore(folder) for folder in folders]  # each can be read
    for folder in folders:
        warn_unsealed(say, folder)
    if not allow_demo:
        refuse_demo_traces(stores)
    if limit is not None and not named:
        raise UsageError("--limit is for sources that are imported; traces folders are taken whole")
    if not named:
        return folders, []
    jobs = [_job(text) for text in named]  # all of them before the first row is read
    into = out.with_name(out.name + "-traces")
    imported = [_import(say, *job, into, limit) for job in jobs]
    return [*folders, into], imported


def _job(text: str) -> tuple[str, Spec, Source]:
    from foretrace.core.plugins import names
    from foretrace.sources.registry import make_source, read_spec

    spec = read_spec(text)
    if spec.path is not None and spec.split is not None:
        raise UsageError(f"{text!r}: a split is for rows on the Hub; write {spec.name}={spec.path}")
    if ":" not in spec.name and spec.name not in names("source"):
        known = ", ".join(names("source"))
        if Path(text).name == "manifest.json" and Path(text).is_file():
            raise UsageError(f"{text}: is a file; give the traces folder")
        hint = f"; for a file write SOURCE={text}" if Path(text).is_file() else ""
        raise UsageError(f"{text!r} is no traces folder and no source ({known}, or module:Class){hint}")
    return text, spec, make_source(spec.name)


def _import(say: Output, text: str, spec: Spec, source: Source, into: Path, limit: int | None) -> dict[str, Any]:
    from foretrace.cli.verbs.import_ import check_not_empty, import_facts
    from foretrace.sources.importing import import_source
    from foretrace.sources.registry import file_inputs, hub_input

    say.kept = f"interrupted; what was sealed so far is kept in {into}, the same command goes on from there"
    with say.progress(f"opening {text}") as progress:
        if spec.path is not None:
            inputs = file_inputs([spec.path])
        else:
            inputs = [hub_input(source, split=spec.split, revision=None, repo=None)]
        report = import_source(source, inputs, into, limit=limit, progress=progress)
    check_not_empty(report, text)
    say.note(
        f"imported {text} into {into}: {report.rows:,} rows = {report.traces:,} traces "
        f"+ {report.drops.total():,} drops + {report.already:,} already there"
    )
    return import_facts(report, text, into)


def build_dataset(
    say: Output, folders: list[Path], out: Path, settings: BuildSettings, *, workers: int, overwrite: bool
) -> dict[str, Any]:
    """Build with progress on stderr; returns the manifest."""
    from foretrace.dataset.build import build as run

    say.kept = f"interrupted; {out} is as it was before"
    with say.progress(f"building {out}") as progress:
        report = run(folders, out, settings, workers=workers, overwrite=overwrite, progress=progress)
    return report.manifest
