"""What a build reports: its counts, where its traces come from, and the manifest in which both stand."""

from __future__ import annotations

import shlex
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec

from foretrace.actions.corrections import Corrections
from foretrace.actions.taxonomy import TAXONOMY_VERSION, ActionType
from foretrace.core.files import compute_sha256
from foretrace.core.redactions import is_redacted, read_redactions
from foretrace.core.report import Report
from foretrace.core.trace import Trace
from foretrace.dataset.filters.benchmark_sets import parse_benchmark
from foretrace.dataset.prompts import RENDERER_VERSION, make_instruction, make_token_counter
from foretrace.dataset.recipes.base import Gate
from foretrace.dataset.settings import SPLITS, BuildSettings
from foretrace.dataset.trace_filters import TraceSelection, name_source

DatasetFiles = dict[str, dict[str, dict[str, int]]]
"""Rows by config, split and file; files are named relative to their folder."""


class BuildCounts(msgspec.Struct, kw_only=True):
    """What happened in one shard job, or in all of them."""

    outcomes: Counter[str] = msgspec.field(default_factory=Counter[str])
    """Attempts by outcome."""
    duplicates: int = 0
    """Traces that stood in two inputs with the same key."""
    redacted: Counter[str] = msgspec.field(default_factory=Counter[str])
    """What was taken out of the traces, by type: secrets, user names."""
    transforms: Counter[str] = msgspec.field(default_factory=Counter[str])
    """Traces by what was done to them before the build: `Provenance.transforms`."""
    unredacted: int = 0
    """Traces in which secrets were not looked for."""
    of_demo_model: int = 0
    """Traces of the demo model."""
    steps: int = 0
    """Assistant messages."""
    corrected: int = 0
    """Those of them whose action is a person's correction."""
    with_inferred_tools: int = 0
    """Traces whose prompts tell of tools that were inferred."""
    prompt_tokens: int = 0
    """Of the prompts of all steps that can be targets."""
    cached_tokens: int = 0
    """Those that a server with a prefix cache has from the prompt before in the same trace."""
    unread: Counter[str] = msgspec.field(default_factory=Counter[str])
    """Calls that were not read, by source."""
    unread_rows: Counter[str] = msgspec.field(default_factory=Counter[str])
    """The first of them."""
    actions: dict[str, Counter[str]] = {}
    """Labelled steps of wanted attempts, by split and action."""
    licenses: Counter[str] = msgspec.field(default_factory=Counter[str])
    sources: Counter[str] = msgspec.field(default_factory=Counter[str])
    redacted_by_source: Counter[str] = msgspec.field(default_factory=Counter[str])
    """Traces out of which something was taken."""
    source_licenses: dict[str, Counter[str]] = {}
    """Traces by source and license."""
    source_revisions: dict[str, Counter[str]] = {}
    """Traces by source and revision, where it has one."""
    imported: dict[str, Counter[str]] = {}
    """Imported traces by the command that made them and by their file."""
    generated: dict[str, Counter[str]] = {}
    """Generated traces by the command that made them and by the number of their attempt."""
    drops: dict[str, Counter[str]] = {}
    """By config and reason."""
    rows_made: Counter[str] = msgspec.field(default_factory=Counter[str])
    """Rows that the recipes made, by config; a selector may have left some out."""
    families: Counter[str] = msgspec.field(default_factory=Counter[str])
    """Pairs by family."""

    def add(self, other: BuildCounts) -> None:
        """Add the counts of a further job."""
        for name in self.__struct_fields__:
            own, more = getattr(self, name), getattr(other, name)
            if isinstance(own, Counter):
                own.update(more)
            elif isinstance(own, dict):
                for key, counts in more.items():
                    own.setdefault(key, Counter()).update(counts)
            else:
                setattr(self, name, own + more)

    def count_drops(self, config: str) -> int:
        """What the recipe of this config dropped."""
        return sum(self.drops.get(config, {}).values())


class BuildReport(Report, msgspec.Struct, frozen=True):
    """What a build did: `manifest` is what stands in the dataset's manifest.json."""

    manifest: dict[str, Any]

    @property
    def undecided(self) -> list[str]:
        """Gates that had too little to decide."""
        return [g["name"] for g in self.manifest["gates"] if g["verdict"] == "undecided"]


