"""Compare predictions with what the agent did: accuracy figures and their intervals.

A guess is *right* if it is right as a whole: its action type, and in a dataset of calls also its calls.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from foretrace.actions.same_action import Action, make_call_key
from foretrace.core.predictions import PredictedCall, Prediction, read_guess
from foretrace.evaluation.bootstrap import Resamples, find_interval
from foretrace.evaluation.dataset_rows import ACTIONS, GoldStep
from foretrace.evaluation.score_report import Part, Share

OF_CALLS = ("tool", "exact_call", "normalized_call")
"""Aspects of calls alone, regardless of the type: their tools, in order; they themselves. Measured over the steps with
a call."""
ASPECTS = ("type_accuracy", *OF_CALLS, "right")
"""What can be right about a guess."""
TOPS = (3, 5)
"""The k of the top-k figures, besides 1."""
Guesses = Mapping[tuple[str, int], Sequence[Prediction]]
"""Guesses at each (key, step), by rank."""


class JudgedSteps(NamedTuple):
    """Steps with the correctness of the guesses at them, as arrays of (steps,)."""

    steps: Sequence[GoldStep]
    first_right: dict[str, Any]
    """Rank of the first guess that is right in an aspect; 0 if none is."""
    action: Any
    """Index in `ACTIONS` of the action guessed first; -1 if there is none."""
    confidence: Any
    """Confidence of the first guess; NaN if not given."""
    score: Any
    """A verifier's score of the first guess; NaN if not given."""

    def is_right(self, aspect: str = "right", k: int = 1) -> Any:
        """Whether one of the first `k` guesses is right."""
        rank = self.first_right[aspect]
        return (rank > 0) & (rank <= k)

    def choose(self, chosen: Any) -> JudgedSteps:
        """The steps selected by a mask of (steps,)."""
        kept = [step for step, wanted in zip(self.steps, chosen, strict=True) if wanted]
        ranks = {aspect: rank[chosen] for aspect, rank in self.first_right.items()}
        return JudgedSteps(kept, ranks, *(values[chosen] for values in self[2:]))


def judge_guesses(steps: Sequence[GoldStep], guesses: Guesses, target: str) -> JudgedSteps:
    """Compare each step with the guesses at it; a step is wrong if no guess names an action. `target` is `type`, or
    `call` if calls are predicted too."""
    first = {aspect: np.zeros(len(steps), np.int64) for aspect in ASPECTS}
    action = np.full(len(steps), -1)
    confidence, score = np.full(len(steps), np.nan), np.full(len(steps), np.nan)
    for at, step in enumerate(steps):
        gold_keys = _make_keys(step.action, step.calls, target)
        for guess in guesses.get((step.key, step.step), ()):
            if guess.rank == 1:
                confidence[at], score[at] = np.array([guess.confidence, guess.score], float)  # None is NaN
            if guess.action not in ACTIONS:
                continue
            guessed = _make_keys(guess.action, guess.calls, target)
            for aspect in ASPECTS:
                if guessed[aspect] == gold_keys[aspect] and not first[aspect][at]:
                    first[aspect][at] = guess.rank
            if guess.rank == 1:
                action[at] = ACTIONS.index(guess.action)
    return JudgedSteps(steps, first, action, confidence, score)


def is_right(step: GoldStep, guess: Prediction, target: str) -> bool:
    gold, guessed = (_make_keys(str(each.action), each.calls, target)["right"] for each in (step, guess))
    return gold == guessed


def judge_completion(completion: str, target: str) -> dict[str, float]:
    """For each aspect, 1 if a model's text agrees with the `completion` of an eval row, else 0; NaN for aspects of
    calls if the row has no call. The means of these values are the figures of `score`."""
    (action, calls), (gold, gold_calls) = read_guess({}, completion), read_guess({}, target)
    guessed, right = (_make_keys(str(each), of, "call") for each, of in ((action, calls), (gold, gold_calls)))
    return {
        aspect: float("nan")
        if aspect in OF_CALLS and not gold_calls
        else float(action in ACTIONS and guessed[aspect] == right[aspect])
        for aspect in ASPECTS
    }


