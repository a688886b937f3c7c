"""Compare predictions with what the agent did: accuracy figures and their intervals."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from foretrace.actions.same_action import Action, make_call_key
from foretrace.core.predictions import PredictedCall, Prediction, read_guess
from foretrace.core.references import ScoreRow
from foretrace.evaluation.bootstrap import Resamples, find_interval
from foretrace.evaluation.dataset_rows import ACTIONS, GoldStep
from foretrace.evaluation.score_report import AheadRow, ArgumentRow, Part, Share

ASPECTS = ("type_accuracy", "tool", "exact_call", "normalised_call")
"""What can be right about a guess: the action type; its tools, in order; its calls regardless of type."""
TOPS = (3, 5)
"""The k of the top-k figures, besides 1."""
MAX_AHEAD = 5
"""Most consecutive steps that are measured together."""
Guesses = Mapping[tuple[str, int], Sequence[Prediction]]
"""Guesses at each (key, step), by rank."""


class JudgedSteps(NamedTuple):
    """Steps with the correctness of the guesses at them, as arrays of (steps,)."""

    steps: Sequence[GoldStep]
    first_right: dict[str, Any]
    """Rank of the first right guess, by aspect; 0 if none is right."""
    action: Any
    """Index in `ACTIONS` of the action guessed first; -1 if there is none."""
    right: Any
    """Whether the first guess is entirely right: the type and, in a dataset of calls, the calls."""
    confidence: Any
    """Confidence of the first guess; NaN if not given."""
    score: Any
    """A verifier's score of the first guess; NaN if not given."""

    def is_right(self, aspect: str, k: int = 1) -> Any:
        """Whether one of the first `k` guesses is right."""
        rank = self.first_right[aspect]
        return (rank > 0) & (rank <= k)

    def choose(self, chosen: Any) -> JudgedSteps:
        """The steps selected by a mask of (steps,)."""
        kept = [step for step, wanted in zip(self.steps, chosen, strict=True) if wanted]
        ranks = {aspect: rank[chosen] for aspect, rank in self.first_right.items()}
        return JudgedSteps(kept, ranks, *(values[chosen] for values in self[2:]))


def judge_guesses(steps: Sequence[GoldStep], guesses: Guesses, target: str) -> JudgedSteps:
    """Compare each step with the guesses at it. A step is wrong if no guess names an action.

    Args:
        steps: What the agent did.
        guesses: Guesses at these steps; those at other steps are ignored.
        target: `type`, or `call` if calls are predicted too.
    """
    first = {aspect: np.zeros(len(steps), np.int64) for aspect in ASPECTS}
    action = np.full(len(steps), -1)
    right = np.zeros(len(steps), bool)
    confidence, score = np.full(len(steps), np.nan), np.full(len(steps), np.nan)
    for at, step in enumerate(steps):
        gold_keys = _make_keys(step.action, step.calls)
        for guess in guesses.get((step.key, step.step), ()):
            if not has_action(guess):
                continue
            assert guess.action is not None
            guessed = _make_keys(guess.action, guess.calls)
            for aspect in ASPECTS:
                if guessed[aspect] == gold_keys[aspect] and not first[aspect][at]:
                    first[aspect][at] = guess.rank
            if guess.rank == 1:
                action[at] = ACTIONS.index(guess.action)
                right[at] = is_right(step, guess, target)
        if chosen := [guess for guess in guesses.get((step.key, step.step), ()) if guess.rank == 1]:
            confidence[at], score[at] = np.array([chosen[0].confidence, chosen[0].score], float)  # None is NaN
    return JudgedSteps(steps, first, action, right, confidence, score)


def is_right(step: GoldStep, guess: Prediction, target: str) -> bool:
    """Whether a guess is entirely right: the action type, and in a dataset of calls also the exact calls."""
    if guess.action != step.action or target == "type":
        return guess.action == step.action
    calls, guessed = (
        [make_call_key(Action(type=None, tool=call.tool, arguments=call.arguments), "exact") for call in of.calls]
        for of in (step, guess)
    )
    return calls == guessed


def judge_completion(completion: str, target: str) -> dict[str, float]:
    """For each aspect, 1 if a model's text agrees with the `completion` of an eval row, else 0; NaN for aspects of
    calls if the row has no call. The means of these values are the figures of `score`."""
    (action, calls), (gold, gold_calls) = read_guess({}, completion), read_guess({}, target)
    guessed, right = _make_keys(action or "", calls), _make_keys(gold or "", gold_calls)
    return {
        aspect: float(action in ACTIONS and guessed[aspect] == right[aspect])
        if gold_calls or aspect == "type_accuracy"
        else float("nan")
        for aspect in ASPECTS
    }