def make_manifest(
    settings: BuildSettings,
    inputs: Mapping[str, Any],
    counts: BuildCounts,
    configs: Mapping[str, Any],
    gates: Iterable[Gate],
    difficulty: Mapping[str, Any],
    warnings: list[str],
    corrections: Corrections | None = None,
    origins: Mapping[str, Any] | None = None,
    mistakes: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The manifest: nothing in it depends on time, place or number of workers.

    Args:
        settings: Of the build.
        inputs: Numbers and digest of the traces.
        counts: Of all shard jobs.
        configs: What `describe_files` says of each config.
        gates: With their verdicts.
        difficulty: How much of each family is easy.
        warnings: For the reader of the card.
        corrections: Those that were given.
        origins: What the filters did and what became of each source's traces (`describe_origins`).
        mistakes: Whose mistakes gave pairs, where predictions were given.
    """
    built_from = describe_build(settings, inputs, corrections)
    actions = {split: counts.actions.get(split, Counter[str]()) for split in SPLITS}
    return {
        "schema_version": 1,
        "versions": built_from["versions"],
        "settings": built_from["settings"],
        "token_counter": built_from["token_counter"],
        "instruction": make_instruction(settings.target),
        "inputs": inputs,
        "sources": dict(sorted(counts.sources.items())),
        "licenses": dict(sorted(counts.licenses.items())),
        "transforms": dict(sorted(counts.transforms.items())),
        "redacted": dict(sorted(counts.redacted.items())),
        **(origins or {}),
        "counts": {
            "traces": counts.outcomes.total(),
            **{f"traces_{name}": counts.outcomes[name] for name in ("success", "failed", "unknown")},
            "traces_in_two_inputs": counts.duplicates,
            "traces_of_demo_model": counts.of_demo_model,
            "traces_unredacted": counts.unredacted,
            "steps": counts.steps,
            **({"traces_with_inferred_tools": counts.with_inferred_tools} if counts.with_inferred_tools else {}),
            **({} if corrections is None else {"steps_corrected": counts.corrected}),
        },
        "prefix_cache": _describe_prefix_cache(counts),
        "actions": {split: {str(a): actions[split][a] for a in ActionType} for split in SPLITS},
        "configs": configs,
        "families": dict(sorted(counts.families.items())),
        **({} if mistakes is None else {"mistakes": mistakes}),
        "drops": {config: dict(sorted(reasons.items())) for config, reasons in sorted(counts.drops.items())},
        "gates": [msgspec.to_builtins(gate) for gate in gates],
        "difficulty": difficulty,
        "warnings": warnings,
    }


def _describe_prefix_cache(counts: BuildCounts) -> dict[str, Any]:
    share = round(counts.cached_tokens / max(1, counts.prompt_tokens), 4)
    return {"prompt_tokens": counts.prompt_tokens, "cached_tokens": counts.cached_tokens, "share": share}


def describe_build(
    settings: BuildSettings, inputs: Mapping[str, Any], corrections: Corrections | None
) -> dict[str, Any]:
    """What the manifest says of what a build is made from, before anything is built."""
    return {
        "versions": {
            "foretrace": version("foretrace"),
            "taxonomy": TAXONOMY_VERSION,
            "renderer": RENDERER_VERSION,
            "pyarrow": version("pyarrow"),
        },
        "settings": _describe_settings(settings, corrections),
        "token_counter": make_token_counter(settings.tokenizer).method,
        "inputs": inputs,
    }


def _describe_settings(settings: BuildSettings, corrections: Corrections | None) -> dict[str, Any]:
    """The settings without names of files, which depend on the place."""
    described = msgspec.to_builtins(settings) | {"tokenizer": None if settings.tokenizer is None else "given"}
    described["decontaminate"] = [parse_benchmark(text).name for text in settings.decontaminate]
    if corrections is None:
        del described["corrections"]
    else:
        described["corrections"] = corrections.compute_digest()
    if not settings.hard:
        del described["hard"]
    del described["mistakes"]  # the manifest says more of them elsewhere
    if not settings.mistakes:
        del described["allow_unchecked"]
    return described


def describe_files(folder: Path, splits: Mapping[str, Mapping[str, int]]) -> dict[str, Any]:
    """Rows, bytes, names and digests of the files of one config, by split."""
    return {
        split: {
            "rows": sum(files.values()),
            "bytes": sum((folder / name).stat().st_size for name in files),
            "files": sorted(files),
            "sha256": {name: compute_sha256(folder / name) for name in sorted(files)},
        }
        for split in SPLITS
        if (files := splits.get(split))
    }


_MAX_NAMED_FILES = 3


def count_origin(trace: Trace, counts: BuildCounts) -> None:
    """Count a trace that is used under its source."""
    origin, source = trace.provenance, name_source(trace)
    counts.sources[source] += 1
    counts.transforms.update(origin.transforms)
    counts.redacted_by_source[source] += bool(read_redactions(trace))
    counts.licenses[origin.license or "unknown"] += 1
    counts.source_licenses.setdefault(source, Counter())[origin.license or "unknown"] += 1
    if origin.revision:
        counts.source_revisions.setdefault(source, Counter())[origin.revision] += 1
    if origin.origin == "generated":
        counts.generated.setdefault(_write_generate_command(trace), Counter())[str(origin.sample or 0)] += 1
    else:
        counts.imported.setdefault(_write_import_command(trace), Counter())[origin.raw_file or ""] += 1


def describe_origins(counts: BuildCounts, selection: TraceSelection, settings: BuildSettings) -> dict[str, Any]:
    """For the manifest: what each filter did, what became of the traces of each source, and the commands."""
    return {
        **({"filters": selection.filters} if selection.filters else {}),
        "by_source": describe_sources(counts, selection),
        "commands": make_commands(counts, settings),
    }


def describe_sources(counts: BuildCounts, selection: TraceSelection) -> dict[str, Any]:
    """By source: traces in, traces left out by each filter, traces used, those of them out of which something was
    taken, traces in merged groups, licenses (also of what was left out for them), and revisions."""
    left_out: dict[str, dict[str, int]] = defaultdict(dict)
    for name, described in selection.filters.items():
        for source, reasons in described["by_source"].items():
            left_out[source][name] = sum(reasons.values())
    refused = selection.filters.get("license", {}).get("by_source", {})
    merged = {source for each in selection.filters.values() for source in each.get("merged_by_source", {})}
    return {
        source: {
            "traces_in": counts.sources[source] + sum(left_out[source].values()),
            "left_out": dict(sorted(left_out[source].items())),
            "traces": counts.sources[source],
            "redacted": counts.redacted_by_source[source],
            "merged": sum(each.get("merged_by_source", {}).get(source, 0) for each in selection.filters.values()),
            "licenses": dict(sorted({**counts.source_licenses.get(source, {}), **refused.get(source, {})}.items())),
            "revisions": sorted(counts.source_revisions.get(source, {})),
        }
        for source in sorted({*counts.sources, *left_out, *merged})
    }


def make_commands(counts: BuildCounts, settings: BuildSettings) -> list[str]:
    """The commands that make the dataset, as far as its traces know them; files by their names, without folders."""
    imported = [_add_files(command, files) for command, files in sorted(counts.imported.items())]
    generated = [
        f"{command} --samples {max(map(int, samples)) + 1} --out traces"
        for command, samples in sorted(counts.generated.items())
    ]
    build = " ".join(["foretrace build traces --out dataset", *_write_options(settings)])
    return [_print_safely(command) for command in (*imported, *generated, build)]


def _print_safely(command: str) -> str:
    """The command in one line that ends no block of code, whatever a trace calls its source and files."""
    return "".join(sign if sign.isprintable() else "?" for sign in command).replace("```", "???")


def _write_generate_command(trace: Trace) -> str:
    origin = trace.provenance
    problems = "jsonl:FILE" if origin.source == "jsonl" else origin.source
    options = {"problems": problems, "protocol": origin.protocol, "model": f"KIND:{origin.model}"}
    options |= {name: origin.sampling.get(name) for name in ("temperature", "max_tokens")}
    return _join("foretrace generate", options | {"seed": origin.seed})


def _write_import_command(trace: Trace) -> str:
    """All of it but the files; rows of the Hub have a revision, and a split that is named."""
    origin = trace.provenance
    source = f"{origin.source}:{origin.split}" if origin.revision and origin.split else origin.source
    return _join(f"foretrace import {shlex.quote(source)}", {"no_redact": None if is_redacted(trace) else True})


def _add_files(command: str, files: Iterable[str]) -> str:
    """The command with the names of its files, of which a few stand for many."""
    named = sorted({*files} - {""})
    words = [*map(shlex.quote, named[:_MAX_NAMED_FILES]), *(["..."] if len(named) > _MAX_NAMED_FILES else [])]
    return " ".join([command, *words, "--out traces"])


def _write_options(settings: BuildSettings) -> list[str]:
    """The settings that are not as they are by default, as options."""
    default = BuildSettings()
    values = {name: getattr(settings, name) for name in settings.__struct_fields__}
    changed = {name: value for name, value in values.items() if value != getattr(default, name)}
    for name in ("tokenizer", "corrections"):
        if name in changed:
            changed[name] = Path(changed[name]).name
    if "split" in changed:
        changed["split"] = "/".join(f"{share:g}" for share in settings.split)
    if "decontaminate" in changed:
        changed["decontaminate"] = ",".join(map(_name_benchmark, settings.decontaminate))
    repeated = {"recipes": changed.pop("recipes", ()), "mistakes": [Path(f).name for f in changed.pop("mistakes", ())]}
    words = [_join("", {name: value}) for name, values in repeated.items() for value in values]
    return [*words, _join("", changed)] if changed else words


def _name_benchmark(text: str) -> str:
    name, path = parse_benchmark(text)
    return name if path is None else f"{name}={path.name}"


def _join(command: str, options: Mapping[str, Any]) -> str:
    words = [command] if command else []
    for name, value in options.items():
        flag = f"--{name.replace('_', '-')}"
        if value is False:
            words.append(f"--no-{flag[2:]}")
        elif value is not None:
            text = ",".join(map(str, value)) if isinstance(value, (tuple, list)) else str(value)
            words.append(flag if value is True else f"{flag} {shlex.quote(text)}")
    return " ".join(words)
