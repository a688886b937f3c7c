"""`majority`: always the most frequent action types, each with its most frequent tool."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from foretrace.core.message_columns import ChatText
from foretrace.evaluation.dataset_rows import DatasetRow
from foretrace.evaluation.predictors.base import ActionAndTool, Guess, name_target, rank_actions


class Majority:
    """Ignores the prompt. The confidence of a type is its share of the train rows."""

    target = "type"

    def __init__(self) -> None:
        self._shares: dict[ActionAndTool, float] = {}

    def fit(self, rows: Sequence[DatasetRow]) -> None:
        """Count actions and tools."""
        counts = Counter(map(name_target, rows))
        self._shares = {name: count / len(rows) for name, count in counts.items()}

    def predict(self, prompt: Sequence[ChatText], k: int) -> list[Guess]:
        """The same for every prompt."""
        return rank_actions(self._shares, k)


PLUGIN = Majority
