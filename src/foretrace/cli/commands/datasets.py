"""Traces, or sources that are imported first, become a dataset, which can be pushed: `build`, `push`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foretrace.cli.display import print_report
from foretrace.cli.output import Output, ProgressDisplay
from foretrace.core.errors import Setting, UsageError, count_things
from foretrace.core.places import find_address, make_local_path, write_place

if TYPE_CHECKING:
    from foretrace.dataset.push import PushReport


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
    folders = [text for text in inputs if Path(text).is_dir() or find_address(text)]
    sources = [text for text in inputs if text not in folders]
    if not _needs_outside(sources, settings):
        output.stay_small()
    import msgspec

    from foretrace.api.datasets import build
    from foretrace.api.evaluation import REFERENCES
    from foretrace.dataset.demonstration import describe_demonstration
    from foretrace.engines.processes import usable_cores

    if limit and not sources:
        raise UsageError(Setting("limit"), " is for sources that are imported; traces folders are taken whole")
    place, imported = write_place(out), list[dict[str, Any]]()
    importing = {"redact": redact, **{k: settings[k] for k in ("workers", "engine", "ray_address")}}
    if settings["engine"] == "processes":
        settings["workers"] = settings["workers"] or min(4, usable_cores())
        importing["workers"] = importing["workers"] or usable_cores()
    with output.progress(f"opening {place}") as progress:

        def collect() -> list[Path | str]:
            _check_folders(output, [Path(text) for text in folders if find_address(text) is None], settings)
            found: list[Path | str] = [*folders]
            if sources:
                into = Path(f"{out}-traces")
                imported.extend(_import_sources(output, sources, into, limit, importing, progress))
                found.append(into)
            output.interrupt_message = f"interrupted; {place} is as it was before"
            progress(f"building {place}")
            return found

        report = build(collect, out=out, progress=progress, **settings)
    facts: dict[str, Any] = {
        "out": place,
        "imported": imported,
        "demonstration": describe_demonstration(report.manifest),
        "manifest": report.manifest,
    }
    if settings["references"]:
        facts["references"] = list(REFERENCES)
    if not output.json:
        print_report(output, report, out)
    if push is not None:
        where = {"repo" if "/" in push else "org": push}
        pushed = _push(output, out, **where, private=private, allow_undecided=allow_undecided)
        facts["repositories"] = msgspec.to_builtins(pushed)
        if not output.json:
            print_report(output, pushed)
    output.write_json(facts)


def _check_folders(output: Output, folders: Sequence[Path], settings: dict[str, Any]) -> None:
    from foretrace.core.store import TraceStore
    from foretrace.dataset.demonstration import refuse_demo_traces

    stores = [TraceStore(folder) for folder in folders]
    for folder in folders:
        output.warn_unsealed(folder)
    if not settings["allow_demo"]:
        refuse_demo_traces(stores)


def _needs_outside(sources: Sequence[str], settings: Mapping[str, Any]) -> bool:
    """Whether rows come from the Hub, or code from outside foretrace."""
    from foretrace.registry import is_own_source

    named = [text.partition("=") for text in sources]
    benchmarks = [Path(name.partition("=")[2] or name) for name in settings["decontaminate"]]
    return not (
        all(is_own_source(name) and file and "://" not in file for name, _, file in named)
        and all(file.is_file() for file in benchmarks)
        and not any(":" in recipe for recipe in settings["recipes"])
    )


def _import_sources(
    output: Output,
    sources: Sequence[str],
    into: Path,
    limit: Sequence[str],
    importing: dict[str, Any],
    progress: ProgressDisplay,
) -> list[dict[str, Any]]:
    from foretrace.api.traces import import_source
    from foretrace.cli.display.imports import import_facts, note_redactions, sum_import
    from foretrace.engines.processes import release_memory
    from foretrace.sources.report import check_import

    named = [_parse_source(text) for text in sources]  # all of them before the first row is read
    limits = _parse_limits(limit, [name for name, _ in named])
    facts: list[dict[str, Any]] = []
    for text, (name, path) in zip(sources, named, strict=True):
        own: dict[str, Any] = {
            **importing,
            "limit": limits.get(name, limits.get(name.partition(":")[0], limits.get(""))),
        }
        output.interrupt_message = f"interrupted; nothing of {text} was imported into {write_place(into)}"
        report = import_source(name, [path] if path else [], out=into, progress=progress, **own)
        note_redactions(output, report.total.counts)
        check_import(report, text, into)
        output.note(f"imported {text} into {write_place(into)}: {sum_import(report)}")
        if report.found is not None:
            for first in report.found.unknown[:1]:
                count = count_things(report.found.unknown_count, "file")
                output.note(f"not recognized: {count}, e.g. {first.path}: {first.seen}")
        facts.append(import_facts(report, text, into))
    output.interrupt_message = f"interrupted; what was imported is kept in {write_place(into)}"
    release_memory()
    return facts


def _parse_limits(texts: Sequence[str], sources: Sequence[str]) -> dict[str, int]:
    """Most rows by source; under an empty name, those of all others."""
    limits: dict[str, int] = {}
    for text in texts:
        source, _, number = text.rpartition("=")
        if not (number.isascii() and number.isdigit() and int(number) > 0):
            raise UsageError(Setting("limit", text), ": write N or SOURCE=N, e.g. ", Setting("limit", "swe_smith=2000"))
        if source and source not in {name for given in sources for name in (given, given.partition(":")[0])}:
            raise UsageError(Setting("limit", text), f": the sources here are {', '.join(sources)}")
        limits[source] = int(number)
    return limits


def _parse_source(text: str) -> tuple[str, str]:
    """Name and file of a source: `swe_smith:tool`, `chat=rows.jsonl`."""
    from foretrace.core.plugins import plugin_names
    from foretrace.registry import AUTO, make_source, split_source

    given, equals, path = text.partition("=")
    name, _ = split_source(given)
    if equals and not path:
        raise UsageError(f"{text!r}: no file behind the equals sign")
    if name not in (AUTO, *plugin_names("source")) and Path(text).is_file():
        raise UsageError(f"{text}: is a file; name a traces folder, or the file's source: SOURCE={text}")
    if name != AUTO:
        make_source(name)
    return given, path


def push(output: Output, dataset: Path, **settings: Any) -> None:
    """Push a dataset to the Hugging Face Hub.

    Up to four repositories of --org, or one, --repo; the token comes from the environment (HF_TOKEN).
    """
    import msgspec

    pushed = _push(output, dataset, **settings)
    if not output.write_json({"dry_run": settings["dry_run"], "repositories": msgspec.to_builtins(pushed)}):
        print_report(output, pushed)


def _push(output: Output, dataset: Path, **settings: Any) -> PushReport:
    from foretrace.dataset.push import find_unpushed_configs, push

    output.interrupt_message = (
        "interrupted; repositories that were pushed are whole, the same command goes on with the others"
    )
    for config in find_unpushed_configs(dataset):
        output.warn(f"warning: config {config} belongs to no repository of ours and is not pushed", "yellow")
    where = settings.get("repo") or settings.get("org")
    doing = f"checking {dataset}" if settings.get("dry_run") else f"pushing {dataset} to {where}"
    return output.work(doing, push, dataset, **settings)
