"""What a built dataset holds, from its manifest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from foretrace.cli.output import Cell, Output

_VERDICTS = {"pass": "pass", "fail": "FAIL", "undecided": "UNDECIDED", "removed": "REMOVED"}


def show_dataset(say: Output, manifest: dict[str, Any], out: Path) -> None:
    """Actions, rows, gates, drops, warnings, where the files are, and what to type next."""
    from foretrace.dataset.card import format_figures
    from foretrace.dataset.demonstration import describe_demonstration

    splits = show_dataset_actions(say, manifest.get("actions", {}))
    configs: dict[str, dict[str, Any]] = manifest.get("configs", {})
    say.line()
    say.table(
        ("rows", *splits),
        [(name, *(_rows(by_split.get(split)) for split in splits)) for name, by_split in configs.items()],
    )
    say.line()
    say.table(
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
    _counts(say, "counts", manifest.get("counts", {}))
    dropped = {
        config: {reason: count for reason, count in reasons.items() if count}
        for config, reasons in manifest.get("drops", {}).items()
    }
    _counts(say, "drops", {config: reasons for config, reasons in dropped.items() if reasons})
    for warning in manifest.get("warnings", []):
        say.warn(f"warning: {warning}", "yellow")
    say.line()
    if demonstration := describe_demonstration(manifest):
        say.line((demonstration, "yellow"))
    say.line(f"dataset: {out}")
    first = next(iter(configs), "proposer")
    say.line(f'next: python -c \'import datasets; print(datasets.load_dataset("{out}", "{first}"))\'')


def show_dataset_actions(say: Output, actions: dict[str, dict[str, int]]) -> list[str]:
    """The action distribution of each split; returns the splits."""
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
    say.table(("action", *(cell for split in splits for cell in (split, ""))), rows)
    return splits


def _rows(entry: Any) -> int | None:
    rows = entry.get("rows") if isinstance(entry, dict) else entry
    return rows if isinstance(rows, int) else None


def _counts(say: Output, title: str, counts: dict[str, Any]) -> None:
    if not counts:
        return
    say.line()
    say.line((title, "bold"))
    for name, count in counts.items():
        if isinstance(count, dict):
            text = ", ".join(f"{k} {v:,}" if isinstance(v, int) else f"{k} {v}" for k, v in count.items())
            say.line(f"  {name}: {text}")
        else:
            say.line(f"  {name}: {count:,}" if isinstance(count, int) else f"  {name}: {count}")
