"""What a build reports: the manifest, and the counts that the command line prints."""

from __future__ import annotations

from collections import Counter
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec

from foretrace.actions.taxonomy import TAXONOMY_VERSION, ActionType
from foretrace.core.files import sha256
from foretrace.dataset.exact_gates import Gate
from foretrace.dataset.prompts import RENDERER_VERSION, make_instruction, make_token_counter
from foretrace.dataset.recipes.base import Config
from foretrace.dataset.settings import SPLITS, BuildSettings
from foretrace.dataset.shard_job import ShardResult


class BuildReport(msgspec.Struct, frozen=True):
    """What a build did: `manifest` is what stands in the dataset's manifest.json."""

    manifest: dict[str, Any]

    @property
    def undecided(self) -> list[str]:
        """Gates that had too little to decide."""
        return [g["name"] for g in self.manifest["gates"] if g["verdict"] == "undecided"]


def make_manifest(
    settings: BuildSettings,
    inputs: dict[str, Any],
    built: list[ShardResult],
    gates: list[Gate],
    warnings: list[str],
    configs: dict[str, Config],
    folder: Path,
) -> BuildReport:
    """The manifest: nothing in it depends on time, place or number of workers."""
    outcomes, licenses, sources = Counter[str](), Counter[str](), Counter[str]()
    drops: dict[str, Counter[str]] = {}
    actions = {split: Counter[str]() for split in SPLITS}
    for part in built:
        outcomes.update(part.traces)
        licenses.update(part.licenses)
        sources.update(part.sources)
        for config, reasons in part.drops.items():
            drops.setdefault(config, Counter()).update(reasons)
        for split, counts in part.actions.items():
            actions[split].update(counts)
    manifest: dict[str, Any] = {
        "schema_version": 1,
        "versions": {
            "foretrace": version("foretrace"),
            "taxonomy": TAXONOMY_VERSION,
            "renderer": RENDERER_VERSION,
            "pyarrow": version("pyarrow"),
        },
        "settings": msgspec.to_builtins(settings) | {"tokenizer": None if settings.tokenizer is None else "given"},
        "token_counter": make_token_counter(settings.tokenizer).method,
        "instruction": make_instruction(settings.target),
        "inputs": inputs,
        "sources": dict(sorted(sources.items())),
        "licenses": dict(sorted(licenses.items())),
        "counts": {
            "traces": outcomes.total(),
            **{f"traces_{name}": outcomes[name] for name in ("success", "failed", "unknown")},
            "traces_in_two_inputs": sum(p.duplicates for p in built),
            "traces_of_demo_model": sum(p.of_demo_model for p in built),
            "steps": sum(p.steps for p in built),
        },
        "actions": {s: {str(a): actions[s][a] for a in ActionType} for s in SPLITS},
        "configs": {name: _files(name, built, folder) for name in configs},
        "families": _families(built),
        "drops": {config: dict(sorted(reasons.items())) for config, reasons in sorted(drops.items())},
        "gates": [msgspec.to_builtins(g) for g in gates],
        "warnings": warnings,
    }
    return BuildReport(manifest)


def _files(config: str, built: list[ShardResult], folder: Path) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for split in SPLITS:
        files = {n: rows for part in built for n, rows in part.files.get(config, {}).get(split, {}).items()}
        if files:
            result[split] = {
                "rows": sum(files.values()),
                "bytes": sum((folder / n).stat().st_size for n in files),
                "files": sorted(files),
                "sha256": {name: sha256(folder / name) for name in sorted(files)},
            }
    return result


def _families(built: list[ShardResult]) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for part in built:
        counts.update(part.families)
    return dict(sorted(counts.items()))
