"""The ceiling: what a perfect predictor of the next calls would save on traces, without any model.

Every figure is over the steps whose times are known (`step_times`), and its coverage stands beside it: the share of
steps whose times are known. Where that is below half, the verdict is `unknown`. The formulas are in `savings`.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from foretrace.actions.label_steps import label_trace
from foretrace.actions.taxonomy import StepLabel
from foretrace.core.internal_errors import contain_errors
from foretrace.core.trace import Trace
from foretrace.evaluation.bootstrap import measure_intervals
from foretrace.evaluation.ceiling_report import (
    AheadCeiling,
    CeilingReport,
    CeilingRow,
    EagerCeiling,
    EagerSaving,
    LongCall,
    Saving,
    StampedTime,
    Verdict,
    conclude_ceiling,
)
from foretrace.evaluation.checked_settings import check_number, choose_safe_effects
from foretrace.evaluation.savings import (
    EagerCall,
    PlannedStep,
    save_by_dispatch,
    save_by_prefetch,
    save_by_running_ahead,
)
from foretrace.evaluation.step_times import AssumedTimes, StepTimes, fill_times, find_step_effect, time_steps

GUESS_S = 0.2
"""Seconds of a guess, where nothing else is said."""
DEPTHS = (1, 2, 3, 4, 5)
"""How many steps ahead are measured."""
MIN_COVERAGE = 0.5
"""Share of steps whose times must be known for a verdict."""
NO_CALL = "(no call)"
_LONGEST_CALLS = 5
"""Calls with a time from stamps that are named."""

TO_RECORD = {
    "no_model_time": "the model's seconds on every reply (`model_s`), or time stamps of its input and its reply",
    "no_tool_time": "the tool's seconds on every result (`tool_s`), or time stamps of the call and of its result",
    "no_result": "the result of every call, with its time",
    "clock_backwards": "time stamps of one clock that only goes forward",
    "absurd_time": "durations in seconds, not below 0 and not above a day",
}
"""By the reason for which a step's times are unknown: what would have to be recorded."""


class _Row(NamedTuple):
    """Names one row of the report, or with an empty name its total."""

    kind: str
    name: str


_TOTAL = _Row("", "")
_KINDS = ("source", "agent", "tool")
_Weights = Sequence[tuple[_Row, float]]
"""The rows that a step counts in, and how much of it."""
_UNIT = 2**60
"""Sums are kept as whole numbers of 1 / `_UNIT`."""
_NOTHING_KNOWN = Saving(saved_s=None, share=None, low=None, high=None)


class _Sums:
    """Exact sums by row and figure, of all traces and of each task: no order of the traces changes a digit."""

    def __init__(self) -> None:
        self._all: defaultdict[tuple[_Row, str], int] = defaultdict(int)
        self._tasks: defaultdict[tuple[_Row, str], defaultdict[str, int]] = defaultdict(lambda: defaultdict(int))

    def add(self, row: _Row, figure: str, value: float, task: str | None = None) -> None:
        """Add to a figure of a row; with `task` also to that of the task."""
        exact = round(value * _UNIT)
        if not exact:
            return
        self._all[row, figure] += exact
        if task is not None:
            self._tasks[row, figure][task] += exact

    def get(self, row: _Row, figure: str) -> float:
        return self._all.get((row, figure), 0) / _UNIT

    def get_tasks(self, row: _Row, figure: str, numbers: dict[str, int]) -> dict[int, float]:
        found = self._tasks.get((row, figure), {})
        return {numbers[task]: value / _UNIT for task, value in found.items()}

    def list_names(self, kind: str) -> list[str]:
        return sorted({row.name for row, _ in self._all if row.kind == kind})


