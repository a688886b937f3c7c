"""Plan a replay from traces and predictions: the steps that have both, and what each guess would launch.

A prediction belongs to the step whose assistant message its `key` and `step` identify. Its calls match the step's if
they are the same action at the level `normalized` (`actions.same_action`): paths, numbers as text, and spaces and
quotes in commands may be written differently. The order of calls does not matter, since only reads are run early.
"""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from foretrace.actions.call_names import name_call
from foretrace.actions.label_steps import classify_calls, label_trace
from foretrace.actions.same_action import Action, make_call_key
from foretrace.actions.taxonomy import Effect, StepLabel
from foretrace.core.predictions import Prediction
from foretrace.core.trace import Message, ToolCall, Trace
from foretrace.evaluation.step_times import (
    AssumedTimes,
    StepTimes,
    fill_times,
    find_step_effect,
    split_runs,
    time_steps,
)


class PlannedCall(NamedTuple):
    """One call of a guess."""

    call: ToolCall
    key: tuple[int, tuple[str, ...]]
    """Equal for calls that are the same action, guessed for the same message."""
    covers: tuple[int, ...]
    """Positions of the step's calls that it matches."""
    seconds: float | None
    written_s: float
    """Seconds of the reply after which it can be guessed."""


class PlannedGuess(NamedTuple):
    """One guess at the calls of a message."""

    prediction: Prediction
    calls: tuple[PlannedCall, ...]
    effect: Effect
    """Effect of all its calls together, as in labels."""
    right: bool


class PlannedStep(NamedTuple):
    """One step with known times, and its guesses."""

    task: str
    model_s: float
    tool_s: float
    names: tuple[str, ...]
    call_s: tuple[float | None, ...]
    """Seconds of each of its calls on its own; None if unknown."""
    effect: Effect
    state_version: int
    guesses: tuple[PlannedGuess, ...]
    foreseen: bool
    """Whether the first guess at each of its messages is right."""
    proposer_s: float | None
    """Seconds until the guesses were ready; None if no prediction says."""


class ToolMedians:
    """Estimates durations of calls never made: the median of the same name, the same tool, or all calls."""

    def __init__(self) -> None:
        self._seconds: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
        self._medians: dict[tuple[str, str], float] = {}

    def add(self, call: ToolCall, seconds: float) -> None:
        for at in _list_places(call):
            self._seconds[at].append(seconds)

    def estimate(self, call: ToolCall) -> tuple[float, str]:
        """Seconds, and of which calls they are the median: `name`, `tool` or `all`; 0 and `none` if no time is
        known."""
        for at in _list_places(call):
            if at in self._seconds:
                if at not in self._medians:
                    self._medians[at] = statistics.median(self._seconds[at])
                return self._medians[at], at[0]
        return 0.0, "none"


def _list_places(call: ToolCall) -> tuple[tuple[str, str], ...]:
    return ("name", name_call(call)), ("tool", call.name), ("all", "")


