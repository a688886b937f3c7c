"""Print what a built dataset contains, what was pushed, and how often each action occurs."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foretrace.cli.output import Cell, Output
from foretrace.core.errors import count_things
from foretrace.core.places import find_address, write_place

if TYPE_CHECKING:
    from foretrace.api.traces import LabelReport
    from foretrace.dataset.push import PushReport
    from foretrace.dataset.report import BuildReport

_BAR_WIDTH = 30
_VERDICTS = {"pass": "pass", "fail": "FAIL", "undecided": "UNDECIDED", "removed": "REMOVED"}


def show_dataset(output: Output, report: BuildReport, out: Path | None = None) -> None:
    """Print actions, rows, gates, drops and warnings, and with `out` where the files are and what to type next."""
    from foretrace.dataset.card import format_figures
    from foretrace.dataset.demonstration import describe_demonstration
    from foretrace.dataset.difficulty import describe_difficulty
    from foretrace.dataset.proposer_guesses import describe_mistakes

    manifest = report.manifest
    splits = _show_actions_by_split(output, manifest.get("actions", {}))
    configs: dict[str, dict[str, Any]] = manifest.get("configs", {})
    output.print()
    output.print_table(
        ("rows", *splits),
        [(name, *(_row_count(by_split.get(split)) for split in splits)) for name, by_split in configs.items()],
    )
    output.print()
    gates = [
        (gate["name"], _VERDICTS.get(gate["verdict"], "?"), format_figures(gate).removeprefix("UNDECIDED "))
        for gate in manifest.get("gates", [])
    ]
    output.print_table(("gate", "verdict", "figure"), gates)
    if families := manifest.get("difficulty"):
        output.print()
        difficulty = [(family, describe_difficulty(figures)) for family, figures in families.items()]
        output.print_table(("difficulty", "what a shallow model gets right"), difficulty)
    if mistakes := manifest.get("mistakes"):
        output.print()
        output.print(f"mistakes of {describe_mistakes(mistakes['files'])}: {count_things(mistakes['pairs'], 'pair')}")
    filters: dict[str, dict[str, Any]] = manifest.get("filters", {})
    _show_counts(output, "counts", manifest.get("counts", {}))
    for kind in ("tasks", "attempts"):
        figures: dict[str, Any] = filters.get("copies", {}).get(kind, {"copies": 0})
        if figures["copies"]:
            output.print()
            examples = "; ".join(f"{one} and {other}" for one, other in figures["examples"])
            output.print(f"{figures['copies']:,} of {figures[kind]:,} {kind} are near-copies of another: {examples}")
    _show_counts(output, "drops", manifest.get("drops", {}))
    left_out: dict[str, Counter[str]] = {}
    for name, described in filters.items():
        for reasons in described["by_source"].values():
            left_out.setdefault(f"{name} (whole traces)", Counter()).update(reasons)
    _show_counts(output, "left out", left_out)
    benchmarks = filters.get("benchmarks", {})
    if benchmarks.get("found") or manifest.get("settings", {}).get("decontaminate"):
        output.print()
        for note in benchmarks["notes"]:
            output.print(note)
    for warning in manifest.get("warnings", []):
        output.warn(f"warning: {warning}", "yellow")
    output.print()
    if demonstration := describe_demonstration(manifest):
        output.print((demonstration, "yellow"))
    if out is None:
        return
    output.print(f"dataset: {write_place(out)}")
    if (out / "report.html").is_file():
        output.print(f"in a browser: {out / 'report.html'}")
    output.print(f"next: python -c 'import datasets; print(datasets.load_dataset({_write_arguments(out, configs)}))'")


def _write_arguments(out: Path, configs: dict[str, dict[str, Any]]) -> str:
    """The arguments with which `datasets.load_dataset` loads the first config. It accepts local folders, or files
    anywhere."""
    first = next(iter(configs), "proposer")
    address = find_address(out)
    if address is None:
        return f'"{out}", "{first}"'
    splits = [split for split, entry in configs.get(first, {}).items() if _row_count(entry)]
    files = ", ".join(f'"{split}": "{address}/{first}/{split}-*.parquet"' for split in splits)
    return f'"parquet", data_files={{{files}}}'


def show_actions(output: Output, actions: dict[str, int]) -> None:
    total, most = sum(actions.values()), max(actions.values(), default=0)
    output.print_table(
        ("action", "steps", "share", ""),
        [
            (
                name,
                count,
                f"{count / total:6.1%}" if total else "-",
                "█" * round(_BAR_WIDTH * count / most) if most else "",
            )
            for name, count in actions.items()
        ],
    )


def show_labels(output: Output, report: LabelReport) -> None:
    from foretrace.core.files import describe_output

    show_actions(output, report.actions)
    fields: list[tuple[str, Cell]] = [
        ("traces", report.traces),
        ("steps", report.steps),
        ("not a step", report.nonsteps),
        ("assistant messages", report.steps + report.nonsteps),
    ]
    fields += [(f"flagged {rule}", count) for rule, count in report.flags.items()]
    if report.corrections is not None:
        fields.append(("corrected", report.corrections.applied))
    if report.out is not None:
        fields.append(("labels", describe_output(report.out, report.replaced)))
    if report.review is not None:
        fields.append(("to review", f"{count_things(report.review_steps, 'step')} in {report.review}"))
    output.print_fields(fields)
    for warning in report.corrections.warnings if report.corrections is not None else ():
        output.warn(f"warning: {warning}", "yellow")
    if report.review is not None:
        actions = ", ".join([*report.actions, "no_step"])
        output.note(f"next: write into correct_action of {report.review} where the label is wrong, one of {actions}")


def show_pushed(output: Output, pushed: PushReport) -> None:
    rows: list[tuple[Cell, ...]] = []
    for one in pushed:
        what = "is there already" if one.skipped else "would push" if one.commit is None else "pushed"
        rows.append((one.url, one.rows, len(one.files), one.bytes, what))
    output.print_table(("repository", "rows", "files", "bytes", "what"), rows)
    if any(one.commit is None for one in pushed):
        visibility = "private" if pushed[0].private else "public, unless its owner's settings on the Hub say private"
        output.print(f"new repositories would be {visibility}")


def _show_actions_by_split(output: Output, actions: dict[str, dict[str, int]]) -> list[str]:
    splits = list(actions) or ["train", "validation", "test"]
    names = list(dict.fromkeys(name for split in splits for name in actions.get(split, {})))
    totals = {split: sum(actions.get(split, {}).values()) for split in splits}
    rows: list[list[Cell]] = []
    for name in names:
        row: list[Cell] = [name]
        for split in splits:
            count = actions.get(split, {}).get(name, 0)
            row += [count, f"{count / totals[split]:6.1%}" if totals[split] else "-"]
        rows.append(row)
    rows.append(["all", *(cell for split in splits for cell in (totals[split], ""))])
    output.print_table(("action", *(cell for split in splits for cell in (split, ""))), rows)
    return splits


def _row_count(entry: Any) -> int | None:
    rows = entry.get("rows") if isinstance(entry, dict) else entry
    return rows if isinstance(rows, int) else None


def _show_counts(output: Output, title: str, counts: dict[str, Any]) -> None:
    lines: list[str] = []
    for name, count in counts.items():
        parts = {key: value for key, value in count.items() if value} if isinstance(count, dict) else {"": count}
        texts = [f"{key} {value:,}" if isinstance(value, int) else f"{key} {value}" for key, value in parts.items()]
        if any(parts.values()):
            lines.append(f"  {name}: {', '.join(texts).strip()}")
    if lines:
        output.print()
        output.print((title, "bold"))
        for line in lines:
            output.print(line)
