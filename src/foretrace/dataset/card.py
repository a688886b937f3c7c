"""The dataset card: YAML for the Hub and `load_dataset`, and the figures a reader wants."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from foretrace.core.digest import digest
from foretrace.core.references import References, ScoreRow
from foretrace.dataset.demonstration import describe_demonstration
from foretrace.dataset.difficulty import describe_difficulty
from foretrace.dataset.proposer_guesses import describe_mistakes
from foretrace.dataset.recipes.base import Config
from foretrace.dataset.settings import SPLITS

_HUB_LICENSES = frozenset([
    "apache-2.0", "mit", "bsd-2-clause", "bsd-3-clause", "cc0-1.0", "cc-by-4.0", "cc-by-sa-4.0", "cc-by-nc-4.0",
    "cdla-permissive-2.0", "odc-by", "openrail", "isc", "mpl-2.0", "unlicense",
])  # fmt: skip
"""License identifiers that the Hub accepts. The text of the card lists all licenses of the traces."""
_SIZES = ("n<1K", "1K<n<10K", "10K<n<100K", "100K<n<1M", "1M<n<10M", "10M<n<100M", "100M<n<1B", "n>1B")


_MAX_SHOWN_COPIES = 10
"""Copies of benchmarks that the card shows; the manifest lists more."""
_FOLDER = "path/to/this/folder"


def make_card(manifest: Mapping[str, Any], configs: Sequence[Config], place: str = _FOLDER) -> str:
    """README.md for the `configs` that have rows; the examples call `load_dataset(place)`."""
    present = [c for c in configs if manifest["configs"].get(c.name)]
    sections = [
        [_make_front_matter(manifest, present)],
        [_write_title(manifest, present, place)],
        _write_configs(manifest, present),
        _write_scoring(manifest, present, place),
        _write_actions(manifest),
        _write_gates(manifest),
        _write_difficulty(manifest),
        _write_left_out(manifest),
        _write_origin(manifest),
    ]
    return "\n".join("\n".join(lines).rstrip("\n") + "\n" for lines in sections if lines)


_REFERENCES = "## What free predictors reach"
_REFERENCE_FIGURES = {
    "action type": ("natural", "type_accuracy"),
    "macro-F1": ("natural", "macro_f1"),
    "tool": ("natural", "tool"),
    "exact call": ("natural", "exact_call"),
    "exact call in 3 guesses": ("natural", "exact_call@3"),
    "exact call, safe to run early": ("eligible", "exact_call"),
}
"""Slice and metric of each column."""


def put_references(card: str, references: References) -> str:
    """The card with a section on the references, replacing an older one."""
    before, _, rest = card.partition(f"{_REFERENCES}\n")
    after = rest[rest.find("\n## ") + 1 :] if "\n## " in rest else ""
    found = {each.predictor: {(row.slice, row.metric): row for row in each.scores} for each in references.predictors}
    columns = {
        title: place for title, place in _REFERENCE_FIGURES.items() if any(place in rows for rows in found.values())
    }
    about = (
        "On the eval rows, in percent, with 95% intervals by group. The score of a predictor of yours is shown "
        "beside them."
    )
    table = [[name, *(_write_percent(rows.get(place)) for place in columns.values())] for name, rows in found.items()]
    lines = [_REFERENCES, "", about, "", *_write_table(["predictor", *columns], table)]
    return "\n".join([before.rstrip("\n") + "\n", *lines, ""]) + (f"\n{after}" if after else "")


def _write_percent(row: ScoreRow | None) -> str:
    return "-" if row is None else f"{100 * row.value:.1f} [{100 * row.low:.1f}, {100 * row.high:.1f}]"


def _make_front_matter(manifest: Mapping[str, Any], configs: Sequence[Config]) -> str:
    from huggingface_hub import DatasetCardData  # imported late: it reads the environment

    licenses = sorted({name.lower() for name in manifest.get("licenses", {})})
    named = sorted({name if name in _HUB_LICENSES else "other" for name in licenses}) or ["other"]
    rows = sum(s.get("rows", 0) for c in configs for s in manifest["configs"][c.name].values())
    tags = ["agents", "tool-use", "speculative-actions", "foretrace"]
    data = DatasetCardData(
        license=named[0] if len(named) == 1 else named,
        language=["en"],
        task_categories=["text-generation"],
        tags=[*tags, "demonstration"] if describe_demonstration(manifest) else tags,
        size_categories=[_SIZES[min(max(len(str(rows)) - 3, 0), len(_SIZES) - 1)]],
        configs=[
            {
                "config_name": config.name,
                "version": _make_version(manifest["configs"][config.name]),
                **({"default": True} if number == 0 else {}),
                "data_files": [
                    {"split": split, "path": f"{config.name}/{split}-*.parquet"}
                    for split in manifest["configs"][config.name]
                ],
            }
            for number, config in enumerate(configs)
        ],
    )
    return f"---\n{data.to_yaml()}\n---\n\n"


def _make_version(splits: Mapping[str, Any]) -> str:
    """A version that changes with the rows: the `datasets` library caches a local folder by its name and card."""
    return f"0.0.{int(digest(*(str(s.get('sha256')) for s in splits.values()), size=4), 16)}"


def _write_title(manifest: Mapping[str, Any], configs: Sequence[Config], place: str) -> str:
    longest = manifest["settings"]["max_context_tokens"]
    first = configs[0].name if configs else next(iter(manifest["configs"]), "")
    warning = f"> **{demonstration}.**\n\n" if (demonstration := describe_demonstration(manifest)) else ""
    if unredacted := manifest["counts"].get("traces_unredacted"):
        traces = manifest["counts"]["traces"]
        warning += (
            f"> **Secrets and user names were not looked for in {unredacted} of the {traces} traces.** "
            "They may hold keys, tokens, passwords and personal data.\n\n"
        )
    return (
        f"# Next actions of tool-using agents\n\n{warning}"
        "Built by foretrace from traces of agent work: each step's action typed from its structure, splits by group, "
        "prompts that show only the past.\n\n"
        f'```python\nfrom datasets import load_dataset\n\nrows = load_dataset("{place}", "{first}")\n```\n\n'
        "That writes a cache of about 33 times the files. With little disk, add `streaming=True`: it needs none. "
        "If you have the traces, you do not need the files: `foretrace.load(traces, config, split)` renders the same "
        "rows one by one.\n\n"
        "TRL's trainers cut or drop rows beyond their `max_length`, 1024 unless told otherwise: prompts here may have "
        f"{longest} tokens, so set it.\n"
    )


def _write_table(heads: Sequence[str], rows: Iterable[Sequence[Any]]) -> list[str]:
    return [_write_row(heads), "|---" * len(heads) + "|", *map(_write_row, rows)]


def _write_configs(manifest: Mapping[str, Any], configs: Sequence[Config]) -> list[str]:
    rows: list[list[Any]] = []
    for config in configs:
        splits = manifest["configs"][config.name]
        rows.append([f"`{config.name}`", *(splits.get(s, {"rows": "-"})["rows"] for s in SPLITS), config.about])
    lines = ["## Configs", "", *_write_table(["config", *SPLITS, "what it is"], rows)]
    if manifest["families"]:
        lines += ["", f"Pairs by family: {_list_counts(manifest['families'])}."]
    if mistakes := manifest.get("mistakes"):
        whose = describe_mistakes(mistakes["files"])
        lines += ["", f"The rejected answers of the family `proposer` are wrong guesses of {whose}."]
    return lines


def _list_counts(counts: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.items())


_TOOL_IN_ANSWER = r'"tool"\s*:\s*"([^"]+)"'


def make_evaluation(manifest: Mapping[str, Any], configs: Sequence[Config], repo_id: str) -> str | None:
    """`eval.yaml`, which marks a repository as a benchmark on the Hub and lets inspect_ai run it. `None` if no config
    is scored, or if the answers name no tool: the scorers allowed there can only compare with a column."""
    scored = [config.name for config in configs if config.has_references]
    if not scored or manifest["settings"].get("target") != "call":
        return None
    import yaml

    about = (
        "Given what an agent has seen and done so far, name the tool that it calls next. This is the share of the rows "
        "whose tool is right; a row whose step calls no tool counts as wrong. Action types, whole calls and intervals: "
        f"foretrace score, see the card of {repo_id}."
    )
    task = {
        "id": "next_tool",
        "config": scored[0],
        "split": "test",
        "field_spec": {"input": "prompt", "target": "tool"},
        "solvers": [{"name": "generate"}],
        "scorers": [{"name": "pattern", "args": {"pattern": _TOOL_IN_ANSWER, "ignore_case": False}}],
    }
    described = {"name": f"Next actions of agents ({repo_id})", "description": about}
    return yaml.safe_dump(described | {"evaluation_framework": "inspect-ai", "tasks": [task]}, sort_keys=False)


def _write_scoring(manifest: Mapping[str, Any], configs: Sequence[Config], place: str) -> list[str]:
    scored = [config.name for config in configs if config.has_references]
    if not scored or manifest["settings"].get("target") == "message":
        return []
    return [
        "## Scoring a model",
        "",
        f"Show a model the `prompt` of each `{scored[0]}` row, and write a line for each answer, as JSON lines or "
        "Parquet: `key` and `step` of the row, and the model's text as `completion` (better, as `rank` 2, 3, ..., also "
        "its next guesses).",
        "",
        "```console",
        *([f"$ hf download {place} --repo-type dataset --local-dir dataset"] if place != _FOLDER else []),
        f"$ foretrace score answers.jsonl {place if place == _FOLDER else 'dataset'}",
        "```",
        "",
        "It compares action type, tool and call with the row's, on the rows as they come (`natural`), on equally many "
        "of each action (`balanced`), and on those whose calls are safe to run early, with 95% intervals by `group`. "
        "A row without an answer counts as wrong.",
    ]


def _write_actions(manifest: Mapping[str, Any]) -> list[str]:
    splits = manifest["actions"]
    rows = [[action, *(counts[action] for counts in splits.values())] for action in next(iter(splits.values()))]
    return ["## Actions", "", *_write_table(["action", *splits], rows)]


def _write_gates(manifest: Mapping[str, Any]) -> list[str]:
    rows = [[gate["name"], gate["verdict"].upper(), format_figures(gate)] for gate in manifest["gates"]]
    lines = ["## Gates", "", *_write_table(["gate", "verdict", "figures"], rows)]
    if manifest["warnings"]:
        lines += ["", "Warnings:", "", *(f"- {_write_inline(w)}" for w in manifest["warnings"])]
    return lines


def _write_difficulty(manifest: Mapping[str, Any]) -> list[str]:
    families = manifest.get("difficulty")
    if not families:
        return []
    about = (
        "What a shallow model of prompt and completion gets right (counts, places, overlaps; fitted on train, "
        "measured on test, a 99% interval by groups): so much of a family is easy. It is not a gate."
    )
    rows = [[family, describe_difficulty(figures)] for family, figures in families.items()]
    return ["## Difficulty", "", about, "", *_write_table(["family", "right"], rows)]


def format_figures(gate: Mapping[str, Any]) -> str:
    """A gate's figures in one line, for a table that already has its name and verdict."""
    if gate["name"].startswith("shortcut/"):
        return str(gate.get("detail", "")).partition(": ")[2]
    return _list_counts(gate.get("figure", {})) or str(gate.get("detail", ""))


