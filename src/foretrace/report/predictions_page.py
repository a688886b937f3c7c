"""The page of predictions alone: what was guessed at each step, without the dataset whose rows they are for."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from foretrace.actions.taxonomy import ActionType
from foretrace.core.predictions import Prediction, PredictionsFile, read_predictions
from foretrace.core.progress import ProgressFunc
from foretrace.core.version import __version__
from foretrace.report.data_files import encode_json
from foretrace.report.page import Page

MAX_PREDICTIONS = 20_000
"""Predictions of all files that the list has, the first ones."""
_LINE_BYTES = 250
"""About what a prediction takes in the list."""
_TEXT_CHARACTERS = 20_000


def write_predictions_page(page: Page, paths: Sequence[Path], progress: ProgressFunc) -> tuple[int, int]:
    """Put all that a page of predictions shows into `page`.

    Returns:
        How many predictions it lists, and of how many the calls and texts are left out.

    Raises:
        PredictionError: a file cannot be read, or holds none.
    """
    files = [read_predictions(path) for path in paths]
    for file in files:
        file.check_not_empty()
    listed = [(number, row) for number, file in enumerate(files) for row in file.rows][:MAX_PREDICTIONS]
    lines: list[dict[str, Any]] = []
    waiting: list[msgspec.Raw] = []
    piece = size = left_out = 0
    for done, (number, row) in enumerate(listed, 1):
        data = encode_json(_describe_guess(row)).encode()
        lines.append(_describe_line(row) | {"file": number, "piece": piece, "place": len(waiting)})
        waiting.append(msgspec.Raw(data))
        size += len(data)
        if size >= page.chunk_bytes or done == len(listed):
            if not page.put(f"predictions-{piece}", waiting, spare=_LINE_BYTES * len(listed)):
                left_out += len(waiting)
                for line in lines[-len(waiting) :]:
                    line["piece"] = -1
            waiting, size, piece = [], 0, piece + 1
        progress("reading predictions", done, len(listed))
    facts = {
        "kind": "predictions",
        "title": " · ".join(path.name for path in paths),
        "version": __version__,
        "actions": [str(action) for action in ActionType],
        "predictions": [_describe_file(file) for file in files],
        "rows": lines,
        "left_out": left_out,
    }
    page.put("meta", facts, needed=True)
    return len(lines), left_out


def _describe_line(row: Prediction) -> dict[str, Any]:
    return {
        **{name: getattr(row, name) for name in ("key", "step", "rank", "action", "confidence")},
        **{name: getattr(row, name) for name in ("seconds", "tokens", "score")},
        "tool": row.calls[0].tool if row.calls else None,
    }


def _describe_guess(row: Prediction) -> dict[str, Any]:
    return {
        "calls": [[call.tool, call.arguments] for call in row.calls],
        "text": (row.completion or "")[:_TEXT_CHARACTERS],
    }


def _describe_file(file: PredictionsFile) -> dict[str, Any]:
    return {
        "name": Path(file.path).name,
        "predictor": file.header.predictor if file.header else "",
        "header": msgspec.to_builtins(file.header),
        "rows": len(file.rows),
        "steps": len({(row.key, row.step) for row in file.rows}),
        "problems": file.problems,
    }
