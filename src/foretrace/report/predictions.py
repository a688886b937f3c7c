"""Predictions beside the eval rows that they are for."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from foretrace.actions.same_action import canonicalise_json
from foretrace.core.errors import ForetraceWarning, PredictionError
from foretrace.core.predictions import PredictedCall, PredictionsFile, digest_dataset, read_predictions

_TEXT_CHARACTERS = 4_000
SHOWN_ARGUMENTS = 160
"""Characters of the arguments of a call that its line in a list shows."""

RowId = tuple[str, int]
"""Key of the trace, and step."""


class Guesses:
    """The first guess of one file at each eval row."""

    def __init__(self, path: Path) -> None:
        self.file: PredictionsFile = read_predictions(path)
        self._by_step = self.file.by_step()
        self._confusion: Counter[tuple[str, str]] = Counter()
        self._right: Counter[str] = Counter()
        self._found = 0

    def compare(self, row: Mapping[str, Any], gold: tuple[PredictedCall, ...]) -> dict[str, Any] | None:
        """What is shown of the guess at an eval row, and counted: None where there is none."""
        guesses = self._by_step.get((row["key"], row["step"]))
        if not guesses:
            self._confusion[row["action"], "(none)"] += 1
            return None
        guess = guesses[0]
        self._found += 1
        right_type = guess.action == row["action"]
        right_call = bool(gold) and _write_calls(guess.calls) == _write_calls(gold)
        self._confusion[row["action"], guess.action or "(none)"] += 1
        self._right.update(["type"] * right_type + ["call"] * right_call)
        return {
            "action": guess.action,
            "calls": [[call.tool, call.arguments] for call in guess.calls],
            "text": (guess.completion or "")[:_TEXT_CHARACTERS],
            "confidence": guess.confidence,
            "right": right_type,
            "right_call": right_call,
            "others": len(guesses) - 1,
        }

    def check_fit(self, dataset: Path) -> None:
        """After all rows were compared: refuse a file that has nothing to show, and warn of one that was made for
        another version of the dataset.

        Raises:
            PredictionError: no prediction is for an eval row of the page.
        """
        path, header = self.file.path, self.file.header
        self.file.check_not_empty()
        if not self._found:
            raise PredictionError(
                f"{path}: none of its {len(self.file.rows):,} predictions is for an eval row of {dataset}; name the "
                "dataset whose eval rows were predicted"
            )
        if header is not None and header.dataset and header.dataset != digest_dataset(dataset):
            what = f"{path}: was made for another dataset, or another version of {dataset}: what fits is shown"
            warnings.warn(ForetraceWarning(what), stacklevel=2)

    def describe(self) -> dict[str, Any]:
        """The file as a whole, after all rows were compared; `confusion` has gold, guess and number."""
        return {
            "name": Path(self.file.path).name,
            "predictor": self.file.predictor,
            "found": self._found,
            "right": self._right["type"],
            "right_call": self._right["call"],
            "problems": self.file.problems,
            "confusion": [[gold, guess, count] for (gold, guess), count in sorted(self._confusion.items())],
        }


def describe_guess_line(guess: Mapping[str, Any]) -> list[Any]:
    """What the line of a row shows of a guess: action, whether it and its calls are right, confidence, first call."""
    tool, arguments = guess["calls"][0] if guess["calls"] else (None, "")
    return [
        *(guess[name] for name in ("action", "right", "right_call", "confidence")),
        tool,
        arguments[:SHOWN_ARGUMENTS],
    ]


def _write_calls(calls: tuple[PredictedCall, ...]) -> list[tuple[str, str]]:
    return [(call.tool, canonicalise_json(call.arguments)) for call in calls]
