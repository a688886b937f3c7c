"""Print what a built dataset contains, what was pushed, and how often each action occurs."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foretrace.cli.output import Cell, Output
from foretrace.core.places import find_address, write_place

if TYPE_CHECKING:
    from foretrace.actions.corrections import CorrectionCounts
    from foretrace.api.traces import LabelReport
    from foretrace.dataset.push import PushedRepository, PushReport
    from foretrace.dataset.report import BuildReport

_BAR_WIDTH = 30
_VERDICTS = {"pass": "pass", "fail": "FAIL", "undecided": "UNDECIDED", "removed": "REMOVED"}


def show_build(output: Output, report: BuildReport) -> None:
    """Print what a dataset contains, without its location."""
    show_dataset(output, report.manifest, None)


def show_dataset(output: Output, manifest: dict[str, Any], out: Path | None) -> None:
    """Print actions, rows, gates, drops and warnings, where the files are, and what to type next."""
    from foretrace.dataset.card import format_figures
    from foretrace.dataset.demonstration import describe_demonstration
    from foretrace.dataset.proposer_guesses import describe_mistakes

    splits = _show_actions_by_split(output, manifest.get("actions", {}))
    configs: dict[str, dict[str, Any]] = manifest.get("configs", {})
    output.print()
    output.print_table(
        ("rows", *splits),
        [(name, *(_row_count(by_split.get(split)) for split in splits)) for name, by_split in configs.items()],
    )
    output.print()
    output.print_table(
        ("gate", "verdict", "figure"),
        [
            (
                gate.get("name", ""),
                _VERDICTS.get(gate.get("verdict", ""), "?"),
                format_figures(gate).removeprefix("UNDECIDED "),
            )
            for gate in manifest.get("gates", [])
        ],
    )
    _show_difficulty(output, manifest.get("difficulty", {}))
    if mistakes := manifest.get("mistakes"):
        output.print()
        output.print(f"mistakes of {describe_mistakes(mistakes['files'])}: {mistakes['pairs']:,} pairs")
    _show_counts(output, "counts", manifest.get("counts", {}))
    _show_copies(output, manifest.get("filters", {}).get("copies"))
    _show_counts(output, "drops", manifest.get("drops", {}))
    _show_filters(output, manifest.get("filters", {}))
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


def _show_copies(output: Output, found: dict[str, Any] | None) -> None:
    """Print how many tasks and attempts are copies, with examples; nothing if there are none."""
    for kind in ("tasks", "attempts"):
        figures: dict[str, Any] = (found or {}).get(kind, {"copies": 0})
        if figures["copies"]:
            output.print()
            examples = "; ".join(f"{one} and {other}" for one, other in figures["examples"])
            output.print(f"{figures['copies']:,} of {figures[kind]:,} {kind} are near-copies of another: {examples}")


def _show_filters(output: Output, filters: dict[str, dict[str, Any]]) -> None:
    """Print which whole traces were left out, by filter and reason, and notes on benchmarks found."""
    left_out: dict[str, Counter[str]] = {}
    for name, described in filters.items():
        for reasons in described["by_source"].values():
            left_out.setdefault(f"{name} (whole traces)", Counter()).update(reasons)
    _show_counts(output, "left out", left_out)
    benchmarks = filters.get("benchmarks", {})
    if benchmarks.get("found") or benchmarks.get("traces_like_swebench"):
        output.print()
        for note in benchmarks["notes"]:
            output.print(note)


def _show_difficulty(output: Output, families: dict[str, dict[str, Any]]) -> None:
    """Print how much of each pair family a shallow reader gets right; nothing if it was not measured."""
    from foretrace.dataset.difficulty import describe_difficulty

    if families:
        output.print()
        rows = [(family, describe_difficulty(figures)) for family, figures in families.items()]
        output.print_table(("difficulty", "what a shallow reader gets right"), rows)


def show_actions(output: Output, actions: dict[str, int]) -> None:
    """Print the distribution of the nine actions, in their order, with a bar for each."""
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
    """Print what was labeled, and where the labels and the uncertain steps are."""
    from foretrace.core.files import describe_output

    show_actions(output, report.actions)
    fields: list[tuple[str, Cell]] = [
        ("traces", report.traces),
        ("steps", report.steps),
        ("not a step", report.nonsteps),
    ]
    fields += [(f"flagged {rule}", count) for rule, count in report.flags.items()]
    if report.corrections is not None:
        fields.append(("corrected", report.corrections.applied))
    if report.out is not None:
        fields.append(("labels", describe_output(report.out, report.replaced)))
    if report.review is not None:
        fields.append(("to review", f"{report.review_steps:,} steps in {report.review}"))
    output.print_fields(fields)
    if report.corrections is not None:
        warn_corrections(output, report.corrections)
    if report.review is not None:
        actions = ", ".join([*report.actions, "no_step"])
        output.note(f"next: write into correct_action of {report.review} where the label is wrong, one of {actions}")


def warn_corrections(output: Output, counts: CorrectionCounts) -> None:
    """Warn about corrections that were not applied."""
    for warning in counts.warnings:
        output.warn(f"warning: {warning}", "yellow")


def show_pushed(output: Output, pushed: PushReport) -> None:
    """Print what was pushed, or would be pushed."""
    output.print_table(
        ("repository", "rows", "files", "bytes", "what"),
        [(p.url, p.rows, len(p.files), p.bytes, _describe_push(p)) for p in pushed],
    )


def _describe_push(one: PushedRepository) -> str:
    return "is there already" if one.skipped else "would push" if one.commit is None else "pushed"


def _show_actions_by_split(output: Output, actions: dict[str, dict[str, int]]) -> list[str]:
    """Print the action distribution of each split; returns the splits."""
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
    """Print the counts that are not zero."""
    counts = {n: {k: v for k, v in c.items() if v} if isinstance(c, dict) else c for n, c in counts.items()}
    counts = {name: count for name, count in counts.items() if count}
    if not counts:
        return
    output.print()
    output.print((title, "bold"))
    for name, count in counts.items():
        if isinstance(count, dict):
            text = ", ".join(f"{k} {v:,}" if isinstance(v, int) else f"{k} {v}" for k, v in count.items())
            output.print(f"  {name}: {text}")
        else:
            output.print(f"  {name}: {count:,}" if isinstance(count, int) else f"  {name}: {count}")
