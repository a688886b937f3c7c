"""The contract of a predictor: learn from rows, then guess the next action of a prompt.

To add one, write a module in this folder whose `PLUGIN` makes an object with the members of `Predictor`, and list it in
`BUILT_IN` of `core/plugins.py`. Your own predictors are named `module:Class`. See docs/speculation.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from foretrace.core.message_columns import ChatText
from foretrace.evaluation.dataset_rows import DatasetRow
from foretrace.evaluation.prompt_reading import PastTurn

ActionAndTool = tuple[str, str]
"""Action type, and the name of the tool (empty if no tool is called)."""


class Guess(NamedTuple):
    """One guess at the next action."""

    action: str
    """One of the nine action types."""
    tool: str | None
    """None or empty if no tool is called."""
    arguments: Mapping[str, Any] | str
    """An object, or its JSON text."""
    confidence: float | None
    """Probability that the guess is right, in [0, 1]; None if unknown."""


class Predictor(Protocol):
    """Guesses the next action. The result depends only on the rows and the prompt.

    A predictor that guesses types rather than calls, with confidences of the type, has `target = "type"`.
    """

    def fit(self, rows: Sequence[DatasetRow]) -> None:
        """Learn from rows, in their order; called once, before the first `predict`."""
        ...

    def predict(self, prompt: Sequence[ChatText], k: int) -> Sequence[Guess | tuple[Any, ...]]:
        """At most `k` different guesses, the most likely first; there may be fewer, or none."""
        ...


def list_tools(rows: Sequence[DatasetRow]) -> list[str]:
    return sorted({call.tool for row in rows for call in row.calls})


def name_target(row: DatasetRow) -> ActionAndTool:
    return row.action, row.calls[0].tool if row.calls else ""


def name_turn(turn: PastTurn) -> ActionAndTool:
    action = turn.label.action
    return "" if action is None else str(action), turn.calls[0].name if turn.calls else ""


def rank_actions(shares: Mapping[ActionAndTool, float], k: int) -> list[Guess]:
    """One guess for each of the `k` most likely action types, with its most likely tool and no arguments.

    Args:
        shares: Probability of each action and tool. The confidence of a guess is the sum over its action's tools.
    """
    sums: dict[str, float] = {}
    best: dict[str, tuple[float, str]] = {}
    for (action, tool), share in sorted(shares.items()):
        sums[action] = sums.get(action, 0.0) + share
        if action not in best or share > best[action][0]:
            best[action] = share, tool
    ranked = sorted(sums, key=lambda action: (-sums[action], action))[:k]
    return [Guess(action, best[action][1] or None, {}, min(1.0, sums[action])) for action in ranked]