class Ceiling:
    """Takes traces one by one, and makes the report."""

    def __init__(
        self,
        *,
        guess_latency: float = GUESS_S,
        assume_times: AssumedTimes | None = None,
        allow: Collection[str] = (),
        seed: int = 0,
    ) -> None:
        """
        Args:
            guess_latency: Seconds that a guess takes.
            assume_times: Times for steps that have none.
            allow: Effects beside `pure_read` whose calls are safe to run early: `sandbox_exec`.
            seed: Seed of the bootstrap.

        Raises:
            UsageError: a latency that is none, an effect that cannot be allowed, or a negative seed.
        """
        check_number("guess_latency", guess_latency, "seconds, ")
        check_number("seed", seed)
        self._guess_s, self._assumed, self._seed = guess_latency, assume_times, seed
        self._safe = choose_safe_effects(allow)
        self._sums = _Sums()
        self._counts: Counter[str] = Counter()
        self._unknown: Counter[str] = Counter()
        self._overlaps: Counter[str] = Counter()
        self._tasks: set[str] = set()
        self._longest: list[LongCall] = []

    def add(self, trace: Trace) -> None:
        """Take a trace."""
        steps, labels, assumed = time_steps(trace), dict[int, StepLabel](), 0
        if self._assumed is not None or any(step.unknown is None for step in steps):
            labels = {label.index: label for label in label_trace(trace)}
        if self._assumed is not None:
            steps, assumed = fill_times(steps, labels, self._assumed)
        rows_of_steps = [_list_rows(trace, step) for step in steps]
        # From here on nothing of the trace is read any more: what fails on it has counted nothing.
        self._counts["assumed"] += assumed
        self._counts["traces"] += 1
        self._tasks.add(trace.task.id)
        self._counts["steps"] += len(steps)
        self._unknown.update(step.unknown for step in steps if step.unknown is not None)
        run: list[tuple[PlannedStep, _Weights]] = []
        for step, rows in zip(steps, rows_of_steps, strict=True):
            for row, weight in rows:
                self._sums.add(row, "steps", weight)
            if step.unknown is not None or step.after_person:  # nobody knows the time between, or what is said next
                self._add_run(run, trace.task.id)
                run = []
            if step.unknown is None:
                planned = self._add_step(trace, step, labels, rows)
                run.append((planned, rows))
        self._add_run(run, trace.task.id)

    def _add_step(self, trace: Trace, step: StepTimes, labels: Mapping[int, StepLabel], rows: _Weights) -> PlannedStep:
        """Count a step of known times."""
        model_s, tool_s = step.model_s or 0.0, step.tool_s or 0.0
        eligible = bool(step.calls) and find_step_effect(step, labels) in self._safe
        saved = save_by_prefetch(model_s, tool_s, self._guess_s) if eligible else 0.0
        self._counts["known"] += 1
        self._overlaps.update([step.overlap] if step.overlap else [])
        stamped_s = self._add_stamped(trace, step, saved, eligible=eligible)
        for row, weight in rows:
            task = trace.task.id
            self._sums.add(row, "known", weight)
            self._sums.add(row, "model", weight * model_s)
            self._sums.add(row, "tool", weight * tool_s)
            self._sums.add(row, "stamped", weight * stamped_s)
            self._sums.add(row, "eligible", weight * tool_s if eligible else 0.0)
            self._sums.add(row, "wall", weight * (model_s + tool_s), task)
            self._sums.add(row, "oracle", weight * saved, task)
        self._add_dispatch(trace, step, rows, eligible=eligible)
        return PlannedStep(model_s, tool_s, eligible, labels[step.indexes[0]].state_version)

    def _add_stamped(self, trace: Trace, step: StepTimes, saved: float, *, eligible: bool) -> float:
        """Count what of a step's tool time is a difference of stamps; returns its seconds."""
        stamped = math.fsum(call.tool_s or 0.0 for call in step.calls if call.stamped)
        if not stamped or not step.tool_s:
            return 0.0
        part = stamped / math.fsum(call.tool_s or 0.0 for call in step.calls)
        if eligible:
            self._sums.add(_TOTAL, "stamped eligible", part * step.tool_s)
            self._sums.add(_TOTAL, "stamped saved", part * saved)
        calls = (
            LongCall(name=call.name, tool_s=call.tool_s or 0.0, key=trace.key, step=step.indexes[0], eligible=eligible)
            for call in step.calls
            if call.stamped
        )
        self._longest = heapq.nsmallest(
            _LONGEST_CALLS, [*self._longest, *calls], key=lambda call: (-call.tool_s, call.key, call.step, call.name)
        )
        return part * step.tool_s

    def _add_dispatch(self, trace: Trace, step: StepTimes, rows: _Weights, *, eligible: bool) -> None:
        model_s, tool_s = step.model_s or 0.0, step.tool_s or 0.0
        calls = [
            EagerCall(call.tool_s, call.written_at)
            for call in step.calls
            if call.tool_s is not None and call.written_at is not None
        ]
        for row, weight in rows if step.calls else ():
            self._sums.add(row, "calling", weight)
        if len(calls) < len(step.calls):
            return
        self._counts["place_assumed"] += any(call.place_assumed for call in step.calls)
        saved = save_by_dispatch(model_s, tool_s, calls) if eligible else 0.0
        for row, weight in rows:
            task = _find_drawn_task(row, trace.task.id)
            self._sums.add(row, "dispatched", weight if step.calls else 0.0)
            self._sums.add(row, "eager", weight * saved, task)
            self._sums.add(row, "eager wall", weight * (model_s + tool_s), task)

    def _add_run(self, run: Sequence[tuple[PlannedStep, _Weights]], task: str) -> None:
        """Count what running ahead saves on steps that follow one another."""
        for depth in DEPTHS if run else ():
            saving = save_by_running_ahead([step for step, _ in run], depth, self._guess_s)
            for saved, (_, rows) in zip(saving.saved_s, run, strict=True):
                for row, weight in rows if saved else ():
                    self._sums.add(row, f"ahead {depth}", weight * saved, _find_drawn_task(row, task))
            self._sums.add(_TOTAL, f"repeated {depth}", saving.repeated_s)
            self._counts[f"stale {depth}"] += saving.stale

    def make_report(self) -> CeilingReport:
        """The report on all traces so far."""
        sums, counts = self._sums, self._counts
        rows = [_TOTAL, *(_Row(kind, name) for kind in _KINDS for name in sums.list_names(kind))]
        wholes = {"oracle": "wall", **{f"ahead {depth}": "wall" for depth in DEPTHS}, "eager": "eager wall"}
        savings = self._measure_savings([(row, figure, whole) for row in rows for figure, whole in wholes.items()])
        by_kind = {kind: [self._make_row(row, savings) for row in rows if row.kind == kind] for kind in _KINDS}
        for found in by_kind.values():
            found.sort(key=lambda row: (-(row.oracle.saved_s or 0.0), -row.wall_s, -row.steps, row.name))
        total = self._make_row(_TOTAL, savings)
        unknown = sorted(self._unknown.items(), key=lambda item: (-item[1], item[0]))
        return CeilingReport(
            verdict=total.verdict,
            traces=counts["traces"],
            tasks=len(self._tasks),
            steps=counts["steps"],
            known_steps=counts["known"],
            coverage=total.coverage,
            wall_s=total.wall_s,
            model_s=total.model_s,
            tool_s=total.tool_s,
            eligible_s=total.eligible_s,
            oracle=total.oracle,
            ahead={
                str(depth): AheadCeiling(
                    **msgspec.structs.asdict(total.ahead[str(depth)]),
                    stale=counts[f"stale {depth}"],
                    repeated_s=sums.get(_TOTAL, f"repeated {depth}"),
                )
                for depth in DEPTHS
            },
            eager=EagerCeiling(**msgspec.structs.asdict(total.eager), place_assumed_steps=counts["place_assumed"]),
            stamped=self._make_stamped(total),
            sources=by_kind["source"],
            agents=by_kind["agent"],
            tools=by_kind["tool"],
            unknown_steps=dict(unknown),
            to_record=[TO_RECORD[reason] for reason, _ in unknown],
            overlaps=dict(sorted(self._overlaps.items())),
            guess_latency=self._guess_s,
            assume_times=self._assumed,
            assumed_steps=counts["assumed"],
            conclusion=conclude_ceiling(
                total.oracle.share if total.verdict == "known" else None,
                {row.name: row.oracle.saved_s or 0.0 for row in by_kind["tool"]},
            ),
            allow=sorted(self._safe),
            seed=self._seed,
        )

    def _measure_savings(self, ratios: Sequence[tuple[_Row, str, str]]) -> dict[tuple[_Row, str], Saving]:
        """The saving of each (row, figure of what is saved, figure of the time that it is a share of)."""
        numbers = {task: number for number, task in enumerate(sorted(self._tasks))}
        intervals = measure_intervals(
            {
                (row, figure): (
                    self._sums.get_tasks(row, figure, numbers),
                    self._sums.get_tasks(row, whole, numbers),
                )
                for row, figure, whole in ratios
                if figure == "oracle" or _has_intervals(row)
            },
            len(numbers),
            seed=self._seed,
        )
        savings: dict[tuple[_Row, str], Saving] = {}
        for row, figure, whole in ratios:
            wall, saved = self._sums.get(row, whole), self._sums.get(row, figure)
            low, high = intervals.get((row, figure), (None, None))
            savings[row, figure] = (
                Saving(saved_s=saved, share=saved / wall, low=low, high=high) if wall else _NOTHING_KNOWN
            )
        return savings

    def _make_stamped(self, total: CeilingRow) -> StampedTime:
        eligible_s = self._sums.get(_TOTAL, "stamped eligible")
        return StampedTime(
            tool_s=total.stamped_s,
            share=_divide(total.stamped_s, total.tool_s),
            eligible_s=eligible_s,
            eligible_share=_divide(eligible_s, total.eligible_s),
            saved_s=self._sums.get(_TOTAL, "stamped saved"),
            longest=self._longest,
        )

    def _make_row(self, row: _Row, savings: Mapping[tuple[_Row, str], Saving]) -> CeilingRow:
        steps, known = self._sums.get(row, "steps"), self._sums.get(row, "known")
        coverage = min(1.0, known / steps) if steps else 0.0
        dispatched = _divide(self._sums.get(row, "dispatched"), self._sums.get(row, "calling"))
        if dispatched is None:  # no call, so nothing to save and nothing to know
            dispatched = 1.0 if known else 0.0
        return CeilingRow(
            name=row.name,
            steps=steps,
            coverage=coverage,
            verdict=decide_verdict(coverage),
            wall_s=self._sums.get(row, "wall"),
            model_s=self._sums.get(row, "model"),
            tool_s=self._sums.get(row, "tool"),
            stamped_s=self._sums.get(row, "stamped"),
            eligible_s=self._sums.get(row, "eligible"),
            oracle=savings[row, "oracle"],
            ahead={str(depth): savings[row, f"ahead {depth}"] for depth in DEPTHS},
            eager=EagerSaving(
                **msgspec.structs.asdict(savings[row, "eager"] if dispatched else _NOTHING_KNOWN),
                coverage=dispatched,
                verdict=decide_verdict(min(dispatched, coverage)),
            ),
        )


