"""The dataset card: YAML that the Hub and `load_dataset` read, and the figures that a reader wants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from foretrace.dataset.recipes.base import Config

_KNOWN_LICENCES = frozenset(
    [
        "apache-2.0",
        "mit",
        "bsd-2-clause",
        "bsd-3-clause",
        "cc0-1.0",
        "cc-by-4.0",
        "cc-by-sa-4.0",
        "cc-by-nc-4.0",
        "cdla-permissive-2.0",
        "odc-by",
        "openrail",
        "isc",
        "mpl-2.0",
        "unlicense",
    ]
)
_SIZES = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"), (1_000_000, "100K<n<1M"))


def card(manifest: Mapping[str, Any], configs: Sequence[Config]) -> str:
    """README.md of a built dataset, for those of `configs` that have rows."""
    present = [c for c in configs if manifest["configs"].get(c.name)]
    sections = [
        _front_matter(manifest, present),
        _title(present),
        _configs(manifest, present),
        _actions(manifest),
        _gates(manifest),
        _origin(manifest),
    ]
    return "\n".join(section.rstrip("\n") + "\n" for section in sections)


def _front_matter(manifest: Mapping[str, Any], configs: Sequence[Config]) -> str:
    licences = [name.lower() for name in manifest["licences"]]
    known = len(licences) == 1 and licences[0] in _KNOWN_LICENCES
    rows = sum(s["rows"] for c in configs for s in manifest["configs"][c.name].values())
    lines = ["---", f"license: {licences[0] if known else 'other'}"]
    lines += ["language:", "- en", "task_categories:", "- text-generation", "tags:"]
    lines += [f"- {tag}" for tag in ("agents", "tool-use", "speculative-actions", "foretrace")]
    lines += ["size_categories:", f"- {next((name for n, name in _SIZES if rows < n), 'n>1M')}", "configs:"]
    for number, config in enumerate(configs):
        lines += [f"- config_name: {config.name}", *(["  default: true"] if number == 0 else []), "  data_files:"]
        for split in manifest["configs"][config.name]:
            lines += [f"  - split: {split}", f"    path: {config.name}/{split}-*.parquet"]
    return "\n".join([*lines, "---", ""])


def _title(configs: Sequence[Config]) -> str:
    first = configs[0].name if configs else "proposer"
    return (
        "# Next actions of tool-using agents\n\n"
        "Built by foretrace from traces of agent work: each step's action typed from its structure, splits by group, "
        "prompts that show nothing of what follows.\n\n"
        f'```python\nfrom datasets import load_dataset\n\nrows = load_dataset("PATH_OR_REPO", "{first}")\n```\n'
    )


def _configs(manifest: Mapping[str, Any], configs: Sequence[Config]) -> str:
    lines = ["## Configs", "", "| config | train | validation | test | what it is |", "|---|---|---|---|---|"]
    for config in configs:
        splits = manifest["configs"][config.name]
        counts = " | ".join(str(splits[s]["rows"]) if s in splits else "-" for s in ("train", "validation", "test"))
        lines.append(f"| `{config.name}` | {counts} | {config.about} |")
    if manifest["families"]:
        told = ", ".join(f"{name} {n}" for name, n in manifest["families"].items())
        lines += ["", f"Pairs by family: {told}."]
    return "\n".join([*lines, ""])


def _actions(manifest: Mapping[str, Any]) -> str:
    splits = manifest["actions"]
    lines = ["## Actions", "", f"| action | {' | '.join(splits)} |", "|---|" + "---|" * len(splits)]
    names = next(iter(splits.values()))
    for action in names:
        lines.append(f"| {action} | {' | '.join(str(counts[action]) for counts in splits.values())} |")
    return "\n".join([*lines, ""])


def _gates(manifest: Mapping[str, Any]) -> str:
    lines = ["## Gates", "", "| gate | verdict | figures |", "|---|---|---|"]
    for gate in manifest["gates"]:
        figures = gate.get("detail") if gate["name"].startswith("shortcut/") else _figures(gate.get("figure", {}))
        lines.append(f"| {gate['name']} | {gate['verdict'].upper()} | {figures} |")
    if manifest["warnings"]:
        lines += ["", "Warnings:", "", *(f"- {w}" for w in manifest["warnings"])]
    return "\n".join([*lines, ""])


def _figures(figure: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in figure.items())


def _origin(manifest: Mapping[str, Any]) -> str:
    counts, settings = manifest["counts"], manifest["settings"]
    lines = ["## Where it comes from", ""]
    lines += [f"- {name}: {n} traces" for name, n in manifest["sources"].items()]
    lines += [f"- licence {name}: {n} traces" for name, n in manifest["licences"].items()]
    lines += [
        "",
        f"{counts['traces']} traces, {counts['steps']} assistant messages. Dropped, by config and reason:",
        "",
    ]
    for config, reasons in manifest["drops"].items():
        lines.append(f"- {config}: {', '.join(f'{r} {n}' for r, n in reasons.items()) or 'none'}")
    lines += ["", "Settings: " + ", ".join(f"{k} {v}" for k, v in settings.items()) + "."]
    lines.append(f"Prompt length is counted by {manifest['token_counter']}.")
    return "\n".join([*lines, ""])
