"""Replay: what a predictor would have saved on the recorded times of traces.

`Replay` matches predictions with steps, determines what each guess would launch, and lets `simulator` simulate it: for
the given threshold, for a range of others, and for an oracle that guesses the true calls.

A prediction belongs to the step whose assistant message its `key` and `step` identify. Its calls match the step's if
they are the same action at the level `normalized` (`actions.same_action`): paths, numbers as text, and spaces and
quotes in commands may be written differently. The order of calls does not matter, since only reads are run early.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from foretrace.actions.call_names import name_call
from foretrace.actions.label_steps import classify_calls, label_trace
from foretrace.actions.same_action import Action, make_call_key
from foretrace.actions.taxonomy import Effect, StepLabel
from foretrace.core.errors import PredictionError, Setting, UsageError
from foretrace.core.internal_errors import contain_errors
from foretrace.core.predictions import Prediction, PredictionsFile
from foretrace.core.trace import Message, ToolCall, Trace
from foretrace.evaluation import step_times
from foretrace.evaluation.bootstrap import Resamples
from foretrace.evaluation.replay_report import (
    Assumption,
    FrontierPoint,
    Gate,
    Percentiles,
    ReplayReport,
    ReplaySettings,
    TaskTimes,
)
from foretrace.evaluation.savings import GUESS_S, MIN_COVERAGE, Saving, choose_safe_effects, conclude_replay
from foretrace.evaluation.simulator import GuessedCall, Launch, SimulatedStep, guess_true_calls, simulate
from foretrace.evaluation.step_times import StepTimes, find_step_effect

_FRONTIER_SHARES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
"""Shares of the guesses that the thresholds of the frontier exclude."""
_MEDIANS = {
    "name": "calls of the same name",
    "tool": "calls of the same tool",
    "all": "all calls, since its tool has none",
    "none": "nothing (0 s), since no call has a time",
}
"""By `ToolMedians.estimate`: the calls that the median is taken over."""


class PlannedCall(NamedTuple):
    """One call of a guess."""

    call: ToolCall
    key: tuple[int, tuple[str, ...]]
    """Equal for calls that are the same action, guessed for the same message."""
    launched: GuessedCall
    """How it runs early. The seconds of a wrong call are only known when all traces are read."""


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
    names: tuple[str, ...]
    timed: SimulatedStep
    """The step without guesses; it is foreseen if the first guess at each of its messages is right."""
    guesses: tuple[PlannedGuess, ...]
    silent: bool
    """Whether no prediction says how long its guesses took."""


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


def _list_call_times(step: StepTimes) -> tuple[float | None, ...]:
    return (step.tool_s,) if len(step.calls) == 1 else tuple(call.tool_s for call in step.calls)


def _count_characters(message: Message) -> int:
    calls = sum(len(call.name) + len(call.arguments) for call in message.tool_calls if call.span is None)
    return len(message.reasoning or "") + len(message.content) + calls


def _plan_calls(
    index: int, row: Prediction, own: Mapping[int, tuple[str, ...]], step: StepTimes, written_s: float
) -> Iterator[PlannedCall]:
    """What one guess at message `index` would launch; `own` has the keys of the message's calls, by position in the
    step."""
    call_s = _list_call_times(step)
    for guess in row.calls:
        call = ToolCall(name=guess.tool, arguments=guess.arguments)
        key = find_call_key(call)
        covers = tuple(position for position, own_key in own.items() if own_key == key)
        known = [seconds for position in covers if (seconds := call_s[position]) is not None]
        seconds = max(known) if known and len(known) == len(covers) else step.tool_s or 0.0
        yield PlannedCall(call, (index, key), GuessedCall(seconds, covers, written_s))


def find_call_key(call: ToolCall) -> tuple[str, ...]:
    return make_call_key(Action(type=None, tool=call.name, arguments=call.arguments), "normalized")


class _Outcome(NamedTuple):
    """The outcome of all runs."""

    steps: list[tuple[PlannedStep, float]]
    """Each step, and the seconds saved in it."""
    launches: list[Launch]
    estimates: Counter[str]
    """Launched calls whose seconds are a median, by which one."""

    @property
    def saved_s(self) -> float:
        return math.fsum(saved_s for _, saved_s in self.steps)

    @property
    def wasted_s(self) -> float:
        return math.fsum(launch.wasted_s for launch in self.launches)

    @property
    def hits(self) -> int:
        return sum(launch.hit for launch in self.launches)

    def sum_by_task(self) -> dict[str, float]:
        return _sum_by_name((step.task, saved_s) for step, saved_s in self.steps)

    def sum_by_call(self) -> dict[str, float]:
        """Seconds saved by call name; the calls of a step share its saving equally."""
        return _sum_by_name((name, saved_s / len(step.names)) for step, saved_s in self.steps for name in step.names)


class Replay:
    """Takes traces one by one, then makes the report.

    Raises:
        UsageError: a setting is invalid.
        PredictionError: the predictions contain nothing that could be launched.
    """

    def __init__(self, predictions: PredictionsFile, settings: ReplaySettings) -> None:
        settings.check()
        predictions.check_not_empty()
        header = predictions.header
        if header is not None and header.target == "type":
            raise PredictionError(
                f"{predictions.path}: holds types without calls; take a predictor of whole calls, such as memory, "
                "and a dataset built with ",
                Setting("target", "call"),
            )
        self._gate: Gate | None = _choose_gate(predictions, settings.threshold)
        self._verifier_is_measured = settings.verifier_s is None and self._gate == "score" and header is not None
        if self._verifier_is_measured and header is not None:
            settings = msgspec.structs.replace(settings, verifier_s=header.verifier_latency_s.get("p50", 0.0))
        self._predictions, self._settings = predictions, settings
        self._safe = choose_safe_effects(settings.allow)
        self._by_step = predictions.by_step()
        self.runs: list[list[PlannedStep]] = []
        """Consecutive steps of one trace, without a person or a step of unknown time between them."""
        self._attempts: Counter[str] = Counter()
        """Number of traces by task."""
        self._medians = ToolMedians()
        self._unknown: Counter[str] = Counter()
        self._steps = self._without_prediction = self._met_predictions = self._assumed_steps = 0

    def add(self, trace: Trace) -> None:
        steps = step_times.time_steps(trace)
        for step in steps:
            self._note_tool_times(trace, step)
        predicted = [sum(len(self._find_guesses(trace, index)) for index in step.indexes) for step in steps]
        if not any(predicted):
            return
        labels = {label.index: label for label in label_trace(trace)}
        if self._settings.assume_times is not None:
            steps, assumed = step_times.fill_times(steps, labels, self._settings.assume_times)
            self._assumed_steps += assumed
            for step in steps if assumed else ():
                self._note_tool_times(trace, step)
        self.runs += [[self._plan_step(trace, step, labels) for step in run] for run in step_times.split_runs(steps)]
        self._attempts[trace.task.id] += 1
        self._met_predictions += sum(predicted)
        self._steps += sum(map(bool, predicted))
        self._without_prediction += predicted.count(0)
        self._unknown.update(
            step.unknown for step, count in zip(steps, predicted, strict=True) if count and step.unknown is not None
        )

    def _find_guesses(self, trace: Trace, index: int) -> Sequence[Prediction]:
        return self._by_step.get((trace.key, index), ())

    def _note_tool_times(self, trace: Trace, step: StepTimes) -> None:
        if step.unknown is None:
            calls = (call for index in step.indexes for call in trace.messages[index].tool_calls)
            for call, seconds in zip(calls, _list_call_times(step), strict=True):
                if seconds is not None:
                    self._medians.add(call, seconds)

    def _plan_step(self, trace: Trace, step: StepTimes, labels: Mapping[int, StepLabel]) -> PlannedStep:
        lengths = [_count_characters(trace.messages[index]) for index in step.indexes]
        guesses: list[PlannedGuess] = []
        foreseen, first_call = True, 0
        for number, index in enumerate(step.indexes):
            written_s = (step.model_s or 0.0) * (sum(lengths[:number]) / (sum(lengths) or 1))
            own = dict(enumerate(map(find_call_key, trace.messages[index].tool_calls), first_call))
            made: list[PlannedGuess] = []
            for row in self._find_guesses(trace, index)[: self._settings.top]:
                calls = tuple(_plan_calls(index, row, own, step, written_s))
                facts = classify_calls(trace, [each.call for each in calls])
                right = Counter(each.key[1] for each in calls) == Counter(own.values()) and row.action is not None
                made.append(PlannedGuess(row, calls, Effect.PURE_READ if facts is None else facts.effect, right))
            foreseen = foreseen and (made[0].right if made else not own)
            guesses += made
            first_call += len(own)
        guesses.sort(key=lambda guess: guess.prediction.rank)
        measured = [guess.prediction.seconds for guess in guesses if guess.prediction.seconds is not None]
        latencies = (self._settings.guess_latency, max(measured, default=None), GUESS_S)
        timed = SimulatedStep(
            model_s=step.model_s or 0.0,
            tool_s=step.tool_s or 0.0,
            call_s=_list_call_times(step),
            eligible=find_step_effect(step, labels) in self._safe,
            state_version=labels[step.indexes[0]].state_version,
            proposer_s=next(each for each in latencies if each is not None),
            foreseen=foreseen,
        )
        names = tuple(call.name for call in step.calls)
        return PlannedStep(trace.task.id, names, timed, tuple(guesses), silent=not measured)

    def make_report(self) -> ReplayReport:
        """The report on all traces so far; raises a PredictionError if no prediction is for a step of them."""
        settings = self._settings
        if not self._met_predictions:
            raise PredictionError(
                f"{self._predictions.path}: none of its {len(self._predictions.rows):,} predictions is for a step of "
                "these traces; name the traces that the predicted dataset was built from"
            )
        steps = [step for run in self.runs for step in run]
        calling = [step.timed for step in steps if step.names and step.guesses]
        eligible_hits = [timed.foreseen for timed in calling if timed.eligible]
        outcome, oracle = self._simulate(settings.threshold), self._simulate(None, oracle=True)
        base = _sum_by_name((step.task, seconds) for step in steps for seconds in step.timed[:2])
        base_s, saved_s = math.fsum(base.values()), outcome.saved_s
        saving, perfect = (_measure_saving(each, base, settings.seed) for each in (outcome, oracle))
        known_steps = self._steps - self._unknown.total()
        coverage = known_steps / self._steps
        verdict = "known" if coverage >= MIN_COVERAGE else "unknown"
        return ReplayReport(
            **msgspec.structs.asdict(saving),
            verdict=verdict,
            predictor=self._predictions.predictor,
            traces=self._attempts.total(),
            tasks=len(self._attempts),
            steps=self._steps,
            known_steps=known_steps,
            coverage=coverage,
            base_s=base_s,
            tool_s=math.fsum(step.timed.tool_s for step in steps),
            speedup=base_s / (base_s - saved_s) if base_s > saved_s else None,
            remaining_s=base_s - saved_s,
            launched=len(outcome.launches),
            hits=outcome.hits,
            stale=sum(launch.stale for launch in outcome.launches),
            refused=sum(guess.effect not in self._safe for step in steps for guess in step.guesses),
            wasted_s=outcome.wasted_s,
            tokens=self._count_tokens(),
            oracle=perfect,
            per_task=self._measure_tasks(base, outcome.sum_by_task()),
            hit_rate=_find_mean([timed.foreseen for timed in calling]),
            eligible_hit_rate=_find_mean(eligible_hits),
            gate=self._gate,
            frontier=self._measure_frontier(steps, base_s),
            assumed=self._list_assumptions(steps, outcome),
            unknown_steps=dict(sorted(self._unknown.items(), key=lambda item: (-item[1], item[0]))),
            steps_without_prediction=self._without_prediction,
            assumed_steps=self._assumed_steps,
            conclusion=conclude_replay(
                saving.share if verdict == "known" else None,
                perfect.share,
                _find_mean(eligible_hits),
                outcome.sum_by_call(),
                self._explain_nothing(steps),
            ),
            other_predictions=len(self._predictions.rows) - self._met_predictions,
            problems=self._predictions.problems,
            settings=settings,
        )

    def _simulate(self, threshold: float | None, *, oracle: bool = False) -> _Outcome:
        """Simulate all runs with the guesses that reach the threshold, or with all guesses; as an `oracle`, with the
        true calls as guesses and without a verifier."""
        outcome, verifier_s = _Outcome([], [], Counter()), 0.0 if oracle else self._settings.verifier_s or 0.0
        for run in self.runs:
            steps = [guess_true_calls(step.timed) if oracle else self._add_guesses(step, threshold) for step in run]
            done = simulate(steps, self._settings.ahead, verifier_s)
            outcome.steps.extend(zip(run, done.saved_s, strict=True))
            outcome.launches.extend(done.launches)
            outcome.estimates.update(steps[launch.step].guesses[launch.guess].estimate for launch in done.launches)
        return outcome

    def _add_guesses(self, step: PlannedStep, threshold: float | None) -> SimulatedStep:
        """The step with the distinct calls of the guesses that may be launched, the best first: those of a guess all of
        whose calls are safe."""
        calls: dict[tuple[int, tuple[str, ...]], GuessedCall] = {}
        for guess in step.guesses:
            for call in guess.calls if guess.effect in self._safe and self._reaches(guess, threshold) else ():
                launched = call.launched
                if not launched.covers:
                    seconds, estimate = self._medians.estimate(call.call)
                    launched = launched._replace(seconds=seconds, estimate=estimate)
                calls.setdefault(call.key, launched)
        return step.timed._replace(guesses=tuple(calls.values()))

    def _find_gate_value(self, guess: PlannedGuess) -> float | None:
        return guess.prediction.score if self._gate == "score" else guess.prediction.confidence

    def _reaches(self, guess: PlannedGuess, threshold: float | None) -> bool:
        value = self._find_gate_value(guess)
        return threshold is None or (value is not None and value >= threshold)

    def _measure_frontier(self, steps: Sequence[PlannedStep], base_s: float) -> list[FrontierPoint]:
        """Results without a threshold, with thresholds that exclude 10% of the guesses, 20%, and so on, and with the
        given one."""
        values = sorted(
            value
            for step in steps
            for guess in step.guesses
            if guess.calls and guess.effect in self._safe and (value := self._find_gate_value(guess)) is not None
        )
        thresholds = {values[int(share * len(values))] for share in _FRONTIER_SHARES} if values else set[float]()
        if self._settings.threshold is not None:
            thresholds.add(self._settings.threshold)
        points: list[FrontierPoint] = []
        for threshold in (None, *sorted(thresholds)):
            found = self._simulate(threshold)
            points.append(
                FrontierPoint(
                    threshold=threshold,
                    launched=len(found.launches),
                    hits=found.hits,
                    saved_s=found.saved_s,
                    share=found.saved_s / base_s if base_s else None,
                    wasted_s=found.wasted_s,
                )
            )
        return points

    def _count_tokens(self) -> int:
        """Tokens of all guesses: each is made when its step begins, and at earlier steps that look ahead to it."""
        ahead = self._settings.ahead
        return sum(
            min(number, ahead) * sum(guess.prediction.tokens or 0 for guess in step.guesses)
            for run in self.runs
            for number, step in enumerate(run, 1)
        )

    def _measure_tasks(self, base: dict[str, float], saved: dict[str, float]) -> TaskTimes:
        base_s = [base[task] / self._attempts[task] for task in base]
        remaining_s = [(base[task] - saved[task]) / self._attempts[task] for task in base]
        return TaskTimes(
            base_s=_find_percentiles(base_s),
            remaining_s=_find_percentiles(remaining_s),
            share=_find_percentiles([saved[task] / base[task] for task in base]),
        )

    def _explain_nothing(self, steps: Sequence[PlannedStep]) -> str:
        threshold = self._settings.threshold
        guesses = [guess for step in steps for guess in step.guesses if guess.calls]
        if not guesses:
            return f"no guess among the first {self._settings.top} at a step names a call"
        if not any(guess.effect in self._safe for guess in guesses):
            return "no guessed call is safe to run early"
        if not any(self._reaches(guess, threshold) for guess in guesses):
            return f"no guess reaches the threshold of {threshold:g}"
        if not any(step.timed.eligible and step.timed.foreseen for step in steps if step.guesses):
            return "no guess at a call that is safe to run early is right"
        return "no right guess is ready before the reply"

    def _list_assumptions(self, steps: Sequence[PlannedStep], outcome: _Outcome) -> list[Assumption]:
        settings = self._settings
        guessed = [step for step in steps if step.guesses]
        if settings.guess_latency is not None:
            found = {f"a guess takes {settings.guess_latency:g} s, whatever was measured": len(guessed)}
        else:
            silent = sum(step.silent for step in guessed)
            found = {f"a guess takes {GUESS_S:g} s where its prediction does not say": silent}
        if settings.verifier_s is not None:
            source = ", as the median of its scores did" if self._verifier_is_measured else ""
            found[f"the verifier takes {settings.verifier_s:g} s{source}"] = len(steps)
        for name, what in _MEDIANS.items():
            found[f"a wrong call takes the median in these traces of {what}"] = outcome.estimates[name]
        return [Assumption(text=text, count=count) for text, count in found.items() if count]


def replay_traces(traces: Iterable[Trace], predictions: PredictionsFile, settings: ReplaySettings) -> ReplayReport:
    """Replay predictions on traces; see `Replay` for the errors."""
    replay = Replay(predictions, settings)
    for trace in traces:
        with contain_errors("replay", trace.key):
            replay.add(trace)
    return replay.make_report()


def _choose_gate(predictions: PredictionsFile, threshold: float | None) -> Gate | None:
    """Which value is compared with a threshold; None if the predictions have none."""
    if any(row.score is not None for row in predictions.rows):
        return "score"
    if any(row.confidence is not None for row in predictions.rows):
        return "confidence"
    if threshold is not None:
        raise UsageError(Setting("threshold", threshold), f": {predictions.path} holds neither scores nor confidences")
    return None


def _measure_saving(outcome: _Outcome, base: dict[str, float], seed: int) -> Saving:
    by_task, base_s = outcome.sum_by_task(), math.fsum(base.values())
    if not base_s:
        return Saving(saved_s=None, share=None, low=None, high=None)
    saved = [by_task[task] for task in base]
    ((low, high),) = Resamples([*base], seed).find_ratio_intervals([(saved, [*base.values()])])
    return Saving(saved_s=outcome.saved_s, share=outcome.saved_s / base_s, low=low, high=high)


def _sum_by_name(parts: Iterable[tuple[str, float]]) -> dict[str, float]:
    found = defaultdict[str, list[float]](list)
    for name, value in parts:
        found[name].append(value)
    return {name: math.fsum(found[name]) for name in sorted(found)}


def _find_mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None


def _find_percentiles(values: Sequence[float]) -> Percentiles:
    if not values:
        return Percentiles(p50=None, p95=None)
    p50, p95 = np.percentile(values, (50, 95))
    return Percentiles(p50=float(p50), p95=float(p95))