def has_action(guess: Prediction) -> bool:
    """Whether a guess names one of the nine actions."""
    return guess.action in ACTIONS


def is_eligible(step: GoldStep, safe: Collection[str]) -> bool:
    """Whether running a step's calls early is safe and useful: it calls a tool, its effect is in `safe`, and another
    step follows its result."""
    return bool(step.tool) and step.effect in safe and len(step.next_actions) != 1


def list_arguments(step: GoldStep, guess: Prediction | None) -> Iterator[tuple[str, bool]]:
    """The name of each argument of a step's calls, and whether the guess has it: in a call at the same position, of the
    same tool, and equal as JSON."""
    guessed = guess.calls if guess is not None and has_action(guess) else ()
    for place, call in enumerate(step.calls):
        other = guessed[place] if place < len(guessed) and guessed[place].tool == call.tool else None
        found = {} if other is None else _read_arguments(other)
        for name, value in _read_arguments(call).items():
            yield name, name in found and found[name] == value


def _read_arguments(call: PredictedCall) -> dict[str, str]:
    """The value of each argument as JSON text."""
    try:
        value = json.loads(call.arguments)
        return {name: json.dumps(each, sort_keys=True) for name, each in value.items()}
    except (ValueError, RecursionError, AttributeError):
        return {}


def _make_keys(action: str, calls: Sequence[PredictedCall]) -> dict[str, Any]:
    """Keys by aspect: equal keys mean that the aspect is right."""
    own = [Action(type=None, tool=call.tool, arguments=call.arguments) for call in calls]
    return {
        "type_accuracy": action,
        "tool": [call.tool for call in calls],
        "exact_call": [make_call_key(call, "exact") for call in own],
        "normalised_call": [(call.tool, make_call_key(call, "normalised")) for call in own],
    }


class Measured(NamedTuple):
    """One figure for the rows and for each draw of them, (1 + draws,), and the number of rows it covers."""

    values: Any
    n: int


def measure_figures(
    judged: JudgedSteps, resamples: Resamples, guesses: int, *, classes: bool = True
) -> dict[str, Measured]:
    """All figures of the steps, by name; figures about calls cover only the steps with a call.

    Args:
        judged: The steps.
        resamples: Draws of these steps.
        guesses: Most guesses per step; top-k is measured if this exceeds the previous k.
        classes: Whether the F1 of classes is meaningful; it is not if the steps were chosen by what was done there.
    """
    gold = np.array([ACTIONS.index(step.action) for step in judged.steps])
    called = np.array([bool(step.calls) for step in judged.steps])
    among = dict.fromkeys(ASPECTS, called) | {"type_accuracy": np.ones(len(gold), bool)}

    def measure(aspect: str, k: int) -> Measured:
        hits = judged.is_right(aspect, k)
        return Measured(resamples.measure_share(hits, among[aspect]), int(among[aspect].sum()))

    present = [number for number in range(len(ACTIONS)) if classes and (gold == number).any()]
    f1 = {number: resamples.measure_f1(gold == number, judged.action == number) for number in present}
    aspects = [aspect for aspect in ASPECTS if among[aspect].any()]
    figures = {"type_accuracy": measure("type_accuracy", 1)}
    if f1:
        figures["macro_f1"] = Measured(np.nanmean(np.stack([*f1.values()], axis=1), axis=1), len(gold))
    figures |= {aspect: measure(aspect, 1) for aspect in aspects}
    counts = Counter(gold.tolist())
    figures |= {f"f1/{ACTIONS[number]}": Measured(values, counts[number]) for number, values in f1.items()}
    for fewer, k in zip((1, *TOPS), TOPS, strict=False):
        if guesses > fewer:
            figures |= {f"{aspect}@{k}": measure(aspect, k) for aspect in aspects}
    return figures


def make_score_rows(slice_name: str, figures: dict[str, Measured]) -> list[ScoreRow]:
    """The figures with their intervals, rounded to four digits."""
    return [ScoreRow(slice_name, metric, *round_estimate(values), n) for metric, (values, n) in figures.items()]


