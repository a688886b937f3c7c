"""Replay: what a predictor would have saved on the recorded times of traces.

`replay_plan` says what each guess would launch, `replay_runs` what becomes of that (with `event_simulator`); this
measures it, for the threshold that is asked for and for a row of others, and beside it for the true calls as guesses
(the oracle).
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import msgspec
import numpy as np

from foretrace.core.errors import PredictionError, Setting, UsageError
from foretrace.core.internal_errors import contain_errors
from foretrace.core.predictions import PredictionsFile, digest_traces
from foretrace.core.trace import Trace
from foretrace.evaluation.bootstrap import Resamples
from foretrace.evaluation.calibration import measure_ece
from foretrace.evaluation.ceiling import GUESS_S, TO_RECORD, decide_verdict
from foretrace.evaluation.ceiling_report import Conclusion, Saving, conclude_replay
from foretrace.evaluation.replay_plan import LEVEL, PlannedStep, ReplayPlan
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
from foretrace.evaluation.replay_runs import LaunchedCall, Outcome, ReplayRuns

_FRONTIER_SHARES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
"""Shares of the guesses that the thresholds of the frontier keep out."""
_MEDIANS = {
    "name": "calls of the same name",
    "tool": "calls of the same tool",
    "all": "all calls, since its tool has none",
    "none": "nothing (0 s), since no call has a time",
}
"""By `ToolMedians.estimate`: of what a median is."""


class Replay:
    """Takes traces one by one, and makes the report."""

    def __init__(self, predictions: PredictionsFile, settings: ReplaySettings) -> None:
        """
        Args:
            predictions: What was guessed, as `read_predictions` gives it.
            settings: How the guesses are run.

        Raises:
            UsageError: a setting that cannot be served.
            PredictionError: the predictions hold nothing that could be launched.
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
        self._ids = set[tuple[str, str]]()
        self._plan = ReplayPlan(predictions.by_step(), top=settings.top, assume_times=settings.assume_times)
        self._runs = ReplayRuns(self._plan, settings, self._gate)

    def add(self, trace: Trace) -> None:
        """Take a trace."""
        self._ids.add((trace.key, trace.id))
        self._plan.add(trace)

    def make_report(self) -> ReplayReport:
        """The report on all traces so far.

        Raises:
            PredictionError: no prediction is for a step of the traces.
        """
        plan, runs = self._plan, self._runs
        if not plan.met_predictions:
            raise PredictionError(
                f"{self._predictions.path}: none of its {len(self._predictions.rows):,} predictions is for a step of "
                "these traces; name the traces that the predicted dataset was built from"
            )
        outcome = runs.simulate(self._settings.threshold)
        saving, oracle = self._measure_savings(outcome, runs.simulate_oracle())
        saved_s, wasted_calls = outcome.saved_s, len(outcome.launched) - outcome.hits
        unknown = dict(sorted(plan.unknown.items(), key=lambda item: (-item[1], item[0])))
        coverage = plan.known_steps / plan.steps
        verdict = decide_verdict(coverage)
        return ReplayReport(
            **msgspec.structs.asdict(saving),
            verdict=verdict,
            predictor=self._predictions.predictor,
            traces=plan.attempts.total(),
            tasks=len(plan.attempts),
            steps=plan.steps,
            known_steps=plan.known_steps,
            coverage=coverage,
            base_s=outcome.base_s,
            tool_s=math.fsum(step.tool_s for step in runs.list_steps()),
            speedup=outcome.base_s / outcome.remaining_s if outcome.remaining_s else None,
            remaining_s=outcome.remaining_s,
            launched=len(outcome.launched),
            hits=outcome.hits,
            wasted_calls=wasted_calls,
            stale=sum(each.stale for each in outcome.launched),
            unsafe=runs.count_unsafe(outcome.launched),
            refused=sum(not runs.is_safe(guess) for step in runs.list_steps() for guess in step.guesses),
            wasted_s=outcome.wasted_s,
            wasted_calls_per_saved_s=wasted_calls / saved_s if saved_s else None,
            wasted_s_per_saved_s=outcome.wasted_s / saved_s if saved_s else None,
            oracle=oracle,
            per_task=self._measure_tasks(outcome),
            accuracy=self._measure_accuracy(),
            cost=self._measure_cost(outcome),
            gate=self._gate,
            frontier=self._measure_frontier(),
            assumed=self._list_assumptions(outcome.launched),
            unknown_steps=unknown,
            to_record=[TO_RECORD[reason] for reason in unknown],
            steps_without_prediction=plan.steps_without_prediction,
            assumed_steps=plan.assumed_steps,
            conclusion=self._conclude(saving.share if verdict == "known" else None, oracle.share, outcome),
            steps_without_first=plan.steps_without_first,
            other_predictions=len(self._predictions.rows) - plan.met_predictions,
            other_traces=self._has_other_traces(),
            problems=self._predictions.problems,
            level=LEVEL,
            settings=self._settings,
        )

    def _conclude(self, share: float | None, perfect: float | None, outcome: Outcome) -> Conclusion:
        eligible = [step.foreseen for step in self._list_calling() if self._runs.is_eligible(step)]
        return conclude_replay(share, perfect, _find_mean(eligible), outcome.saved_by_call, self._explain_nothing())

    def _list_calling(self) -> list[PlannedStep]:
        return [step for step in self._runs.list_steps() if step.call_s and step.guesses]

    def _explain_nothing(self) -> str:
        """Why nothing is saved, if nothing is."""
        runs, threshold = self._runs, self._settings.threshold
        guesses = [guess for step in runs.list_steps() for guess in step.guesses if guess.calls]
        if not guesses:
            return f"no guess among the first {self._settings.top} at a step names a call"
        if not any(map(runs.is_safe, guesses)):
            return "no guessed call is safe to run early"
        if not any(runs.reaches(guess, threshold) for guess in guesses):
            return f"no guess reaches the threshold of {threshold:g}"
        right = [
            step
            for step in runs.list_steps()
            if runs.is_eligible(step) and step.foreseen and any(runs.reaches(g, threshold) for g in step.guesses)
        ]
        if not right:
            return "no guess at a call that is safe to run early is right"
        guess, model, tool = (
            statistics.median(values)
            for values in zip(*((runs.find_guess_s(step), step.model_s, step.tool_s) for step in right), strict=True)
        )
        beside = f"the replies beside it {model:.2g} s, and the calls it could hide {tool:.2g} s"
        return f"a guess costs {guess:.2g} s, {beside}"

    def _has_other_traces(self) -> bool:
        header = self._predictions.header
        predicted = None if header is None else header.built_from.get("traces")
        return predicted is not None and predicted != digest_traces(self._ids)

    def _measure_savings(self, outcome: Outcome, oracle: Outcome) -> tuple[Saving, Saving]:
        """What the guesses save, and what the true calls would, with intervals of their own."""
        tasks, base_s = sorted(outcome.base), outcome.base_s
        base, *saved = (
            [math.fsum(seconds[task]) for task in tasks] for seconds in (outcome.base, outcome.saved, oracle.saved)
        )
        intervals = Resamples(tasks, self._settings.seed).find_ratio_intervals([(each, base) for each in saved])
        own, most = (
            Saving(saved_s=saved_s, share=saved_s / base_s, low=low, high=high)
            if base_s
            else Saving(saved_s=None, share=None, low=None, high=None)
            for saved_s, (low, high) in zip((outcome.saved_s, oracle.saved_s), intervals, strict=True)
        )
        return own, most

    def _measure_tasks(self, outcome: Outcome) -> TaskTimes:
        base = {task: math.fsum(seconds) / self._plan.attempts[task] for task, seconds in outcome.base.items()}
        saved = {task: math.fsum(seconds) / self._plan.attempts[task] for task, seconds in outcome.saved.items()}
        return TaskTimes(
            base_s=_find_percentiles(base.values()),
            remaining_s=_find_percentiles(base[task] - saved[task] for task in base),
            share=_find_percentiles(saved[task] / base[task] for task in base),
        )

    def _measure_accuracy(self) -> Accuracy:
        runs = self._runs
        calling = self._list_calling()
        first = [guess for step in calling for guess in step.guesses if guess.prediction.rank == 1]
        believed = [(guess.prediction.confidence, guess.right) for guess in first]
        with_confidence = [(value, float(right)) for value, right in believed if value is not None]
        seconds = (step.proposer_s for step in runs.list_steps())
        return Accuracy(
            hit_rate=_find_mean([step.foreseen for step in calling]),
            eligible_hit_rate=_find_mean([step.foreseen for step in calling if runs.is_eligible(step)]),
            mean_confidence=_find_mean([value for value, _ in with_confidence]),
            calibration_error=measure_ece(*np.array(sorted(with_confidence)).T) if with_confidence else None,
            proposer_s=_find_percentiles(each for each in seconds if each is not None),
        )

    def _measure_cost(self, outcome: Outcome) -> Cost:
        settings = self._settings
        proposer, wasted = outcome.tokens * settings.price_token, outcome.wasted_s * settings.price_tool_s
        return Cost(
            tokens=outcome.tokens,
            proposer=proposer,
            wasted_tools=wasted,
            extra=proposer + wasted,
            base_tools=settings.price_tool_s * math.fsum(step.tool_s for step in self._runs.list_steps()),
            per_saved_s=(proposer + wasted) / outcome.saved_s if outcome.saved_s else None,
        )

    def _measure_frontier(self) -> list[FrontierPoint]:
        """Without a threshold, and with those that keep out a tenth of the guesses, two tenths, and so on."""
        guesses = (guess for step in self._runs.list_steps() for guess in step.guesses)
        values = sorted(
            value
            for guess in guesses
            if guess.calls and self._runs.is_safe(guess) and (value := self._runs.find_gate_value(guess)) is not None
        )
        thresholds = {values[int(share * len(values))] for share in _FRONTIER_SHARES} if values else set[float]()
        if self._settings.threshold is not None:
            thresholds.add(self._settings.threshold)
        return [self._measure_point(threshold) for threshold in (None, *sorted(thresholds))]

    def _measure_point(self, threshold: float | None) -> FrontierPoint:
        outcome = self._runs.simulate(threshold)
        base_s, saved_s = outcome.base_s, outcome.saved_s
        return FrontierPoint(
            threshold=threshold,
            launched=len(outcome.launched),
            hits=outcome.hits,
            saved_s=saved_s,
            share=saved_s / base_s if base_s else None,
            wasted_s=outcome.wasted_s,
            extra_cost=self._measure_cost(outcome).extra,
        )

    def _list_assumptions(self, launched: Sequence[LaunchedCall]) -> list[Assumption]:
        """What the figures rest on that neither traces nor predictions say."""
        settings, steps = self._settings, [*self._runs.list_steps()]
        guesses = [guess for step in steps for guess in step.guesses]
        found: list[tuple[str, int, str]] = []
        if settings.guess_latency is None:
            silent = sum(step.proposer_s is None for step in steps if step.guesses)
            found.append(("guess_latency", silent, f"a guess takes {GUESS_S:g} s where its prediction does not say"))
        else:
            guessed = sum(bool(step.guesses) for step in steps)
            found.append(
                ("guess_latency", guessed, f"a guess takes {settings.guess_latency:g} s, whatever was measured")
            )
        if self._gate == "score" or settings.verifier_s:
            source = ", as the median of its scores did" if self._verifier_is_measured else ""
            found.append(("verifier_s", len(steps), f"the verifier takes {settings.verifier_s:g} s{source}"))
        wrong = Counter(each.estimate for each in launched)
        found += [
            ("wrong_call_s", wrong[name], f"a wrong call takes the median in these traces of {what}")
            for name, what in _MEDIANS.items()
        ]
        later = sum(each.call.written_s > 0 for each in launched)
        found.append(
            ("later_in_reply", later, "a guess at a later message of a reply waits for the share of it written before")
        )
        if settings.ahead > 1:
            text = "a guess ahead is as good as the one at its own step, if the first guesses between are right"
            found.append(("ahead", len(steps), text))
        if settings.threshold is not None:
            silent = sum(self._runs.find_gate_value(guess) is None for guess in guesses)
            found.append(("not_launched", silent, f"a guess without a {self._gate} does not reach the threshold"))
        if settings.price_token:
            free = sum(guess.prediction.tokens is None for guess in guesses)
            found.append(("tokens", free, "a guess whose tokens are not known costs nothing"))
        return [Assumption(name=name, count=count, text=text) for name, count, text in found if count]


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
    """Seconds of the verifier that gave the scores, by its median; None where the file does not say."""
    seconds = predictions.header.verifier_latency_s.get("p50") if predictions.header is not None else None
    return seconds if seconds is not None and math.isfinite(seconds) and seconds >= 0 else None


def _choose_gate(predictions: PredictionsFile, threshold: float | None) -> Gate | None:
    """What a threshold is held against; None where the predictions have nothing of the kind.

    Raises:
        UsageError: there is a threshold, and nothing to hold it against.
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
