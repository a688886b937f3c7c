"""Traces, or sources that are imported first, become a dataset, which can be pushed: `build`, `push`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foretrace.cli.output import Output, ProgressDisplay
from foretrace.core.errors import Setting, StoreError, UsageError, count_things
from foretrace.core.places import find_address, make_local_path, write_place

if TYPE_CHECKING:
    from foretrace.dataset.push import PushReport
    from foretrace.registry import SourceSpec


def build(
    output: Output,
    inputs: Sequence[str],
    *,
    out: Path,
    limit: Sequence[str] = (),
    push: str | None = None,
    private: bool = False,
    allow_undecided: bool = False,
    redact: bool = True,
    **settings: Any,
) -> None:
    """Build a dataset from traces, or from sources.

    The dataset is checked before it is written: if a check (a gate) fails, nothing is written and an
    older dataset in --out stays as it is (exit code 3). More options are in docs/cli.md.

    Args:
        inputs: Traces folders, or sources that are imported first: swe_smith:tool, toolbench, chat=rows.jsonl.
        limit: Import at most N rows of each source, or of one: 5000, swe_smith=2000; may be repeated.
        push: Push to this user or organization on the Hub afterwards, or to one repository, OWNER/NAME.
        private: Make new repositories private (with --push).
        allow_undecided: Push even if a check had too few rows to decide (with --push).
        redact: Take secrets and user names out of what is imported.
        workers: Processes, or tasks of the cluster (default: the cores, 4 at most).
    """
    if push is None and (private or allow_undecided):
        raise UsageError(Setting("private" if private else "allow_undecided"), " is for ", Setting("push", "ORG"))
    if push is not None:
        make_local_path(out)
        if settings["allow_demo"]:
            why = " is for a demonstration, which is never pushed; leave out it or "
            raise UsageError(Setting("allow_demo"), why, Setting("push"))
    local = [Path(text).is_dir() or find_address(text) or ("=" in text and ":" not in text) for text in inputs]
    benchmarks = [Path(name.partition("=")[2] or name).is_file() for name in settings["decontaminate"]]
    if all(local) and not any(":" in recipe for recipe in settings["recipes"]) and all(benchmarks):
        output.stay_small()  # nothing comes from the Hub, and no code from outside
    import msgspec

    from foretrace.api.datasets import run_build
    from foretrace.api.scoring import REFERENCES
    from foretrace.cli.display import show
    from foretrace.cli.display.dataset import show_dataset
    from foretrace.dataset.demonstration import describe_demonstration
    from foretrace.engines.processes import usable_cores

    place, imported = write_place(out), list[dict[str, Any]]()
    importing = {"redact": redact, **{k: settings[k] for k in ("workers", "engine", "ray_address")}}
    if settings["engine"] == "processes":
        settings["workers"] = settings["workers"] or min(4, usable_cores())
        importing["workers"] = importing["workers"] or usable_cores()
    with output.progress(f"opening {place}") as progress:

        def collect() -> list[Path | str]:
            found = _collect(output, inputs, Path(f"{out}-traces"), limit, importing, imported, settings, progress)
            output.interrupt_message = f"interrupted; {place} is as it was before"
            progress(f"building {place}")
            return found

        report = run_build({**settings, "traces": collect, "out": out, "progress": progress})
    facts: dict[str, Any] = {
        "out": place,
        "imported": imported,
        "demonstration": describe_demonstration(report.manifest),
        "manifest": report.manifest,
    }
    if settings["references"]:
        facts["references"] = list(REFERENCES)
    if not output.json:
        show_dataset(output, report.manifest, out)
    if push is not None:
        where = {"repo" if "/" in push else "org": push}
        pushed = _push(output, out, **where, private=private, allow_undecided=allow_undecided)
        facts["repositories"] = msgspec.to_builtins(pushed)
        if not output.json:
            show(output, pushed)
    output.write_json(facts)


def _collect(
    output: Output,
    inputs: Sequence[str],
    into: Path,
    limit: Sequence[str],
    importing: dict[str, Any],
    imported: list[dict[str, Any]],
    settings: dict[str, Any],
    progress: ProgressDisplay,
) -> list[Path | str]:
    """Traces folders as they are, and the one into which sources are imported, with a report of each import."""
    from foretrace.core.store import TraceStore
    from foretrace.dataset.demonstration import refuse_demo_traces
    from foretrace.engines.processes import release_memory

    folders: list[Path | str] = [text for text in inputs if Path(text).is_dir() or find_address(text)]
    sources = [text for text in inputs if text not in folders]
    local = [Path(folder) for folder in folders if find_address(folder) is None]
    for folder in local:
        if not (folder / "manifest.json").is_file():
            raise StoreError(f"{folder}: is not a traces folder (it has no manifest.json); import its files first")
    stores = [TraceStore(folder) for folder in local]  # each can be read
    for folder in local:
        output.warn_unsealed(folder)
    if not settings["allow_demo"]:
        refuse_demo_traces(stores)
    if limit and not sources:
        raise UsageError(Setting("limit"), " is for sources that are imported; traces folders are taken whole")
    specs = [_parse_source(text) for text in sources]  # all of them before the first row is read
    limits = _parse_limits(limit, sources, specs)
    for text, spec in zip(sources, specs, strict=True):
        names = (text, f"{spec.name}:{spec.split}", spec.name, "")
        own = {**importing, "limit": next((limits[name] for name in names if name in limits), None)}
        imported.append(_import(output, text, spec, into, own, progress))
    if not sources:
        return folders
    output.interrupt_message = f"interrupted; what was imported is kept in {write_place(into)}"
    release_memory()
    return [*folders, into]


def _parse_limits(texts: Sequence[str], sources: Sequence[str], specs: Sequence[SourceSpec]) -> dict[str, int]:
    """Most rows by source, as it is given or by its name; under an empty name those of all others."""
    named = {"", *sources, *(spec.name for spec in specs), *(f"{spec.name}:{spec.split}" for spec in specs)}
    limits: dict[str, int] = {}
    for text in texts:
        source, _, number = text.rpartition("=")
        if not (number.isascii() and number.isdigit() and int(number) > 0):
            raise UsageError(Setting("limit", text), ": write N or SOURCE=N, e.g. ", Setting("limit", "swe_smith=2000"))
        if source not in named:
            raise UsageError(Setting("limit", text), f": the sources here are {', '.join(sources)}")
        if source in limits:
            raise UsageError(Setting("limit"), f" is given twice for {source or 'all sources'}")
        limits[source] = int(number)
    return limits


def _parse_source(text: str) -> SourceSpec:
    """What the name of a source says."""
    from foretrace.core.plugins import plugin_names
    from foretrace.registry import AUTO, make_source, parse_source_spec

    spec = parse_source_spec(text)
    if ":" not in spec.name and spec.name not in (AUTO, *plugin_names("source")):
        known = ", ".join([AUTO, *plugin_names("source")])
        if Path(text).name == "manifest.json" and Path(text).is_file():
            raise UsageError(f"{text}: is a file; give the traces folder")
        hint = f"; for a file write SOURCE={text}" if Path(text).is_file() else ""
        raise UsageError(f"{text!r} is neither a traces folder nor a source ({known}, or module:Class){hint}")
    if spec.name != AUTO:
        make_source(spec.name)
    return spec


def _import(
    output: Output, text: str, spec: SourceSpec, into: Path, importing: dict[str, Any], progress: ProgressDisplay
) -> dict[str, Any]:
    from foretrace.api.traces import import_source
    from foretrace.cli.display.imports import import_facts, note_redactions, sum_import
    from foretrace.sources.report import check_not_empty

    output.interrupt_message = f"interrupted; nothing of {text} was imported into {write_place(into)}"
    paths = [] if spec.path is None else [spec.path]
    report = import_source(spec.name, paths, out=into, split=spec.split, progress=progress, **importing)
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


def push(output: Output, dataset: Path, **settings: Any) -> None:
    """Push a dataset to the Hugging Face Hub.

    Up to four repositories of --org, or one, --repo; the token comes from the environment (HF_TOKEN).
    """
    import msgspec

    from foretrace.cli.display import show

    pushed = _push(output, dataset, **settings)
    if not output.write_json({"dry_run": settings["dry_run"], "repositories": msgspec.to_builtins(pushed)}):
        show(output, pushed)


def _push(output: Output, dataset: Path, **settings: Any) -> PushReport:
    from foretrace.api.datasets import push
    from foretrace.dataset.push import find_unpushed_configs

    output.interrupt_message = (
        "interrupted; repositories that were pushed are whole, the same command goes on with the others"
    )
    for config in find_unpushed_configs(dataset):
        output.warn(f"warning: config {config} belongs to no repository of ours and is not pushed", "yellow")
    return output.work(f"pushing {dataset} to {settings.get('repo') or settings.get('org')}", push, dataset, **settings)