def measure_ceiling(
    traces: Iterable[Trace],
    *,
    guess_latency: float = GUESS_S,
    assume_times: AssumedTimes | None = None,
    allow: Collection[str] = (),
    seed: int = 0,
    report_traces: Callable[[int], None] = lambda n: None,
) -> CeilingReport:
    """Measure what a perfect predictor would save on traces; see `Ceiling` for the arguments and errors.

    Args:
        report_traces: Called with the number of traces so far.
    """
    ceiling = Ceiling(guess_latency=guess_latency, assume_times=assume_times, allow=allow, seed=seed)
    for number, trace in enumerate(traces, 1):
        with contain_errors("ceiling", trace.key):
            ceiling.add(trace)
        report_traces(number)
    return ceiling.make_report()


def decide_verdict(coverage: float) -> Verdict:
    """`unknown` where the times of less than half of the steps are known."""
    return "known" if coverage >= MIN_COVERAGE else "unknown"


def _has_intervals(row: _Row) -> bool:
    """Whether what running ahead and early calls save has an interval: not by tool, of which there may be hundreds."""
    return row.kind != "tool"


def _find_drawn_task(row: _Row, task: str) -> str | None:
    return task if _has_intervals(row) else None


def _divide(part: float, whole: float) -> float | None:
    """A share, at most 1; None of nothing."""
    return min(1.0, part / whole) if whole else None


def _list_rows(trace: Trace, step: StepTimes) -> list[tuple[_Row, float]]:
    """The rows that a step counts in, with its weight there: it is shared between the tools that it calls by their
    time, or equally where that is not known or 0."""
    origin = trace.provenance
    rows = [
        (_TOTAL, 1.0),
        (_Row("source", origin.source), 1.0),
        (_Row("agent", origin.agent or origin.model or "(unknown)"), 1.0),
    ]
    if not step.calls:
        return [*rows, (_Row("tool", NO_CALL), 1.0)]
    times = [call.tool_s for call in step.calls]
    known = [seconds for seconds in times if seconds is not None]
    total = math.fsum(known) if len(known) == len(times) else 0.0
    weights: defaultdict[str, float] = defaultdict(float)
    for call in step.calls:
        weights[call.name] += (call.tool_s or 0.0) / total if total else 1 / len(step.calls)
    return [*rows, *((_Row("tool", name), weight) for name, weight in weights.items())]
