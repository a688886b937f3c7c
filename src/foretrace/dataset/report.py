"""The report of a build: counts, sources of the traces, and the manifest that holds them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec

from foretrace.actions.corrections import Corrections
from foretrace.actions.taxonomy import TAXONOMY_VERSION, ActionType
from foretrace.core.files import compute_sha256
from foretrace.core.redactions import read_redactions
from foretrace.core.report import Report
from foretrace.core.trace import Trace
from foretrace.dataset.filters.benchmark_sets import parse_benchmark
from foretrace.dataset.prompts import RENDERER_VERSION, make_instruction, make_token_counter
from foretrace.dataset.recipes.base import Gate
from foretrace.dataset.settings import SPLITS, BuildSettings
from foretrace.dataset.trace_filters import TraceSelection, name_source

DatasetFiles = dict[str, dict[str, dict[str, int]]]
"""Number of rows by config, split and file; file names are relative to the dataset's folder."""


class BuildCounts(msgspec.Struct, kw_only=True):
    """The counts of one shard job, or of all of them."""

    outcomes: Counter[str] = msgspec.field(default_factory=Counter[str])
    """Attempts by outcome."""
    duplicates: int = 0
    """Traces found in two inputs with the same key."""
    redacted: Counter[str] = msgspec.field(default_factory=Counter[str])
    """Removed secrets and user names, by type."""
    transforms: Counter[str] = msgspec.field(default_factory=Counter[str])
    """Traces by earlier changes made to them: `Provenance.transforms`."""
    unredacted: int = 0
    """Traces that were not searched for secrets."""
    of_demo_model: int = 0
    """Traces of the demo model."""
    steps: int = 0
    """Assistant messages."""
    corrected: int = 0
    """Those whose action was corrected by a person."""
    with_inferred_tools: int = 0
    """Traces whose prompts show inferred tools."""
    unread: Counter[str] = msgspec.field(default_factory=Counter[str])
    """Calls that were not read, by source."""
    unread_rows: Counter[str] = msgspec.field(default_factory=Counter[str])
    """The first of these calls."""
    actions: dict[str, Counter[str]] = {}
    """Labelled steps of wanted attempts, by split and action."""
    licenses: Counter[str] = msgspec.field(default_factory=Counter[str])
    sources: Counter[str] = msgspec.field(default_factory=Counter[str])
    redacted_by_source: Counter[str] = msgspec.field(default_factory=Counter[str])
    """Traces from which something was removed."""
    source_licenses: dict[str, Counter[str]] = {}
    """Traces by source and license."""
    source_revisions: dict[str, Counter[str]] = {}
    """Traces by source and revision, if it has one."""
    drops: dict[str, Counter[str]] = {}
    """Drops by config and reason."""
    rows_made: Counter[str] = msgspec.field(default_factory=Counter[str])
    """Rows that the recipes made, by config. A selector may have left some out."""
    families: Counter[str] = msgspec.field(default_factory=Counter[str])
    """Pairs by family."""
    strengths: Counter[str] = msgspec.field(default_factory=Counter[str])
    """Pairs by `FAMILY STRENGTH`."""

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
        """The drops of this config's recipe."""
        return sum(self.drops.get(config, {}).values())


class BuildReport(Report, msgspec.Struct, frozen=True):
    """The result of a build. `manifest` is the content of the dataset's manifest.json."""

    manifest: dict[str, Any]

    @property
    def undecided(self) -> list[str]:
        """Gates that had too little data to decide."""
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
    prompt_tokens: Mapping[str, Counter[int]] | None = None,
) -> dict[str, Any]:
    """The manifest. Nothing in it depends on time, place or number of workers.

    Args:
        settings: Of the build.
        inputs: Numbers and digest of the traces.
        counts: Of all shard jobs.
        configs: The result of `describe_files` for each config.
        gates: The gates with their verdicts.
        difficulty: How much of each family is easy.
        warnings: For the reader of the card.
        corrections: The given corrections.
        origins: The work of the filters and the outcome for each source's traces (`describe_origins`).
        mistakes: Whose mistakes gave pairs, if predictions were given.
        prompt_tokens: Rows by tokens of the prompt, in steps of `TOKENS_PER_BIN`, for each config.
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
        "actions": {split: {str(a): actions[split][a] for a in ActionType} for split in SPLITS},
        "configs": configs,
        "families": dict(sorted(counts.families.items())),
        "strengths": dict(sorted(counts.strengths.items())),
        "prompt_tokens": {name: [by[n] for n in range(max(by) + 1)] for name, by in (prompt_tokens or {}).items()},
        **({} if mistakes is None else {"mistakes": mistakes}),
        "drops": {config: dict(sorted(reasons.items())) for config, reasons in sorted(counts.drops.items())},
        "gates": [msgspec.to_builtins(gate) for gate in gates],
        "difficulty": difficulty,
        "warnings": warnings,
    }


def describe_build(
    settings: BuildSettings, inputs: Mapping[str, Any], corrections: Corrections | None
) -> dict[str, Any]:
    """The manifest's description of what a build is made from, before anything is built."""
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
    """The settings without file names, which depend on the machine."""
    described = msgspec.to_builtins(settings) | {"tokenizer": None if settings.tokenizer is None else "given"}
    described["decontaminate"] = [parse_benchmark(text).name for text in settings.decontaminate]
    if corrections is None:
        del described["corrections"]
    else:
        described["corrections"] = corrections.compute_digest()
    del described["mistakes"]  # the manifest describes them in more detail elsewhere
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


def count_origin(trace: Trace, counts: BuildCounts) -> None:
    """Count a used trace under its source."""
    origin, source = trace.provenance, name_source(trace)
    counts.sources[source] += 1
    counts.transforms.update(origin.transforms)
    counts.redacted_by_source[source] += bool(read_redactions(trace))
    counts.licenses[origin.license or "unknown"] += 1
    counts.source_licenses.setdefault(source, Counter())[origin.license or "unknown"] += 1
    if origin.revision:
        counts.source_revisions.setdefault(source, Counter())[origin.revision] += 1


def describe_origins(counts: BuildCounts, selection: TraceSelection) -> dict[str, Any]:
    """For the manifest: the work of each filter, and the outcome for the traces of each source."""
    return {
        **({"filters": selection.filters} if selection.filters else {}),
        "by_source": describe_sources(counts, selection),
    }


def describe_sources(counts: BuildCounts, selection: TraceSelection) -> dict[str, Any]:
    """By source: traces read, traces left out by each filter, traces used, used traces from which something was
    removed, traces in merged groups, licenses (also of traces left out because of them), and revisions."""
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
