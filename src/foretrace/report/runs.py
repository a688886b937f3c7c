"""Attempts by turn: how many get so far, and what a turn takes."""

from __future__ import annotations

from collections.abc import Sequence

from foretrace.core.trace import Trace
from foretrace.evaluation.step_times import StepTimes

MAX_TURNS = 40


class TurnSums:
    """Sums by turn over the traces of one folder."""

    def __init__(self) -> None:
        self._rows: list[list[float]] = []

    def add(self, trace: Trace, times: Sequence[StepTimes]) -> None:
        """Take a trace; turns after `MAX_TURNS` are left out."""
        for turn, step in enumerate(times[:MAX_TURNS]):
            if turn == len(self._rows):
                self._rows.append([0, 0, 0, 0, 0, 0, 0])
            tokens = _count_tokens(trace, step)
            for place, value in ((1, tokens), (3, step.model_s or None), (5, step.tool_s or None)):
                if value is not None:
                    self._rows[turn][place] += value
                    self._rows[turn][place + 1] += 1
            self._rows[turn][0] += 1

    def list_means(self) -> list[list[float | None]]:
        """Of each turn: the attempts that have it, and the means of tokens written, seconds of the model, and of the
        tools, over the attempts of which they are known."""
        return [
            [row[0], *(round(row[place] / row[place + 1], 4) if row[place + 1] else None for place in (1, 3, 5))]
            for row in self._rows
        ]


def _count_tokens(trace: Trace, step: StepTimes) -> int | None:
    usages = [m.sampled.usage for m in (trace.messages[i] for i in step.indexes) if m.sampled is not None]
    known = [usage.completion_tokens for usage in usages if usage is not None and usage.completion_tokens is not None]
    return sum(known) if known else None
