"""The ceiling: how much time a perfect predictor of the next calls would save on traces, computed without any model.

All figures cover the steps with known times (`step_times`), and come with their coverage, the share of such steps. If
it is below half, the verdict is `unknown`. The simulator of `replay` runs with the true calls as guesses, so the
figures are upper limits.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Literal, NamedTuple

import msgspec

from foretrace.actions.label_steps import label_trace
from foretrace.actions.taxonomy import Effect, StepLabel
from foretrace.core.trace import Trace
from foretrace.evaluation.bootstrap import Resamples
from foretrace.evaluation.ceiling_report import (
    AheadCeiling,
    CeilingReport,
    CeilingRow,
    HeldBy,
    LongCall,
    Saving,
    StampedTime,
    Verdict,
    conclude_ceiling,
)
from foretrace.evaluation.checked_settings import check_number, choose_safe_effects
from foretrace.evaluation.event_simulator import GuessedCall, SimulatedStep, Speculation, simulate
from foretrace.evaluation.step_times import (
    AssumedTimes,
    StepTimes,
    fill_times,
    find_step_effect,
    split_runs,
    time_steps,
)

GUESS_S = 0.2
"""Default duration of a guess in seconds."""
DEPTHS = (1, 2, 3, 4, 5)
"""Numbers of steps ahead that are measured."""
MIN_COVERAGE = 0.5
"""Share of steps whose times must be known for a verdict."""
FORKABLE = (Effect.SANDBOX_EXEC, Effect.LOCAL_WRITE)
"""Effects that can be confined to a copy of the process and its files."""
_HOLDERS: tuple[Literal["pure", "forkable", "none"], ...] = ("pure", "forkable", "none")
NO_CALL = "(no call)"
_LONGEST_CALLS = 5
"""Number of calls timed by time stamps that the report names."""

TO_RECORD = {
    "no_model_time": "the model's seconds on every reply (`model_s`), or time stamps of its input and its reply",
    "no_tool_time": "the tool's seconds on every result (`tool_s`), or time stamps of the call and of its result",
    "no_result": "the result of every call, with its time",
    "clock_backwards": "time stamps of one clock that only goes forward",
    "absurd_time": "durations in seconds, not below 0 and not above a day",
}
"""What would have to be recorded, by the reason why a step's times are unknown."""


class _Row(NamedTuple):
    """Identifies a row of the report; an empty name means the total."""

    kind: str
    name: str


_TOTAL = _Row("", "")
_KINDS = ("source", "agent", "tool")
_Weights = Sequence[tuple[_Row, float]]
"""The rows that a step counts in, with its weight in each."""
_UNIT = 2**60
"""Sums are kept as integer multiples of 1 / `_UNIT`."""
_SUMMED = ("steps", "wall_s", "model_s", "tool_s", "stamped_s", "eligible_s")
"""Figures that are fields of `CeilingRow`."""
_SAVED = (*(f"ahead {depth}" for depth in DEPTHS), *(f"{holder} saved" for holder in _HOLDERS))
"""Figures of seconds saved, reported as shares of `wall_s`."""


class _Sums:
    """Exact sums by row, figure and task, which do not depend on the order of the traces."""

    def __init__(self) -> None:
        self._by_task: defaultdict[tuple[_Row, str], Counter[str]] = defaultdict(Counter)

    def add(self, rows: _Weights, task: str, figures: Mapping[str, float]) -> None:
        """Add to the figures of the rows that a step counts in."""
        for row, weight in rows:
            for figure, value in figures.items():
                if exact := round(weight * value * _UNIT):
                    self._by_task[row, figure][task] += exact

    def get(self, row: _Row, figure: str) -> float:
        return self._by_task[row, figure].total() / _UNIT

    def list_tasks(self, row: _Row, figure: str, tasks: Sequence[str]) -> list[float]:
        found = self._by_task[row, figure]
        return [found.get(task, 0) / _UNIT for task in tasks]

    def list_rows(self, kind: str) -> list[_Row]:
        return sorted({row for row, _ in self._by_task if row.kind == kind})


