"""The report of a build: counts, sources of the traces, and the manifest that holds them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec

from foretrace.actions.corrections import Corrections
from foretrace.actions.taxonomy import TAXONOMY_VERSION, ActionType
from foretrace.core.files import compute_sha256
from foretrace.core.redactions import is_redacted, read_redactions
from foretrace.core.report import Report
from foretrace.core.trace import Trace
from foretrace.dataset.demonstration import is_demo_model
from foretrace.dataset.filters.benchmark_sets import parse_benchmark
from foretrace.dataset.prompts import RENDERER_VERSION, make_instruction, make_token_counter
from foretrace.dataset.recipes.base import MAX_NAMED_ROWS, Gate
from foretrace.dataset.settings import OUTCOME_NAMES, SPLITS, BuildSettings
from foretrace.dataset.trace_filters import TraceSelection, name_source
from foretrace.encodings.unread_calls import find_unread_calls

_T = TypeVar("_T")
_SHOWN_CHARS = 100


class DataFile(msgspec.Struct, frozen=True):
    job: int
    config: str
    split: str
    name: str
    """Relative to the dataset's folder."""
    rows: int


class Origin(NamedTuple):
    source: str
    license: str
    revision: str
    """Empty if it is unknown."""
    is_redacted: bool
    """Whether something was removed from the trace."""


class BuildCounts(msgspec.Struct, kw_only=True):
    outcomes: Counter[str] = msgspec.field(default_factory=Counter[str])
    origins: Counter[Origin] = msgspec.field(default_factory=Counter[Origin])
    duplicates: int = 0
    """Traces found in two inputs with the same key."""
    redacted: Counter[str] = msgspec.field(default_factory=Counter[str])
    transforms: Counter[str] = msgspec.field(default_factory=Counter[str])
    """Traces by earlier changes made to them: `Provenance.transforms`."""
    unredacted: int = 0
    of_demo_model: int = 0
    steps: int = 0
    """Assistant messages."""
    corrected: int = 0
    """Those whose action was corrected by a person."""
    with_inferred_tools: int = 0
    """Traces whose prompts show inferred tools."""
    unread: Counter[str] = msgspec.field(default_factory=Counter[str])
    """Calls that were not read, by source."""
    unread_rows: Counter[str] = msgspec.field(default_factory=Counter[str])
    actions: dict[str, Counter[str]] = {}
    """Labeled steps of wanted attempts, by split and action."""
    drops: dict[str, Counter[str]] = {}
    rows_made: Counter[str] = msgspec.field(default_factory=Counter[str])
    """Rows that the recipes made, by config. A selector may have left some out."""
    strengths: Counter[tuple[str, str]] = msgspec.field(default_factory=Counter[tuple[str, str]])

    def add(self, other: BuildCounts) -> None:
        for name in self.__struct_fields__:
            own, more = getattr(self, name), getattr(other, name)
            if isinstance(own, Counter):
                own.update(more)
            elif isinstance(own, dict):
                for key, counts in more.items():
                    own.setdefault(key, Counter()).update(counts)
            else:
                setattr(self, name, own + more)

    def count_trace(self, trace: Trace) -> None:
        origin, redacted = trace.provenance, read_redactions(trace)
        self.outcomes[OUTCOME_NAMES[trace.outcome.success]] += 1
        self.origins[
            Origin(name_source(trace), origin.license or "unknown", origin.revision or "", bool(redacted))
        ] += 1
        self.redacted.update(redacted)
        self.transforms.update(origin.transforms)
        self.unredacted += not is_redacted(trace)
        self.of_demo_model += is_demo_model(origin.model)
        for index in find_unread_calls(trace):
            self.unread[origin.source] += 1
            if len(self.unread_rows) < MAX_NAMED_ROWS:
                text = " ".join(trace.messages[index].content[-2 * _SHOWN_CHARS :].split())[-_SHOWN_CHARS:]
                self.unread_rows[f"{trace.key} {index} {text!r}"] += 1

    def count_families(self) -> Counter[str]:
        families = Counter[str]()
        for (family, _), pairs in self.strengths.items():
            families[family] += pairs
        return families


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
    selection: TraceSelection,
    counts: BuildCounts,
    gates: Iterable[Gate],
    corrections: Corrections | None,
    **described: Any,
) -> dict[str, Any]:
    """The manifest, with the further values `described`. Nothing in it depends on time, place or number of workers."""
    actions = {split: counts.actions.get(split, Counter[str]()) for split in SPLITS}
    return {
        "schema_version": 1,
        **describe_build(settings, inputs, corrections),
        "instruction": make_instruction(settings.target),
        "sources": _count_by(counts.origins, lambda origin: origin.source),
        "licenses": _count_by(counts.origins, lambda origin: origin.license),
        "transforms": dict(sorted(counts.transforms.items())),
        "redacted": dict(sorted(counts.redacted.items())),
        **({"filters": selection.filters} if selection.filters else {}),
        "by_source": _describe_sources(counts.origins, selection),
        "counts": {
            "traces": counts.outcomes.total(),
            **{f"traces_{name}": counts.outcomes[name] for name in OUTCOME_NAMES.values()},
            "traces_in_two_inputs": counts.duplicates,
            "traces_of_demo_model": counts.of_demo_model,
            "traces_unredacted": counts.unredacted,
            "assistant_messages": counts.steps,
            **({"traces_with_inferred_tools": counts.with_inferred_tools} if counts.with_inferred_tools else {}),
            **({} if corrections is None else {"steps_corrected": counts.corrected}),
        },
        "actions": {split: {str(a): actions[split][a] for a in ActionType} for split in SPLITS},
        "families": dict(sorted(counts.count_families().items())),
        "strengths": _count_by(counts.strengths, lambda counted: f"{counted[0]} {counted[1]}".strip()),
        "drops": {config: dict(sorted(reasons.items())) for config, reasons in sorted(counts.drops.items())},
        "gates": [msgspec.to_builtins(gate) for gate in gates],
        **described,
    }


