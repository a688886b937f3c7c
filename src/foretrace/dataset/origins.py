"""Where a dataset's traces come from, what became of those of each source, and the commands that make it again."""

from __future__ import annotations

import shlex
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from foretrace.core.redactions import is_redacted, read_redactions
from foretrace.core.trace import Trace
from foretrace.dataset.filters.benchmark_sets import parse_benchmark
from foretrace.dataset.report import BuildCounts
from foretrace.dataset.settings import BuildSettings
from foretrace.dataset.trace_filters import TraceSelection, name_source

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