class Ceiling:
    """Takes traces one by one and makes the report."""

    def __init__(
        self,
        *,
        guess_latency: float = GUESS_S,
        assume_times: AssumedTimes | None = None,
        allow: Collection[str] = (),
        seed: int = 0,
    ) -> None:
        """
        Raises:
            UsageError: a setting is invalid.
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
        """Add a trace."""
        steps, labels, assumed = time_steps(trace), dict[int, StepLabel](), 0
        if self._assumed is not None or any(step.unknown is None for step in steps):
            labels = {label.index: label for label in label_trace(trace)}
        if self._assumed is not None:
            steps, assumed = fill_times(steps, labels, self._assumed)
        rows = {step.indexes: _list_rows(trace, step) for step in steps}
        # The trace is not read any further: if reading it failed above, nothing of it has been counted.
        self._tasks.add(trace.task.id)
        self._counts.update(traces=1, steps=len(steps), assumed=assumed)
        self._unknown.update(step.unknown for step in steps if step.unknown is not None)
        for step in steps:
            self._sums.add(rows[step.indexes], trace.task.id, {"steps": 1.0})
        for run in split_runs(steps):
            eligible = [bool(step.calls) and find_step_effect(step, labels) in self._safe for step in run]
            saved = self._run_ahead(run, eligible, labels, trace.task.id)
            for at, step in enumerate(run):
                effect = find_step_effect(step, labels) if step.calls else None
                figures = self._measure_step(step, effect, eligible=eligible[at])
                figures |= {f"ahead {depth}": seconds[at] for depth, seconds in saved.items()}
                self._sums.add(rows[step.indexes], trace.task.id, figures)
                self._note_longest(trace.key, step)

    def _run_ahead(
        self, run: Sequence[StepTimes], eligible: Sequence[bool], labels: Mapping[int, StepLabel], task: str
    ) -> dict[int, tuple[float, ...]]:
        """Seconds that running ahead saves at each step of a run, by depth."""
        steps: list[SimulatedStep] = []
        for step, is_eligible in zip(run, eligible, strict=True):
            model_s, tool_s = step.model_s or 0.0, step.tool_s or 0.0
            guesses = (GuessedCall(tool_s, (0,)),) if is_eligible and tool_s else ()
            version = labels[step.indexes[0]].state_version
            steps.append(SimulatedStep(model_s, tool_s, (tool_s,), is_eligible, version, self._guess_s, guesses))
        saved: dict[int, tuple[float, ...]] = {}
        for depth in DEPTHS:
            done = simulate(steps, Speculation(depth, cancel=False))
            stale = [launch.wasted_s for launch in done.launches if launch.stale]
            self._counts[f"stale {depth}"] += len(stale)
            self._sums.add([(_TOTAL, 1.0)], task, {f"repeated {depth}": math.fsum(stale)})
            saved[depth] = done.saved_s
        return saved

    def _measure_step(self, step: StepTimes, effect: Effect | None, *, eligible: bool) -> dict[str, float]:
        """The figures of a step with known times, except those of its run."""
        model_s, tool_s = step.model_s or 0.0, step.tool_s or 0.0
        stamped = math.fsum(call.tool_s or 0.0 for call in step.calls if call.stamped)
        measured = math.fsum(call.tool_s or 0.0 for call in step.calls)
        self._overlaps.update([step.overlap] if step.overlap else [])
        figures = {
            "known": 1.0,
            "model_s": model_s,
            "tool_s": tool_s,
            "stamped_s": tool_s * stamped / measured if stamped else 0.0,
            "eligible_s": tool_s if eligible else 0.0,
            "wall_s": model_s + tool_s,
        }
        if effect is not None:
            holder = "pure" if effect is Effect.PURE_READ else "forkable" if effect in FORKABLE else "none"
            hidden_s = min(tool_s, max(0.0, model_s - self._guess_s))
            figures |= {f"{holder} steps": 1.0, f"{holder} tool_s": tool_s}
            figures[f"{holder} saved"] = 0.0 if holder == "none" else hidden_s
        return figures

    def _note_longest(self, key: str, step: StepTimes) -> None:
        calls = (
            LongCall(name=call.name, tool_s=call.tool_s or 0.0, key=key, step=step.indexes[0])
            for call in step.calls
            if call.stamped and call.tool_s
        )
        self._longest = heapq.nsmallest(
            _LONGEST_CALLS, [*self._longest, *calls], key=lambda call: (-call.tool_s, call.key, call.step, call.name)
        )

    def make_report(self) -> CeilingReport:
        """The report on all traces so far."""
        sums, counts = self._sums, self._counts
        resamples = Resamples(sorted(self._tasks), self._seed)
        savings = self._measure_savings(_TOTAL, resamples)
        total = self._make_row(_TOTAL, resamples)
        by_kind = {kind: [self._make_row(row, resamples) for row in sums.list_rows(kind)] for kind in _KINDS}
        for found in by_kind.values():
            found.sort(key=lambda row: (-(row.oracle.saved_s or 0.0), -row.wall_s, -row.steps, row.name))
        unknown = sorted(self._unknown.items(), key=lambda item: (-item[1], item[0]))
        names = ("verdict", "coverage", "wall_s", "model_s", "tool_s", "eligible_s", "oracle")
        return CeilingReport(
            **{name: getattr(total, name) for name in names},
            traces=counts["traces"],
            tasks=len(self._tasks),
            steps=counts["steps"],
            known_steps=round(sums.get(_TOTAL, "known")),
            ahead={
                str(depth): AheadCeiling(
                    **msgspec.structs.asdict(total.ahead[str(depth)]),
                    stale=counts[f"stale {depth}"],
                    repeated_s=sums.get(_TOTAL, f"repeated {depth}"),
                )
                for depth in DEPTHS
            },
            held_by=[
                HeldBy(
                    name=holder,
                    steps=round(sums.get(_TOTAL, f"{holder} steps")),
                    tool_s=sums.get(_TOTAL, f"{holder} tool_s"),
                    **msgspec.structs.asdict(savings[f"{holder} saved"]),
                )
                for holder in _HOLDERS
            ],
            stamped=StampedTime(
                tool_s=total.stamped_s, share=_find_share(total.stamped_s, total.tool_s), longest=self._longest
            ),
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

    def _measure_savings(self, row: _Row, resamples: Resamples) -> dict[str, Saving]:
        """How much each way saves of a row's time."""
        tasks = sorted(self._tasks)
        wall_s, wall = self._sums.get(row, "wall_s"), self._sums.list_tasks(row, "wall_s", tasks)
        if not wall_s:
            return dict.fromkeys(_SAVED, Saving(saved_s=None, share=None, low=None, high=None))
        saved = {name: self._sums.get(row, name) for name in _SAVED}
        intervals = resamples.find_ratio_intervals([(self._sums.list_tasks(row, name, tasks), wall) for name in _SAVED])
        return {
            name: Saving(saved_s=saved_s, share=saved_s / wall_s, low=low, high=high)
            for (name, saved_s), (low, high) in zip(saved.items(), intervals, strict=True)
        }

    def _make_row(self, row: _Row, resamples: Resamples) -> CeilingRow:
        sums, savings = {name: self._sums.get(row, name) for name in _SUMMED}, self._measure_savings(row, resamples)
        coverage = _find_share(self._sums.get(row, "known"), sums["steps"]) or 0.0
        return CeilingRow(
            name=row.name,
            **sums,
            coverage=coverage,
            verdict=decide_verdict(coverage),
            oracle=savings["ahead 1"],
            ahead={str(depth): savings[f"ahead {depth}"] for depth in DEPTHS},
        )


def decide_verdict(coverage: float) -> Verdict:
    """`unknown` if fewer than half of the steps have known times."""
    return "known" if coverage >= MIN_COVERAGE else "unknown"


def _find_share(part: float, whole: float) -> float | None:
    """A share, at most 1; None if the whole is 0."""
    return min(1.0, part / whole) if whole else None


def _list_rows(trace: Trace, step: StepTimes) -> list[tuple[_Row, float]]:
    """The rows that a step counts in, with its weight in each: it is divided between the tools it calls by their times,
    or equally if these are unknown or 0."""
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
