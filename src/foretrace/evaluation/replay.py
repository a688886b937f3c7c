"""Replay: what a predictor would have saved on the recorded times of traces.

`replay_plan` determines what each guess would launch, and `event_simulator` simulates it. This module measures the
result for the given threshold, for a range of others, and for an oracle that guesses the true calls.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from foretrace.core.errors import PredictionError, Setting, UsageError
from foretrace.core.internal_errors import contain_errors
from foretrace.core.predictions import PredictionsFile, digest_traces
from foretrace.core.trace import Trace
from foretrace.evaluation.bootstrap import Resamples
from foretrace.evaluation.ceiling import GUESS_S, TO_RECORD, decide_verdict
from foretrace.evaluation.ceiling_report import Saving, conclude_replay
from foretrace.evaluation.checked_settings import choose_safe_effects
from foretrace.evaluation.confidences import measure_ece
from foretrace.evaluation.event_simulator import GuessedCall, SimulatedRun, SimulatedStep, Speculation, simulate
from foretrace.evaluation.replay_plan import PlannedCall, PlannedGuess, PlannedStep, ReplayPlan
from foretrace.evaluation.replay_report import (
    Accuracy,
    Assumption,
    Cost,
    FrontierPoint,
    Gate,
    Percentiles,
    ReplayReport,
    ReplaySettings,
    TaskTimes,
)

_FRONTIER_SHARES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
"""Shares of the guesses that the thresholds of the frontier exclude."""
_MEDIANS = {
    "name": "calls of the same name",
    "tool": "calls of the same tool",
    "all": "all calls, since its tool has none",
    "none": "nothing (0 s), since no call has a time",
}
"""By `ToolMedians.estimate`: the calls that the median is taken over."""


class _Launched(NamedTuple):
    """One call that was launched early."""

    call: PlannedCall
    hit: bool
    """Whether its result was used."""
    stale: bool
    """Whether a write made it stale."""
    wasted_s: float
    estimate: str
    """The median that its seconds are (`ToolMedians.estimate`); empty if they are recorded."""


class _Outcome:
    """The outcome of all runs."""

    def __init__(self) -> None:
        self.steps: list[tuple[PlannedStep, float]] = []
        """Each step, and the seconds saved in it."""
        self.took: list[float] = []
        """Seconds of each run."""
        self.launched: list[_Launched] = []
        self.tokens = 0
        """Tokens that the proposer wrote."""

    def add(self, run: Sequence[PlannedStep], done: SimulatedRun) -> None:
        """Add a run, without its launches."""
        self.took.append(done.took_s)
        self.steps += zip(run, done.saved_s, strict=True)
        for step, times in zip(run, done.proposals, strict=True):
            self.tokens += times * sum(guess.prediction.tokens or 0 for guess in step.guesses)

    def sum_by_task(self) -> dict[str, tuple[float, float]]:
        """By task, sorted: the seconds without guesses, and how many of them are saved."""
        base, saved = defaultdict[str, list[float]](list), defaultdict[str, list[float]](list)
        for step, saved_s in self.steps:
            base[step.task] += (step.model_s, step.tool_s)
            saved[step.task].append(saved_s)
        return {task: (math.fsum(base[task]), math.fsum(saved[task])) for task in sorted(base)}

    def sum_by_call(self) -> dict[str, float]:
        """Seconds saved by call name; the calls of a step share its saving equally."""
        saved = defaultdict[str, list[float]](list)
        for step, saved_s in self.steps:
            for name in step.names:
                saved[name].append(saved_s / len(step.names))
        return {name: math.fsum(each) for name, each in saved.items()}

    @property
    def saved_s(self) -> float:
        return math.fsum(saved_s for _, saved_s in self.steps)

    @property
    def wasted_s(self) -> float:
        return math.fsum(each.wasted_s for each in self.launched)

    @property
    def hits(self) -> int:
        return sum(each.hit for each in self.launched)


class Replay:
    """Takes traces one by one, then makes the report."""

    def __init__(self, predictions: PredictionsFile, settings: ReplaySettings) -> None:
        """
        Args:
            predictions: The guesses, as `read_predictions` returns them.
            settings: How the guesses are run.

        Raises:
            UsageError: a setting is invalid.
            PredictionError: the predictions contain nothing that could be launched.
        """
        settings.check()
        predictions.check_not_empty()
        if predictions.header is not None and predictions.header.target == "type":
            call = Setting("target", "call")
            raise PredictionError(
                f"{predictions.path}: holds types without calls; take a predictor of whole calls, such as memory, "
                "and a dataset built with ",
                call,
            )
        self._gate: Gate | None = _choose_gate(predictions, settings.threshold)
        measured_s = _find_verifier_s(predictions) if self._gate == "score" and settings.verifier_s is None else None
        self._verifier_is_measured = measured_s is not None
        settings = msgspec.structs.replace(settings, verifier_s=settings.verifier_s or measured_s or 0.0)
        self._predictions, self._settings = predictions, settings
        self._safe = choose_safe_effects(settings.allow)
        self._ids = set[tuple[str, str]]()
        self._plan = ReplayPlan(predictions.by_step(), top=settings.top, assume_times=settings.assume_times)

    def add(self, trace: Trace) -> None:
        """Add a trace."""
        self._ids.add((trace.key, trace.id))
        self._plan.add(trace)

    def make_report(self) -> ReplayReport:
        """The report on all traces so far.

        Raises:
            PredictionError: no prediction is for a step of the traces.
        """
        plan = self._plan
        if not plan.met_predictions:
            raise PredictionError(
                f"{self._predictions.path}: none of its {len(self._predictions.rows):,} predictions is for a step of "
                "these traces; name the traces that the predicted dataset was built from"
            )
        steps = [step for run in plan.runs for step in run]
        calling = [step for step in steps if step.call_s and step.guesses]
        eligible = [step.foreseen for step in calling if step.effect in self._safe]
        outcome = self._simulate(self._settings.threshold)
        saving, oracle = self._measure_savings(outcome, self._simulate_oracle())
        base_s = math.fsum(seconds for step in steps for seconds in (step.model_s, step.tool_s))
        remaining_s = math.fsum(outcome.took)
        unknown = dict(sorted(plan.unknown.items(), key=lambda item: (-item[1], item[0])))
        coverage = plan.known_steps / plan.steps
        verdict = decide_verdict(coverage)
        header = self._predictions.header
        predicted = None if header is None else header.built_from.get("traces")
        return ReplayReport(
            **msgspec.structs.asdict(saving),
            verdict=verdict,
            predictor=self._predictions.predictor,
            traces=plan.attempts.total(),
            tasks=len(plan.attempts),
            steps=plan.steps,
            known_steps=plan.known_steps,
            coverage=coverage,
            base_s=base_s,
            tool_s=math.fsum(step.tool_s for step in steps),
            speedup=base_s / remaining_s if remaining_s else None,
            remaining_s=remaining_s,
            launched=len(outcome.launched),
            hits=outcome.hits,
            stale=sum(each.stale for each in outcome.launched),
            refused=sum(guess.effect not in self._safe for step in steps for guess in step.guesses),
            wasted_s=outcome.wasted_s,
            wasted_s_per_saved_s=outcome.wasted_s / outcome.saved_s if outcome.saved_s else None,
            oracle=oracle,
            per_task=self._measure_tasks(outcome),
            accuracy=_measure_accuracy(steps, calling, eligible),
            cost=self._measure_cost(outcome),
            gate=self._gate,
            frontier=self._measure_frontier(steps),
            assumed=self._list_assumptions(steps, outcome.launched),
            unknown_steps=unknown,
            to_record=[TO_RECORD[reason] for reason in unknown],
            steps_without_prediction=plan.steps_without_prediction,
            assumed_steps=plan.assumed_steps,
            conclusion=conclude_replay(
                saving.share if verdict == "known" else None,
                oracle.share,
                _find_mean(eligible),
                outcome.sum_by_call(),
                self._explain_nothing(steps),
            ),
            other_predictions=len(self._predictions.rows) - plan.met_predictions,
            other_traces=predicted is not None and predicted != digest_traces(self._ids),
            problems=self._predictions.problems,
            settings=self._settings,
        )

    def _simulate(self, threshold: float | None) -> _Outcome:
        """Simulate all runs with the guesses that reach the threshold, or with all guesses."""
        settings, outcome, medians = self._settings, _Outcome(), self._plan.medians
        speculation = Speculation(settings.ahead, settings.parallel, settings.cancel, settings.verifier_s or 0.0)
        for run in self._plan.runs:
            chosen = [self._choose_calls(step, threshold) for step in run]
            # Seconds, and which median they are: none if they are recorded.
            times = [
                [(call.seconds, "") if call.seconds is not None else medians.estimate(call.call) for call in calls]
                for calls in chosen
            ]
            steps = [
                self._make_step(
                    step,
                    [GuessedCall(s, call.covers, call.written_s) for call, (s, _) in zip(calls, timed, strict=True)],
                )
                for step, calls, timed in zip(run, chosen, times, strict=True)
            ]
            done = simulate(steps, speculation)
            outcome.add(run, done)
            for launch in done.launches:
                call, (_, estimate) = chosen[launch.step][launch.guess], times[launch.step][launch.guess]
                outcome.launched.append(_Launched(call, launch.hit, launch.stale, launch.wasted_s, estimate))
        return outcome

    def _simulate_oracle(self) -> _Outcome:
        """Simulate all runs with the true calls as guesses, without a verifier or a limit on parallel calls."""
        outcome = _Outcome()
        for run in self._plan.runs:
            steps: list[SimulatedStep] = []
            for step in run:
                own = enumerate(step.call_s) if step.effect in self._safe else ()
                guesses = [GuessedCall(step.tool_s if s is None else s, (position,)) for position, s in own]
                steps.append(self._make_step(step, guesses)._replace(foreseen=True))
            outcome.add(run, simulate(steps, Speculation(self._settings.ahead)))
        return outcome

    def _choose_calls(self, step: PlannedStep, threshold: float | None) -> list[PlannedCall]:
        """The distinct calls of the guesses that may be launched, the best first. A guess is launched only if all its
        calls are safe."""
        calls: dict[tuple[int, tuple[str, ...]], PlannedCall] = {}
        for guess in step.guesses:
            if guess.effect in self._safe and self._reaches(guess, threshold):
                for call in guess.calls:
                    calls.setdefault((call.message, call.key), call)
        return [*calls.values()]

    def _make_step(self, step: PlannedStep, guesses: Sequence[GuessedCall]) -> SimulatedStep:
        return SimulatedStep(
            model_s=step.model_s,
            tool_s=step.tool_s,
            call_s=step.call_s,
            eligible=step.effect in self._safe,
            state_version=step.state_version,
            proposer_s=self._find_guess_s(step),
            guesses=tuple(guesses),
            foreseen=step.foreseen,
        )

    def _find_guess_s(self, step: PlannedStep) -> float:
        """Seconds until the guesses for a step are available."""
        if self._settings.guess_latency is not None:
            return self._settings.guess_latency
        return GUESS_S if step.proposer_s is None else step.proposer_s

    def _reaches(self, guess: PlannedGuess, threshold: float | None) -> bool:
        value = self._find_gate_value(guess)
        return threshold is None or (value is not None and value >= threshold)

    def _find_gate_value(self, guess: PlannedGuess) -> float | None:
        """The value that is compared with a threshold."""
        return guess.prediction.score if self._gate == "score" else guess.prediction.confidence

    def _explain_nothing(self, steps: Sequence[PlannedStep]) -> str:
        """The reason if nothing is saved."""
        threshold = self._settings.threshold
        guesses = [guess for step in steps for guess in step.guesses if guess.calls]
        if not guesses:
            return f"no guess among the first {self._settings.top} at a step names a call"
        if not any(guess.effect in self._safe for guess in guesses):
            return "no guessed call is safe to run early"
        if not any(self._reaches(guess, threshold) for guess in guesses):
            return f"no guess reaches the threshold of {threshold:g}"
        right = [
            (self._find_guess_s(step), step.model_s, step.tool_s)
            for step in steps
            if step.effect in self._safe and step.foreseen and any(self._reaches(g, threshold) for g in step.guesses)
        ]
        if not right:
            return "no guess at a call that is safe to run early is right"
        guess, model, tool = map(statistics.median, zip(*right, strict=True))
        beside = f"the replies beside it {model:.2g} s, and the calls it could hide {tool:.2g} s"
        return f"a guess costs {guess:.2g} s, {beside}"

    def _measure_savings(self, outcome: _Outcome, oracle: _Outcome) -> tuple[Saving, Saving]:
        """What the guesses save and what the true calls would save, each with its own interval."""
        own, most = outcome.sum_by_task(), oracle.sum_by_task()
        base = [base_s for base_s, _ in own.values()]
        ratios = [([saved_s for _, saved_s in each.values()], base) for each in (own, most)]
        intervals = Resamples([*own], self._settings.seed).find_ratio_intervals(ratios)
        base_s = math.fsum(base)
        found, perfect = (
            Saving(saved_s=saved_s, share=saved_s / base_s, low=low, high=high)
            if base_s
            else Saving(saved_s=None, share=None, low=None, high=None)
            for saved_s, (low, high) in zip((outcome.saved_s, oracle.saved_s), intervals, strict=True)
        )
        return found, perfect

    def _measure_tasks(self, outcome: _Outcome) -> TaskTimes:
        attempts = self._plan.attempts
        times = [
            (base / attempts[task], saved / attempts[task]) for task, (base, saved) in outcome.sum_by_task().items()
        ]
        return TaskTimes(
            base_s=_find_percentiles(base for base, _ in times),
            remaining_s=_find_percentiles(base - saved for base, saved in times),
            share=_find_percentiles(saved / base for base, saved in times),
        )

    def _measure_cost(self, outcome: _Outcome) -> Cost:
        settings = self._settings
        proposer, wasted = outcome.tokens * settings.price_token, outcome.wasted_s * settings.price_tool_s
        return Cost(
            tokens=outcome.tokens,
            proposer=proposer,
            wasted_tools=wasted,
            extra=proposer + wasted,
            base_tools=settings.price_tool_s * math.fsum(step.tool_s for step, _ in outcome.steps),
            per_saved_s=(proposer + wasted) / outcome.saved_s if outcome.saved_s else None,
        )

    def _measure_frontier(self, steps: Sequence[PlannedStep]) -> list[FrontierPoint]:
        """Results without a threshold, and with thresholds that exclude 10 % of the guesses, 20 %, and so on."""
        values = sorted(
            value
            for step in steps
            for guess in step.guesses
            if guess.calls and guess.effect in self._safe and (value := self._find_gate_value(guess)) is not None
        )
        thresholds = {values[int(share * len(values))] for share in _FRONTIER_SHARES} if values else set[float]()
        if self._settings.threshold is not None:
            thresholds.add(self._settings.threshold)
        return [self._measure_point(threshold) for threshold in (None, *sorted(thresholds))]

    def _measure_point(self, threshold: float | None) -> FrontierPoint:
        outcome = self._simulate(threshold)
        saved_s, base_s = outcome.saved_s, math.fsum(base_s for base_s, _ in outcome.sum_by_task().values())
        return FrontierPoint(
            threshold=threshold,
            launched=len(outcome.launched),
            hits=outcome.hits,
            saved_s=saved_s,
            share=saved_s / base_s if base_s else None,
            wasted_s=outcome.wasted_s,
            extra_cost=self._measure_cost(outcome).extra,
        )

    def _list_assumptions(self, steps: Sequence[PlannedStep], launched: Sequence[_Launched]) -> list[Assumption]:
        """Assumptions behind the figures that come from neither traces nor predictions."""
        settings, gate = self._settings, self._gate
        guesses = [guess for step in steps for guess in step.guesses]
        guessed = [step for step in steps if step.guesses]
        if settings.guess_latency is None:
            silent = sum(step.proposer_s is None for step in guessed)
            latency = (silent, f"a guess takes {GUESS_S:g} s where its prediction does not say")
        else:
            latency = (len(guessed), f"a guess takes {settings.guess_latency:g} s, whatever was measured")
        source = ", as the median of its scores did" if self._verifier_is_measured else ""
        wrong = Counter(each.estimate for each in launched)
        found: list[tuple[str, bool, int, str]] = [
            ("guess_latency", True, *latency),
            (
                "verifier_s",
                gate == "score" or bool(settings.verifier_s),
                len(steps),
                f"the verifier takes {settings.verifier_s:g} s{source}",
            ),
        ]
        found += [
            ("wrong_call_s", True, wrong[name], f"a wrong call takes the median in these traces of {what}")
            for name, what in _MEDIANS.items()
        ]
        later = sum(each.call.written_s > 0 for each in launched)
        unscored = sum(self._find_gate_value(guess) is None for guess in guesses)
        free = sum(guess.prediction.tokens is None for guess in guesses)
        waits = "a guess at a later message of a reply waits for the share of it written before"
        ahead = "a guess ahead is as good as the one at its own step, if the first guesses between are right"
        found += [
            ("later_in_reply", True, later, waits),
            ("ahead", settings.ahead > 1, len(steps), ahead),
            (
                "not_launched",
                settings.threshold is not None,
                unscored,
                f"a guess without a {gate} does not reach the threshold",
            ),
            ("tokens", settings.price_token > 0, free, "a guess whose tokens are not known costs nothing"),
        ]
        return [Assumption(name=name, count=n, text=text) for name, applies, n, text in found if applies and n]


def _measure_accuracy(
    steps: Sequence[PlannedStep], calling: Sequence[PlannedStep], eligible: Sequence[bool]
) -> Accuracy:
    """How accurate the guesses are.

    Args:
        calling: The steps with calls and guesses.
        eligible: Whether the first guess is right, for each of these steps whose calls are safe to run early.
    """
    first = [guess for step in calling for guess in step.guesses if guess.prediction.rank == 1]
    believed = [(guess.prediction.confidence, guess.right) for guess in first]
    with_confidence = [(value, float(right)) for value, right in believed if value is not None]
    return Accuracy(
        hit_rate=_find_mean([step.foreseen for step in calling]),
        eligible_hit_rate=_find_mean(eligible),
        mean_confidence=_find_mean([value for value, _ in with_confidence]),
        calibration_error=measure_ece(*np.array(sorted(with_confidence)).T) if with_confidence else None,
        proposer_s=_find_percentiles(step.proposer_s for step in steps if step.proposer_s is not None),
    )


def replay_traces(
    traces: Iterable[Trace],
    predictions: PredictionsFile,
    settings: ReplaySettings,
    *,
    report_traces: Callable[[int], None] = lambda n: None,
) -> ReplayReport:
    """Replay predictions on traces; see `Replay` for the errors.

    Args:
        report_traces: Called with the number of traces so far.
    """
    replay = Replay(predictions, settings)
    for number, trace in enumerate(traces, 1):
        with contain_errors("replay", trace.key):
            replay.add(trace)
        report_traces(number)
    return replay.make_report()


def _find_verifier_s(predictions: PredictionsFile) -> float | None:
    """Median seconds of the verifier that gave the scores; None if the file does not say."""
    seconds = predictions.header.verifier_latency_s.get("p50") if predictions.header is not None else None
    return seconds if seconds is not None and math.isfinite(seconds) and seconds >= 0 else None


def _choose_gate(predictions: PredictionsFile, threshold: float | None) -> Gate | None:
    """Which value is compared with a threshold; None if the predictions have none.

    Raises:
        UsageError: there is a threshold, but the predictions have no such value.
    """
    if any(row.score is not None for row in predictions.rows):
        return "score"
    if any(row.confidence is not None for row in predictions.rows):
        return "confidence"
    if threshold is not None:
        raise UsageError(Setting("threshold", threshold), f": {predictions.path} holds neither scores nor confidences")
    return None


def _find_mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None


def _find_percentiles(values: Iterable[float]) -> Percentiles:
    found = [*values]
    if not found:
        return Percentiles(p50=None, p95=None)
    p50, p95 = np.percentile(found, (50, 95))
    return Percentiles(p50=float(p50), p95=float(p95))
