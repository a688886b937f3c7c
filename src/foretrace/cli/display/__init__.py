"""How results look: tables and sentences."""

from __future__ import annotations

import importlib
import io

from foretrace.cli.output import Output
from foretrace.core.report import Report

_SHOWN_BY = {
    "BuildReport": "dataset.show_build",
    "CeilingReport": "ceiling.show_ceiling",
    "EffectsManifest": "effects.show_effects",
    "ExportReport": "traces.show_export",
    "GenerateReport": "generate.show_report",
    "ImportReport": "imports.show_import",
    "LabelReport": "dataset.show_labels",
    "PairReport": "score.show_pair_scores",
    "PushReport": "dataset.show_pushed",
    "References": "score.show_references",
    "PredictReport": "predict.show_predictions",
    "ReplayReport": "replay.show_replay",
    "ScoreReport": "score.show_scores",
    "ScrubReport": "traces.show_scrubbed",
    "VerifyReport": "score.show_verified",
    "ViewReport": "traces.show_view",
}
"""By report: the module here, and its function."""


def render(report: Report) -> str:
    """What the command prints of a report, without its notes on stderr."""
    module, _, function = _SHOWN_BY[type(report).__name__].partition(".")
    text = io.StringIO()
    getattr(importlib.import_module(f"foretrace.cli.display.{module}"), function)(Output(stream=text), report)
    return text.getvalue().rstrip("\n")
