"""`foretrace build`: traces, or sources that are imported first, become a dataset."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import typer

from foretrace.cli.options import EngineOptions, NoRedact, corrections_option, out_option
from foretrace.cli.output import Output
from foretrace.core.errors import Setting, StoreError, UsageError, count_things
from foretrace.core.places import find_address, write_place
from foretrace.engines.one_pool import OnePool
from foretrace.engines.processes import release_memory, usable_cores

if TYPE_CHECKING:
    from foretrace.engines.engine import Engine
    from foretrace.registry import SourceSpec
    from foretrace.sources.base import FileSource, Source


class _Shares(NamedTuple):
    train: float
    validation: float
    test: float


_SHARES = _Shares(0.8, 0.1, 0.1)


def _parse_split(text: str | _Shares) -> _Shares:
    """Three shares as they are written on the command line: 0.8/0.1/0.1."""
    if isinstance(text, _Shares):  # the default
        return text
    try:
        train, validation, test = (float(part) for part in text.split("/"))
    except ValueError:
        raise typer.BadParameter(f"{text!r}: write three shares, e.g. 0.8/0.1/0.1") from None
    return _Shares(train, validation, test)


def _split_names(given: list[str] | None) -> tuple[str, ...]:
    """The names of an option that may be given more than once, and lists several by commas; an empty one where a list
    has none, which the settings refuse."""
    lists = ([name.strip() for name in text.split(",") if name.strip()] for text in given or ())
    return tuple(name for names in lists for name in names or [""])


_Inputs = Annotated[
    list[str],
    typer.Argument(
        metavar="INPUT",
        help="Traces folders, or sources that are imported first: swe_smith:tool, toolbench, chat=rows.jsonl.",
    ),
]
_Out = Annotated[Path, out_option("DATASET", "Dataset folder to write.")]
_Limit = Annotated[int | None, typer.Option("--limit", metavar="N", min=1, help="Import at most N rows of a source.")]
_Target = Annotated[
    Literal["type", "call", "message"], typer.Option("--target", help="What is predicted of the next action.")
]
_Outcomes = Annotated[
    Literal["success", "not_failed", "all"],
    typer.Option("--outcomes", help="Whose steps are predicted, by how the attempt ended."),
]
_Context = Annotated[int, typer.Option("--max-context-tokens", metavar="N", help="Longest prompt, in tokens.")]
_Window = Annotated[
    Literal["sliding", "blocks"],
    typer.Option("--window", help="How the history is cut: blocks lets a server reuse most of the prompt before."),
]
_Tokenizer = Annotated[
    Path | None,
    typer.Option("--tokenizer", metavar="PATH", help="tokenizer.json to count tokens with; else UTF-8 bytes / 3.5."),
]
_Split = Annotated[
    _Shares,
    typer.Option(
        "--split",
        metavar="A/B/C",
        help="Shares of train, validation and test (default: 0.8/0.1/0.1).",
        show_default=False,
        parser=_parse_split,
    ),
]
_Seed = Annotated[int, typer.Option("--seed", metavar="N", help="Seed of all random choices.")]
_EvalSize = Annotated[
    int,
    typer.Option("--eval-size", metavar="N", min=0, help="Eval rows drawn as they occur (slice `natural`), at most."),
]
_Pairs = Annotated[
    int, typer.Option("--pairs", metavar="N", min=0, help="Preference pairs of one kind that a trace may give.")
]
_Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace the dataset in --out.")]
_Push = Annotated[
    str | None, typer.Option("--push", metavar="ORG", help="Push to this user or organisation on the Hub afterwards.")
]
_Private = Annotated[bool, typer.Option("--private", help="Make new repositories private (with --push).")]
_AllowUndecided = Annotated[
    bool, typer.Option("--allow-undecided", help="Push although a check had too few rows to decide (with --push).")
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
_AllowUnread = Annotated[
    bool, typer.Option("--allow-unread", help="Take traces although calls in their text were not read.")
]
_KeepFlagged = Annotated[
    bool, typer.Option("--keep-flagged", help="Take successes although a step of theirs is flagged as a cheat.")
]
_Dedup = Annotated[
    Literal["keep-best"] | None,
    typer.Option("--dedup", help="Keep one of trajectories that are copies: successful, then the shortest."),
]
_LicenseAllow = Annotated[
    list[str] | None,
    typer.Option("--license-allow", metavar="NAMES", help="Take traces of these licenses alone, e.g. MIT,Apache-2.0."),
]
_LicenseDeny = Annotated[
    list[str] | None,
    typer.Option(
        "--license-deny", metavar="NAMES", help="Leave out traces of these licenses, or of none that is known."
    ),
]
_Decontaminate = Annotated[
    list[str] | None,
    typer.Option(
        "--decontaminate", metavar="NAMES", help="Leave out problems of benchmarks: humaneval,mbpp,swebench,FILE."
    ),
]
_KeepContaminated = Annotated[
    bool, typer.Option("--keep-contaminated", help="Only report the problems of --decontaminate.")
]
_References = Annotated[
    bool, typer.Option("--references", help="Add what free predictors reach on the eval rows, for `foretrace score`.")
]
_Mistakes = Annotated[
    list[Path] | None,
    typer.Option(
        "--mistakes", metavar="FILE", help="Predictions for this dataset's rows, whose wrong guesses give pairs too."
    ),
]
_AllowUnchecked = Annotated[
    bool,
    typer.Option(
        "--allow-unchecked",
        help="Take predictions that do not say that no row's own answer was learnt (with --mistakes).",
    ),
]
_Workers = Annotated[
    int | None,
    typer.Option("--workers", metavar="N", min=1, help="Processes (default: the cores, 4 at most)."),
]


def build(
    output: Output,
    inputs: _Inputs,
    *,
    out: _Out,
    limit: _Limit = None,
    target: _Target = "call",
    outcomes: _Outcomes = "success",
    max_context_tokens: _Context = 8192,
    window: _Window = "sliding",
    tokenizer: _Tokenizer = None,
    split: _Split = _SHARES,
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
    allow_unread: _AllowUnread = False,
    keep_flagged: _KeepFlagged = False,
    dedup: _Dedup = None,
    license_allow: _LicenseAllow = None,
    license_deny: _LicenseDeny = None,
    decontaminate: _Decontaminate = None,
    keep_contaminated: _KeepContaminated = False,
    corrections: Annotated[Path | None, corrections_option()] = None,
    mistakes: _Mistakes = None,
    allow_unchecked: _AllowUnchecked = False,
    references: _References = False,
    no_redact: NoRedact = False,
    workers: _Workers = None,
    engine: EngineOptions,
) -> None:
    """Build a dataset from traces, or from sources.

    The dataset is checked before it is written: if a check (a gate) fails, nothing is written and an
    older dataset in --out stays as it is (exit code 3).
    """
    given = locals()
    from foretrace.api.datasets import check_references
    from foretrace.api.settings import pick_settings
    from foretrace.cli.display.dataset import show_dataset, show_pushed
    from foretrace.cli.with_progress import add_references_with_progress, build_with_progress, push_with_progress
    from foretrace.dataset.demonstration import describe_demonstration
    from foretrace.dataset.settings import BuildSettings

    if push is None and (private or allow_undecided):
        raise UsageError(Setting("private" if private else "allow_undecided"), " is for ", Setting("push", "ORG"))
    if push is not None and allow_demo:
        why = " is for a demonstration, which is never pushed; leave out it or "
        raise UsageError(Setting("allow_demo"), why, Setting("push"))
    if (
        all(Path(text).is_dir() or find_address(text) or ("=" in text and ":" not in text) for text in inputs)
        and not any(":" in r for r in recipes or ())
        and all(Path(name.partition("=")[2] or name).is_file() for name in _split_names(decontaminate))
    ):
        output.stay_small()  # nothing comes from the Hub, and no code from outside
    from foretrace.dataset.build import check_output
    from foretrace.objectstores.dataset import open_dataset_for_writing

    lists = {"license_allow": license_allow, "license_deny": license_deny, "decontaminate": decontaminate}
    settings = pick_settings(
        BuildSettings,
        given,
        tokenizer=None if tokenizer is None else str(tokenizer),
        split=list(split),
        recipes=recipes or [],
        corrections=None if corrections is None else str(corrections),
        mistakes=[str(file) for file in mistakes or ()],
        **{name: _split_names(names) for name, names in lists.items()},
    )
    # Before hours of importing, what the build itself would refuse after them.
    settings.check()
    if references:
        check_references(target)
    one = OnePool()
    importing = one.share(engine.make_engine(workers, processes=usable_cores()))
    building = one.share(engine.make_engine(workers, processes=min(4, usable_cores())))
    with ExitStack() as places:
        with output.progress(f"opening {write_place(out)}") as progress:
            places.enter_context(engine.connect())
            opened = open_dataset_for_writing(out, overwrite=overwrite, progress=progress)
            folder, publish = places.enter_context(opened)
            check_output(folder, overwrite=overwrite)
        with one:
            folders, imported = _collect_folders(
                output,
                inputs,
                out,
                limit,
                places,
                allow_demo=allow_demo,
                redact=not no_redact,
                engine=importing,
            )
            report = build_with_progress(
                output,
                folders,
                folder,
                settings,
                engine=building,
                overwrite=overwrite,
                shown=write_place(out),
            )
        facts: dict[str, Any] = {
            "out": write_place(out),
            "imported": imported,
            "demonstration": describe_demonstration(report.manifest),
            "manifest": report.manifest,
        }
        if references:
            facts["references"] = add_references_with_progress(output, folder)
        publish()
        if not output.json:
            show_dataset(output, report.manifest, out)
        if push is not None:
            import msgspec

            pushed = push_with_progress(output, folder, push, private=private, allow_undecided=allow_undecided)
            facts["repositories"] = msgspec.to_builtins(pushed)
            if not output.json:
                show_pushed(output, pushed)
    output.write_json(facts)


def _collect_folders(
    output: Output,
    inputs: list[str],
    out: Path,
    limit: int | None,
    places: ExitStack,
    *,
    allow_demo: bool,
    redact: bool,
    engine: Engine,
) -> tuple[list[Path], list[dict[str, Any]]]:
    """Traces folders as they are, copies of those in object stores (which last as long as `places`), and the one into
    which sources are imported; a report of each import."""
    from foretrace.cli.display.traces import warn_unsealed
    from foretrace.core.store import TraceStore
    from foretrace.dataset.demonstration import refuse_demo_traces
    from foretrace.objectstores.traces import open_traces_for_reading

    def open_folder(place: Path | str) -> Path:
        with output.progress(f"fetching {write_place(place)}") as progress:
            return places.enter_context(open_traces_for_reading(place, progress))

    are_folders = [text for text in inputs if Path(text).is_dir() or find_address(text)]
    folders = [open_folder(text) for text in are_folders]
    sources = [text for text in inputs if text not in are_folders]
    for folder in folders:
        if not (folder / "manifest.json").is_file():
            raise StoreError(f"{folder}: is no traces folder (it has no manifest.json); import its files first")
    stores = [TraceStore(folder) for folder in folders]  # each can be read
    for folder in folders:
        warn_unsealed(output, folder)
    if not allow_demo:
        refuse_demo_traces(stores)
    if limit is not None and not sources:
        raise UsageError(Setting("limit"), " is for sources that are imported; traces folders are taken whole")
    if not sources:
        return folders, []
    jobs = [_parse_source(text) for text in sources]  # all of them before the first row is read
    into = Path(f"{out}-traces")
    imported = [_import(output, *job, into, limit, redact=redact, engine=engine) for job in jobs]
    output.interrupt_message = f"interrupted; what was imported is kept in {write_place(into)}"
    release_memory()
    return [*folders, open_folder(into)], imported


def _parse_source(text: str) -> tuple[str, SourceSpec, str | Source | FileSource]:
    """A source as it is named, what the name says, and the source itself."""
    from foretrace.core.plugins import plugin_names
    from foretrace.registry import AUTO, make_source, parse_source_spec

    spec = parse_source_spec(text)
    if spec.path is not None and spec.split is not None:
        raise UsageError(f"{text!r}: a split is for rows on the Hub; write {spec.name}={spec.path}")
    if spec.name == AUTO:
        return text, spec, AUTO
    if ":" not in spec.name and spec.name not in plugin_names("source"):
        known = ", ".join([AUTO, *plugin_names("source")])
        if Path(text).name == "manifest.json" and Path(text).is_file():
            raise UsageError(f"{text}: is a file; give the traces folder")
        hint = f"; for a file write SOURCE={text}" if Path(text).is_file() else ""
        raise UsageError(f"{text!r} is no traces folder and no source ({known}, or module:Class){hint}")
    return text, spec, make_source(spec.name)


def _import(
    output: Output,
    text: str,
    spec: SourceSpec,
    source: str | Source | FileSource,
    into: Path,
    limit: int | None,
    *,
    redact: bool,
    engine: Engine,
) -> dict[str, Any]:
    from foretrace.api.traces import import_source
    from foretrace.cli.display.imports import import_facts, note_redactions, sum_import
    from foretrace.sources.report import check_not_empty

    output.interrupt_message = f"interrupted; nothing of {text} was imported into {write_place(into)}"
    with output.progress(f"opening {text}") as progress:
        inputs = [spec.path] if spec.path is not None else []
        report = import_source(
            source, inputs, out=into, split=spec.split, limit=limit, redact=redact, engine=engine, progress=progress
        )
    note_redactions(output, report.total.counts)
    check_not_empty(report, text, into)
    output.note(f"imported {text} into {write_place(into)}: {sum_import(report)}")
    if report.found is not None and report.found.unknown:
        first = report.found.unknown[0]
        count = count_things(report.found.unknown_count, "file")
        output.note(f"not recognised: {count}, e.g. {first.path}: {first.seen}")
    for file in report.found.ambiguous if report.found is not None else ():
        output.warn(f"warning: left out: {file.describe()}; import it under the name of one of them")
    return import_facts(report, text, into)
