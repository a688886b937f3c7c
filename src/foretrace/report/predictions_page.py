"""The page of predictions without rows: what was guessed at each step, without the dataset whose rows they are for."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from foretrace.actions.taxonomy import ActionType
from foretrace.core.predictions import Prediction, PredictionsFile, read_predictions
from foretrace.core.progress import ProgressFunc
from foretrace.core.version import __version__
from foretrace.report.dataset_page import SHOWN_ARGUMENTS
from foretrace.report.page import Page, PageCounts

MAX_PREDICTIONS = 200_000
"""Predictions of all files that the list has, the first ones: a browser still filters and sorts so many."""
LINES_PER_CHUNK = 5_000
_GUESS_BYTES = 2_000
"""About what the calls and the text of a prediction take, for how many of them are one piece."""
_LINES_SHARE, _CALLS_SHARE = 0.5, 0.95
"""How much of a page is full when no more lines of the list, and no more calls, are added."""
_TEXT_CHARACTERS = 20_000
_TOOL_CHARACTERS = 200
_LINE = ("step", "rank", "action", "confidence", "seconds", "tokens", "score")


def write_predictions_page(page: Page, paths: Sequence[Path], progress: ProgressFunc) -> PageCounts:
    """Put all that a page of predictions shows into `page`.

    Raises:
        PredictionError: a file cannot be read, or holds none.
    """
    files = [read_predictions(path) for path in paths]
    for file in files:
        file.check_not_empty()
    found = [(number, row) for number, file in enumerate(files) for row in file.rows]
    shown, chunks = _put_lines(page, found[:MAX_PREDICTIONS])
    piece_rows = max(1, page.chunk_bytes // _GUESS_BYTES)
    facts: dict[str, Any] = {
        "kind": "predictions",
        "title": " · ".join(path.name for path in paths),
        "version": __version__,
        "actions": [str(action) for action in ActionType],
        "predictions": [_describe_file(file) for file in files],
        "chunks": chunks,
        "listed": len(shown),
        "piece_rows": piece_rows,
    }
    left_out, missing = 0, list[int]()
    for piece, at in enumerate(range(0, len(shown), piece_rows)):
        guesses = [_describe_guess(row) for _, row in shown[at : at + piece_rows]]
        if not page.put(f"predictions-{piece}", guesses, share=_CALLS_SHARE):
            missing.append(piece)
            left_out += len(guesses)
        progress("reading predictions", at + len(guesses), len(shown))
    page.put("meta", facts | {"missing": missing, "left_out": left_out})
    return PageCounts(len(shown), left_out, len(found) - len(shown))


def _put_lines(page: Page, rows: list[tuple[int, Prediction]]) -> tuple[list[tuple[int, Prediction]], int]:
    """Put the lines of the list into at most half of the page; returns the rows that have one, and how many chunks
    they are in."""
    chunks = 0
    for at in range(0, len(rows), LINES_PER_CHUNK):
        part = rows[at : at + LINES_PER_CHUNK]
        keys = {key: number for number, key in enumerate(dict.fromkeys(row.key for _, row in part))}
        lines = [[number, keys[row.key], *_describe_line(row)] for number, row in part]
        if not page.put(f"list-{chunks}", {"keys": list(keys), "lines": lines}, share=_LINES_SHARE):
            return rows[:at], chunks
        chunks += 1
    return rows, chunks


def _describe_line(row: Prediction) -> list[Any]:
    tool, arguments = (row.calls[0].tool, row.calls[0].arguments) if row.calls else (None, "")
    return [*(getattr(row, name) for name in _LINE), tool and tool[:_TOOL_CHARACTERS], arguments[:SHOWN_ARGUMENTS]]


def _describe_guess(row: Prediction) -> dict[str, Any]:
    return {
        "calls": [[call.tool, call.arguments] for call in row.calls],
        "text": (row.completion or "")[:_TEXT_CHARACTERS],
    }


def _describe_file(file: PredictionsFile) -> dict[str, Any]:
    return {
        "name": Path(file.path).name,
        "predictor": file.predictor,
        "header": msgspec.to_builtins(file.header),
        "rows": len(file.rows),
        "steps": len({(row.key, row.step) for row in file.rows}),
        "problems": file.problems,
    }