def round_estimate(values: Any) -> tuple[float, float, float]:
    """A measured value and its interval, rounded to four digits."""
    low, high = find_interval(values) or (values[0], values[0])
    return round(float(values[0]), 4), round(float(low), 4), round(float(high), 4)


def make_share(hits: Any, among: Any, resamples: Resamples) -> Share:
    """The share of hits among the selected rows, with its interval."""
    n = int(np.count_nonzero(among))
    return make_share_of(resamples.measure_share(hits, among), n) if n else Share(value=None, low=None, high=None, n=0)


def make_share_of(values: Any, n: int) -> Share:
    """A measured share, with its interval."""
    if np.isnan(values[0]) or find_interval(values) is None:
        return Share(value=None, low=None, high=None, n=n)
    value, low, high = round_estimate(values)
    return Share(value=value, low=low, high=high, n=n)


def measure_parts(judged: JudgedSteps, resamples: Resamples, name_part: Callable[[GoldStep], str]) -> list[Part]:
    """The figures of each named part of the steps, the largest first; steps without a name are left out."""
    names = np.array([name_part(step) for step in judged.steps])
    called = np.array([bool(step.calls) for step in judged.steps])
    parts: list[Part] = []
    for name, n in sorted(Counter(names.tolist()).items(), key=lambda item: (-item[1], item[0])):
        own = names == name
        if not name:
            continue
        parts.append(
            Part(
                name=name,
                n=n,
                type_accuracy=make_share(judged.is_right("type_accuracy"), own, resamples),
                tool=make_share(judged.is_right("tool"), own & called, resamples),
                exact_call=make_share(judged.is_right("exact_call"), own & called, resamples),
            )
        )
    return parts


def measure_arguments(steps: Sequence[GoldStep], guesses: Guesses, seed: int) -> list[ArgumentRow]:
    """Accuracy of the first guesses' arguments: all together, then by name, the most frequent first."""
    found: list[tuple[str, str, bool]] = []
    for step in steps:
        first = next((guess for guess in guesses.get((step.key, step.step), ()) if guess.rank == 1), None)
        found += [(step.group, name, right) for name, right in list_arguments(step, first)]
    if not found:
        return []
    names = np.array([name for _, name, _ in found])
    right = np.array([is_right for _, _, is_right in found])
    resamples = Resamples([group for group, _, _ in found], seed)
    by_count = sorted(Counter(names.tolist()).items(), key=lambda item: (-item[1], item[0]))
    rows = [ArgumentRow(name="", right=make_share(right, np.ones(len(found), bool), resamples))]
    return rows + [ArgumentRow(name=name, right=make_share(right, names == name, resamples)) for name, _ in by_count]


def measure_ahead(judged: JudgedSteps, resamples: Resamples) -> list[AheadRow]:
    """For 1, 2, ... consecutive steps of a trace, the share of such runs whose steps are all predicted correctly.

    Two rows of a trace are consecutive if no other row is between them and their `next_actions` agree.
    """
    order = sorted(range(len(judged.steps)), key=lambda at: (judged.steps[at].key, judged.steps[at].step))
    follower = np.full(len(order), -1)
    for at, after in itertools.pairwise(order):
        if _follows(judged.steps[at], judged.steps[after]):
            follower[at] = after
    rows: list[AheadRow] = []
    run_end = np.arange(len(order))
    type_right, right = judged.is_right("type_accuracy"), judged.right.copy()
    exists = np.ones(len(order), bool)
    for length in range(1, MAX_AHEAD + 1):
        if length > 1:
            run_end = np.where(exists, follower[run_end], -1)
            exists = run_end >= 0
            type_right = type_right & judged.is_right("type_accuracy")[run_end]
            right = right & judged.right[run_end]
        if not exists.any():
            break
        shares = (make_share(hits, exists, resamples) for hits in (type_right, right))
        rows.append(AheadRow(steps=length, type_accuracy=next(shares), right=next(shares)))
    return rows


def _follows(step: GoldStep, after: GoldStep) -> bool:
    """Whether `after` may be the step right after `step`: their next actions agree."""
    expected, given = step.next_actions[1:], after.next_actions
    if step.key != after.key or not expected:
        return False
    # A row with fewer next actions than the most is near the end of its trace: then the number must agree too.
    is_near_end = len(step.next_actions) < MAX_AHEAD
    return given[: len(expected)] == expected and (not is_near_end or len(given) == len(expected))