_EMPTY_IS_ALL = frozenset(["recipes", "license_allow"])
"""Settings whose lists restrict something: if empty, nothing is left out."""


def _format_setting(name: str, value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return "/".join(str(v) for v in value) or ("all" if name in _EMPTY_IS_ALL else "none")
    if value is None:
        return "none"
    if isinstance(value, dict):
        return "/".join(f"{key}={each}" for key, each in value.items())
    return ("off", "on")[value] if isinstance(value, bool) else str(value)


_FILTER_TITLES = {"license": "license", "benchmarks": "benchmark", "flags": "flagged", "copies": "copies"}
"""Column title for each filter, in the order in which the filters decide."""


def _write_left_out(manifest: Mapping[str, Any]) -> list[str]:
    sources: Mapping[str, Any] = manifest.get("by_source", {})
    if not sources:
        return []
    given: Mapping[str, Any] = manifest.get("filters", {})
    filters = {name: given[name] for name in dict.fromkeys((*_FILTER_TITLES, *sorted(given))) if name in given}
    titles = [f"left out: {_FILTER_TITLES.get(name, name)}" for name in filters]
    heads = ["source", "license", "revision", "traces in", *titles, "used", "redacted", "merged"]
    rows: list[list[Any]] = []
    for source, found in sources.items():
        revisions = [revision[:12] for revision in found["revisions"]]
        left_out = [found["left_out"].get(name, 0) for name in filters]
        numbers = [found["traces_in"], *left_out, found["traces"], found["redacted"], found["merged"]]
        rows.append([source, ", ".join(found["licenses"]) or "-", ", ".join(revisions) or "-", *numbers])
    if len(sources) > 1:
        rows.append(["all", "", "", *map(sum, zip(*(row[3:] for row in rows), strict=True))])
    lines = ["## What was left out", "", *_write_table(heads, rows)]
    lines += [
        "",
        "Redacted: traces used out of which secrets or user names were taken. Merged: traces whose group was put "
        "together with others, so that copies stand in one split.",
    ]
    notes = [
        f"- {name}: {_write_inline(note)}" for name, described in filters.items() for note in described.get("notes", ())
    ]
    lines += ["", *notes] if notes else []
    for copy in filters.get("benchmarks", {}).get("copies", [])[:_MAX_SHOWN_COPIES]:
        where = f"{copy['field']} in {copy['place']}, {copy['share']:.0%} of it"
        problem, trace, text = (_write_code(copy[name]) for name in ("problem", "trace", "text"))
        lines.append(f"  - {problem} in {trace} ({where}): {text}")
    return lines


def _write_row(cells: Sequence[Any]) -> str:
    return f"| {' | '.join(_write_inline(cell).replace('|', '/') for cell in cells)} |"


def _write_inline(value: Any) -> str:
    """A text of a trace in one line, so that it cannot begin a heading, list or block."""
    return " ".join(str(value).split())


def _write_code(value: Any) -> str:
    """A text of a trace in backquotes, without its own backquotes."""
    return "`" + _write_inline(value).replace("`", "'") + "`"


def _write_origin(manifest: Mapping[str, Any]) -> list[str]:
    counts, done = manifest["counts"], manifest.get("transforms", {})
    lines = ["## Where it comes from", ""]
    lines += [f"- {_write_inline(name)}: {n} traces" for name, n in manifest["sources"].items()]
    lines += [f"- done before the build: {_write_inline(name)}, {n} traces" for name, n in done.items()]
    if redacted := manifest.get("redacted"):
        lines.append(f"- taken out of the traces before they were written, by type: {_list_counts(redacted)}")
    lines += [f"- license {_write_inline(name)}: {n} traces" for name, n in manifest.get("licenses", {}).items()]
    told = (
        f"{counts['traces']} traces, {counts['assistant_messages']} assistant messages. Dropped, by config and reason:"
    )
    lines += ["", told, ""]
    lines += [f"- {config}: {_list_counts(reasons) or 'none'}" for config, reasons in manifest["drops"].items()]
    settings = {name: _format_setting(name, value) for name, value in manifest["settings"].items()}
    lines += ["", f"Settings: {_list_counts(settings)}."]
    lines.append(f"Prompt length is counted by {manifest['token_counter']}.")
    if versions := manifest.get("versions"):
        lines.append(f"Versions: {_list_counts(versions)}.")
    return lines
