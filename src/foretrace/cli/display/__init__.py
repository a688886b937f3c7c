"""Print results as tables and sentences."""

from __future__ import annotations

import importlib
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from foretrace.cli.output import Output
from foretrace.core.report import Report

_SHOWN_BY = {
    "BuildReport": "dataset.show_dataset",
    "CeilingReport": "speculation.show_ceiling",
    "CheckedCall": "speculation.show_checked_call",
    "EffectsManifest": "speculation.show_effects",
    "ExportReport": "traces.show_export",
    "GenerateReport": "generate.show_generated",
    "ImportReport": "imports.show_import",
    "LabelReport": "dataset.show_labels",
    "PairReport": "score.show_pair_scores",
    "PushReport": "dataset.show_pushed",
    "References": "score.show_references",
    "PredictReport": "score.show_predictions",
    "ReplayReport": "speculation.show_replay",
    "ScoreReport": "score.show_scores",
    "ScrubReport": "traces.show_scrubbed",
    "VerifyReport": "score.show_verified",
    "ViewReport": "traces.show_view",
}


def print_report(output: Output, report: Any, *inputs: Any, **how: Any) -> None:
    """Print a report as text; `inputs` and `how` go to the function that prints those of its kind."""
    module, _, function = _SHOWN_BY[type(report).__name__].partition(".")
    getattr(importlib.import_module(f"foretrace.cli.display.{module}"), function)(output, report, *inputs, **how)


def show_report(
    output: Output,
    report: Any,
    facts: dict[str, Any] | None = None,
    *inputs: Any,
    file: Path | None = None,
    **how: Any,
) -> None:
    """Print a report, or under `--json` all of it after the facts of the call, which may go to a file too."""
    import msgspec

    found = {**(facts or {}), **msgspec.to_builtins(report)}
    if file is not None:
        from foretrace.core.files import replace_file

        replace_file(file, msgspec.json.format(msgspec.json.encode(found), indent=1) + b"\n")
    if not output.write_json(found):
        print_report(output, report, *inputs, **how)


def show_plugins(output: Output, plugins: Sequence[dict[str, Any]], own: str) -> None:
    """Print what `registry.describe_plugins` says; `own` is how to add one."""
    for plugin in plugins:
        output.print((plugin["name"], "bold"), f"  {plugin['about']}")
        count = f"{plugin['problems']:,} problems; " if plugin.get("problems") else ""
        place = plugin.get("hub") or plugin.get("from") or "local files only"
        output.print((f"    {count}{place}; license {plugin['license'] or 'as the rows say'}", "dim"))
        if known := plugin.get("recognized"):
            output.print((f"    auto knows it {known[0].lower()}{known[1:]}", "dim"))
    output.print()
    output.print(f"your own: {own}")


def render(report: Report) -> str:
    """The text that the command prints for a report, without notes on stderr."""
    text = io.StringIO()
    print_report(Output(stream=text), report)
    return text.getvalue().rstrip("\n")
