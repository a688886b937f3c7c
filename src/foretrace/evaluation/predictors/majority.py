"""`majority`: always the most frequent action types, each with its most frequent tool."""

from __future__ import annotations

from foretrace.evaluation.predictors.markov import Markov


class Majority(Markov):
    """A Markov chain of order 0, which ignores the prompt. The confidence of a type is its share of the train rows."""

    def __init__(self) -> None:
        super().__init__()
        self._order = 0


PLUGIN = Majority