class ReplayPlan:
    """Takes traces one by one, and keeps what a replay needs.

    Args:
        predictions: By key and step, the best first.
        top: Most guesses used for each message.
        assumed: Times for steps without known times.
    """

    def __init__(
        self,
        predictions: Mapping[tuple[str, int], Sequence[Prediction]],
        top: int,
        assumed: AssumedTimes | None = None,
    ) -> None:
        self._predictions, self._top, self._assumed = predictions, top, assumed
        self.runs: list[list[PlannedStep]] = []
        """Consecutive steps of one trace, without a person or a step of unknown time between them."""
        self.attempts: Counter[str] = Counter()
        self.medians = ToolMedians()
        self.steps = self.known_steps = self.steps_without_prediction = self.met_predictions = self.assumed_steps = 0
        self.unknown: Counter[str] = Counter()

    def add(self, trace: Trace) -> None:
        """Add a trace."""
        steps = time_steps(trace)
        for step in steps:
            self._note_tool_times(trace, step)
        predicted = [any((trace.key, index) in self._predictions for index in step.indexes) for step in steps]
        if not any(predicted):
            return
        labels = {label.index: label for label in label_trace(trace)}
        if self._assumed is not None:
            steps, assumed = fill_times(steps, labels, self._assumed)
            self.assumed_steps += assumed
            for step in steps if assumed else ():
                self._note_tool_times(trace, step)
        self.runs += [[self._plan_step(trace, step, labels) for step in run] for run in split_runs(steps)]
        self.attempts[trace.task.id] += 1
        for step, has_prediction in zip(steps, predicted, strict=True):
            self.met_predictions += sum(len(self._predictions.get((trace.key, index), ())) for index in step.indexes)
            if not has_prediction:
                self.steps_without_prediction += 1
                continue
            self.steps += 1
            self.known_steps += step.unknown is None
            if step.unknown is not None:
                self.unknown[step.unknown] += 1

    def _note_tool_times(self, trace: Trace, step: StepTimes) -> None:
        if step.unknown is None:
            calls = (call for index in step.indexes for call in trace.messages[index].tool_calls)
            for call, seconds in zip(calls, _list_call_times(step), strict=True):
                if seconds is not None:
                    self.medians.add(call, seconds)

    def _plan_step(self, trace: Trace, step: StepTimes, labels: Mapping[int, StepLabel]) -> PlannedStep:
        call_s = _list_call_times(step)
        lengths = [_count_characters(trace.messages[index]) for index in step.indexes]
        guesses: list[PlannedGuess] = []
        seconds: list[float] = []
        foreseen, first_call = True, 0
        for number, index in enumerate(step.indexes):
            written_s = (step.model_s or 0.0) * (sum(lengths[:number]) / (sum(lengths) or 1))
            own = dict(enumerate(map(find_call_key, trace.messages[index].tool_calls), first_call))
            rows = self._predictions.get((trace.key, index), ())[: self._top]
            made = [_plan_guess(trace, index, row, own, step, call_s, written_s) for row in rows]
            foreseen = foreseen and (made[0].right if made else not own)
            guesses += made
            seconds += [row.seconds for row in rows if row.seconds is not None]
            first_call += len(own)
        guesses.sort(key=lambda guess: guess.prediction.rank)
        return PlannedStep(
            task=trace.task.id,
            model_s=step.model_s or 0.0,
            tool_s=step.tool_s or 0.0,
            names=tuple(call.name for call in step.calls),
            call_s=call_s,
            effect=find_step_effect(step, labels),
            state_version=labels[step.indexes[0]].state_version,
            guesses=tuple(guesses),
            foreseen=foreseen,
            proposer_s=max(seconds, default=None),
        )


def _list_call_times(step: StepTimes) -> tuple[float | None, ...]:
    return (step.tool_s,) if len(step.calls) == 1 else tuple(call.tool_s for call in step.calls)


def _count_characters(message: Message) -> int:
    calls = sum(len(call.name) + len(call.arguments) for call in message.tool_calls if call.span is None)
    return len(message.reasoning or "") + len(message.content) + calls


def _plan_guess(
    trace: Trace,
    index: int,
    row: Prediction,
    own: Mapping[int, tuple[str, ...]],
    step: StepTimes,
    call_s: Sequence[float | None],
    written_s: float,
) -> PlannedGuess:
    """What one guess at message `index` would launch; `own` has the keys of the message's calls, by position in the
    step."""
    calls = [ToolCall(name=guess.tool, arguments=guess.arguments) for guess in row.calls]
    planned: list[PlannedCall] = []
    for call in calls:
        key = find_call_key(call)
        covers = tuple(position for position, own_key in own.items() if own_key == key)
        known = [seconds for position in covers if (seconds := call_s[position]) is not None]
        seconds = None if not covers else max(known) if len(known) == len(covers) else step.tool_s
        planned.append(PlannedCall(call, (index, key), covers, seconds, written_s))
    facts = classify_calls(trace, calls)
    return PlannedGuess(
        prediction=row,
        calls=tuple(planned),
        effect=Effect.PURE_READ if facts is None else facts.effect,
        right=Counter(each.key[1] for each in planned) == Counter(own.values()) and row.action is not None,
    )


def find_call_key(call: ToolCall) -> tuple[str, ...]:
    return make_call_key(Action(type=None, tool=call.name, arguments=call.arguments), "normalized")
