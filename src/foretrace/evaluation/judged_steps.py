"""Predictions held against what the agent did: at which rank the first right guess stands, by what is asked of it."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from foretrace.actions.same_action import Action, make_call_key
from foretrace.core.predictions import PredictedCall, Prediction
from foretrace.evaluation.dataset_rows import ACTIONS, GoldStep

ASPECTS = ("type_accuracy", "tool", "exact_call", "normalised_call")
"""What can be right of a guess: the action type; its tools, in order; its calls, the type aside."""
Guesses = Mapping[tuple[str, int], Sequence[Prediction]]
"""Of each (key, step), by rank."""


class JudgedSteps(NamedTuple):
    """Steps, and how right the guesses at them are; arrays of (steps,)."""

    steps: Sequence[GoldStep]
    first_right: dict[str, Any]
    """By aspect, the rank of the first guess that is right; 0 where none is."""
    action: Any
    """Number in `ACTIONS` of the action guessed first; -1 where there is none."""
    right: Any
    """Whether all that the first guess says is right: the type and, in a dataset of calls, the calls."""
    confidence: Any
    """Of the first guess; NaN where it is not given."""
    score: Any
    """A verifier's, of the first guess; NaN where it is not given."""

    def is_right(self, aspect: str, k: int = 1) -> Any:
        """Whether one of the first `k` guesses is right."""
        rank = self.first_right[aspect]
        return (rank > 0) & (rank <= k)

    def choose(self, chosen: Any) -> JudgedSteps:
        """The steps that a mask of (steps,) chooses."""
        kept = [step for step, wanted in zip(self.steps, chosen, strict=True) if wanted]
        ranks = {aspect: rank[chosen] for aspect, rank in self.first_right.items()}
        return JudgedSteps(kept, ranks, *(values[chosen] for values in self[2:]))


def judge_guesses(steps: Sequence[GoldStep], guesses: Guesses, target: str) -> JudgedSteps:
    """Hold the guesses at each step against it. A step without one, or whose guess names no action, is wrong.

    Args:
        steps: What was done.
        guesses: At these steps; others are not looked at.
        target: `type`, or `call` where calls are predicted too.
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
            found = {aspect: guessed[aspect] == gold_keys[aspect] for aspect in ASPECTS}
            for aspect, is_same in found.items():
                if is_same and not first[aspect][at]:
                    first[aspect][at] = guess.rank
            if guess.rank == 1:
                action[at] = ACTIONS.index(guess.action)
                right[at] = is_right(step, guess, target)
        if chosen := [guess for guess in guesses.get((step.key, step.step), ()) if guess.rank == 1]:
            confidence[at] = _or_nan(chosen[0].confidence)
            score[at] = _or_nan(chosen[0].score)
    return JudgedSteps(steps, first, action, right, confidence, score)


def is_right(step: GoldStep, guess: Prediction, target: str) -> bool:
    """Whether all that a guess says is right: the action type, and in a dataset of calls the calls too, exactly."""
    if guess.action != step.action or target == "type":
        return guess.action == step.action
    calls, guessed = (
        [make_call_key(Action(type=None, tool=call.tool, arguments=call.arguments), "exact") for call in of.calls]
        for of in (step, guess)
    )
    return calls == guessed


def has_action(guess: Prediction) -> bool:
    """Whether a guess names one of the nine actions."""
    return guess.action in ACTIONS


def is_eligible(step: GoldStep, safe: Collection[str]) -> bool:
    """Whether running a step's calls early is safe and of use: it calls a tool, its effect is one of those that are
    `safe`, and another step follows its answer."""
    return bool(step.tool) and step.effect in safe and len(step.next_actions) != 1


def list_arguments(step: GoldStep, guess: Prediction | None) -> Iterator[tuple[str, bool]]:
    """Each argument of a step's calls by name, and whether the guess has it: at the same place, of the same tool, and
    equal as JSON."""
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
    """By aspect, what is equal for what is the same in it."""
    own = [Action(type=None, tool=call.tool, arguments=call.arguments) for call in calls]
    return {
        "type_accuracy": action,
        "tool": [call.tool for call in calls],
        "exact_call": [make_call_key(call, "exact") for call in own],
        "normalised_call": [(call.tool, make_call_key(call, "normalised")) for call in own],
    }


def _or_nan(value: float | None) -> float:
    return float("nan") if value is None else value
