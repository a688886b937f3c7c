"""What calls would touch: a row for each tool, and for the patterns of those that do different things."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from foretrace.cli.output import Cell, Output
from foretrace.core.files import describe_output

if TYPE_CHECKING:
    from foretrace.evaluation.effects_manifest import EffectEvidence, EffectsManifest

_ROWS = 30
"""Rows that are shown; the file has all."""
_PATTERNS = 5
"""Patterns of one tool that are shown."""


def show_effects(output: Output, manifest: EffectsManifest, out: Path | None = None, *, replaced: bool = False) -> None:
    """The most frequent tools and patterns, and where the file is."""
    rows: list[tuple[Cell, ...]] = []
    for tool in manifest.tools:
        rows.append(_make_row(tool.tool, tool))
        patterns = [each for each in tool.patterns if each.pattern]
        rows += [
            _make_row("  " + ", ".join(f"{name}: {value}" for name, value in each.pattern.items()), each)
            for each in patterns[:_PATTERNS]
        ]
    if rows:
        output.print_table(("tool, pattern", "class", "calls", "traces", "effects"), rows[:_ROWS])
        output.print()
    output.print(
        f"{manifest.calls:,} calls of {manifest.traces:,} traces: {len(manifest.tools):,} tools, "
        f"{sum(len(tool.patterns) for tool in manifest.tools):,} patterns"
    )
    if manifest.unread_calls:
        output.print(f"left out: calls that could not be read {manifest.unread_calls:,}")
    if out is not None:
        output.print(f"file: {describe_output(out, replaced)}")


def _make_row(name: str, evidence: EffectEvidence) -> tuple[Cell, ...]:
    effects = ", ".join(f"{effect} {count:,}" for effect, count in evidence.effects.items())
    return name, evidence.effect_class, evidence.calls, evidence.traces, effects