def _count_by(counts: Mapping[_T, int], name: Callable[[_T], str]) -> dict[str, int]:
    named = Counter[str]()
    for counted, number in counts.items():
        named[name(counted)] += number
    return dict(sorted(named.items()))


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


def is_dataset(folder: Path) -> bool:
    """Whether `build` wrote the folder."""
    try:
        manifest = msgspec.json.decode((folder / "manifest.json").read_bytes())
    except (OSError, msgspec.DecodeError, RecursionError):
        return False
    return isinstance(manifest, dict) and {"settings", "configs", "gates"} <= manifest.keys()


def describe_files(folder: Path, files: Iterable[DataFile]) -> dict[str, Any]:
    """Rows, bytes, names and digests of the files of one config, by split."""
    by_split: dict[str, dict[str, int]] = {split: {} for split in SPLITS}
    for file in sorted(files, key=lambda file: file.name):
        by_split[file.split][file.name] = file.rows
    return {
        split: {
            "rows": sum(found.values()),
            "bytes": sum((folder / name).stat().st_size for name in found),
            "files": [*found],
            "sha256": {name: compute_sha256(folder / name) for name in found},
        }
        for split, found in by_split.items()
        if found
    }


def _describe_sources(origins: Mapping[Origin, int], selection: TraceSelection) -> dict[str, Any]:
    """By source: traces read, traces left out by each filter, traces used, used traces from which something was
    removed, traces in merged groups, licenses (also of traces left out because of them), and revisions."""
    filters = selection.filters
    left_out: dict[str, dict[str, int]] = defaultdict(dict)
    merged = Counter[str]()
    for name, described in filters.items():
        merged.update(described.get("merged_by_source", {}))
        for source, reasons in described["by_source"].items():
            left_out[source][name] = sum(reasons.values())
    found: dict[str, Any] = {}
    for source in sorted({*left_out, *merged, *(origin.source for origin in origins)}):
        own = {origin: traces for origin, traces in origins.items() if origin.source == source}
        refused = filters.get("license", {}).get("by_source", {}).get(source, {})
        found[source] = {
            "traces_in": sum(own.values()) + sum(left_out[source].values()),
            "left_out": dict(sorted(left_out[source].items())),
            "traces": sum(own.values()),
            "redacted": sum(traces for origin, traces in own.items() if origin.is_redacted),
            "merged": merged[source],
            "licenses": dict(sorted((_count_by(own, lambda origin: origin.license) | refused).items())),
            "revisions": sorted({origin.revision for origin in own} - {""}),
        }
    return found
