"""`markov:N`: predict the next action from the last N (1 to 3) actions and tools."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from foretrace.core.errors import UsageError
from foretrace.core.message_columns import ChatText
from foretrace.evaluation.dataset_rows import DatasetRow
from foretrace.evaluation.predictors.base import ActionAndTool, Guess, list_tools, name_target, name_turn, rank_actions
from foretrace.evaluation.prompt_reading import read_prompt

_Context = tuple[ActionAndTool, ...]
_START: ActionAndTool = ("start", "")
_PRIOR_WEIGHT = 2.0
"""Number of observations that the shorter context's distribution counts as when smoothing a longer one."""
ORDERS = ("1", "2", "3")


class Markov:
    """A Markov chain over (action, tool). Each order is smoothed with the one below, so for an unseen context a shorter
    one is used.

    Args:
        order: Number of past turns used: `1`, `2` or `3`.

    Raises:
        UsageError: the order is not one of these.
    """

    target = "type"

    def __init__(self, order: str = "2") -> None:
        if order not in ORDERS:
            raise UsageError(
                f"'markov:{order}' is not a predictor: choose one of {', '.join(f'markov:{n}' for n in ORDERS)}"
            )
        self._order = int(order)
        self._tools = frozenset[str]()
        self._counts: dict[_Context, Counter[ActionAndTool]] = {}

    def fit(self, rows: Sequence[DatasetRow]) -> None:
        self._tools = frozenset(list_tools(rows))
        self._counts = {}
        for row in rows:
            context, target = self._find_context(row.prompt), name_target(row)
            for length in range(self._order + 1):
                self._counts.setdefault(context[len(context) - length :], Counter())[target] += 1

    def predict(self, prompt: Sequence[ChatText], k: int) -> list[Guess]:
        return rank_actions(self.measure_shares(self._find_context(prompt)), k)

    def _find_context(self, prompt: Sequence[ChatText]) -> _Context:
        if not self._order:
            return ()
        names = [_START] * self._order + [name_turn(turn) for turn in read_prompt(prompt, self._tools).turns]
        return tuple(names[len(names) - self._order :])

    def measure_shares(self, context: _Context) -> dict[ActionAndTool, float]:
        """Probability of each known action and tool after a context of `order` turns."""
        total = self._counts[()].total()
        shares = {name: count / total for name, count in self._counts[()].items()}
        for length in range(1, self._order + 1):
            counts = self._counts.get(context[len(context) - length :])
            if counts is None:
                break
            weight = counts.total() + _PRIOR_WEIGHT
            shares = {name: (counts[name] + _PRIOR_WEIGHT * share) / weight for name, share in shares.items()}
        return shares


PLUGIN = Markov