def _make_keys(action: str, calls: Sequence[PredictedCall], target: str) -> dict[str, Any]:
    own = [Action(type=None, tool=call.tool, arguments=call.arguments) for call in calls]
    exact = [make_call_key(call, "exact") for call in own]
    return {
        "type_accuracy": action,
        "tool": [call.tool for call in calls],
        "exact_call": exact,
        "normalized_call": [(call.tool, make_call_key(call, "normalized")) for call in own],
        "right": (action, exact if target == "call" else None),
    }


def is_eligible(step: GoldStep, safe: Collection[str]) -> bool:
    """Whether running a step's calls early is safe and useful: it calls a tool, its effect is in `safe`, and another
    step follows its result."""
    return bool(step.tool) and step.effect in safe and len(step.next_actions) != 1


class Measured(NamedTuple):
    """One figure for the rows and for each draw of them, (1 + draws,), and the number of rows it covers."""

    values: Any
    n: int


def measure_figures(
    judged: JudgedSteps, resamples: Resamples, guesses: int, *, classes: bool = True
) -> dict[str, Measured]:
    """All figures of the steps, by name.

    Args:
        guesses: Most guesses per step; top-k is measured if this exceeds the previous k.
        classes: Whether the F1 of classes is meaningful; it is not if the steps were chosen by what was done there.
    """
    gold = np.array([ACTIONS.index(step.action) for step in judged.steps])
    called = np.array([bool(step.calls) for step in judged.steps])
    among = {aspect: called if aspect in OF_CALLS else np.ones(len(gold), bool) for aspect in ASPECTS}
    aspects = [aspect for aspect in ASPECTS if among[aspect].any()]

    def measure(k: int) -> dict[str, Measured]:
        return {
            aspect if k == 1 else f"{aspect}@{k}": Measured(
                resamples.measure_share(judged.is_right(aspect, k), among[aspect]), int(among[aspect].sum())
            )
            for aspect in aspects
        }

    figures = measure(1)
    counts = Counter(gold.tolist()) if classes else Counter[int]()
    f1 = {number: resamples.measure_f1(gold == number, judged.action == number) for number in sorted(counts)}
    if f1:
        figures["macro_f1"] = Measured(np.nanmean(np.stack([*f1.values()], axis=1), axis=1), len(gold))
    figures |= {f"f1/{ACTIONS[number]}": Measured(values, counts[number]) for number, values in f1.items()}
    for fewer, k in zip((1, *TOPS), TOPS, strict=False):
        if guesses > fewer:
            figures |= measure(k)
    return figures


def round_estimate(values: Any) -> tuple[float, float, float]:
    low, high = find_interval(values) or (values[0], values[0])
    return round(float(values[0]), 4), round(float(low), 4), round(float(high), 4)


def make_share(hits: Any, among: Any, resamples: Resamples) -> Share:
    n = int(np.count_nonzero(among))
    return make_share_of(resamples.measure_share(hits, among), n) if n else Share(value=None, low=None, high=None, n=0)


def make_share_of(values: Any, n: int) -> Share:
    if np.isnan(values[0]) or find_interval(values) is None:
        return Share(value=None, low=None, high=None, n=n)
    value, low, high = round_estimate(values)
    return Share(value=value, low=low, high=high, n=n)


def measure_parts(judged: JudgedSteps, resamples: Resamples, name_part: Callable[[GoldStep], str]) -> list[Part]:
    """The figures of each named part of the steps, the largest first; steps without a name are left out."""
    names = np.array([name_part(step) for step in judged.steps])
    called = np.array([bool(step.calls) for step in judged.steps])
    return [
        Part(
            name=name,
            n=n,
            type_accuracy=make_share(judged.is_right("type_accuracy"), names == name, resamples),
            tool=make_share(judged.is_right("tool"), (names == name) & called, resamples),
            exact_call=make_share(judged.is_right("exact_call"), (names == name) & called, resamples),
        )
        for name, n in sorted(Counter(names.tolist()).items(), key=lambda item: (-item[1], item[0]))
        if name
    ]
