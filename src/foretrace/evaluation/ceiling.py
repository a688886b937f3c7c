"""The ceiling: how much time a perfect predictor of the next calls would save on traces, computed without any model.

All figures cover the steps with known times (`step_times`), and come with their coverage, the share of such steps. If
it is below half, the verdict is `unknown`. The simulator of `replay` runs with the true calls as guesses, so the
figures are upper limits.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from foretrace.actions.label_steps import label_trace
from foretrace.actions.taxonomy import Effect, StepLabel
from foretrace.core.internal_errors import contain_errors
from foretrace.core.report import Report
from foretrace.core.store import TraceStore
from foretrace.core.trace import Trace
from foretrace.evaluation.bootstrap import Resamples
from foretrace.evaluation.savings import (
    GUESS_S,
    MIN_COVERAGE,
    Conclusion,
    Saving,
    Verdict,
    check_number,
    choose_safe_effects,
    conclude_ceiling,
)
from foretrace.evaluation.simulator import SimulatedStep, guess_true_calls, simulate
from foretrace.evaluation.step_times import (
    AssumedTimes,
    StepTimes,
    fill_times,
    find_step_effect,
    split_runs,
    time_steps,
)

DEPTHS = (1, 2, 3, 4, 5)
"""Numbers of steps ahead that are measured."""
NO_CALL = "(no call)"
_HELD_BY = {Effect.PURE_READ: "pure", Effect.SANDBOX_EXEC: "forkable", Effect.LOCAL_WRITE: "forkable"}
"""What can take calls back, by their effect; nothing else can."""
_LONGEST_CALLS = 5
"""Number of calls timed by time stamps that the report names."""


class AheadCeiling(Saving, frozen=True, kw_only=True):
    """What running ahead saves."""

    stale: int
    """Launches made stale by a write: these calls are paid again."""


class HeldBy(Saving, frozen=True, kw_only=True):
    """The steps whose calls can be undone in the same way, and the most that guessing these calls saves."""

    name: Literal["pure", "forkable", "none"]
    """`pure`: they only read. `forkable`: they run code or change files, as tests and builds do, which can be confined
    to a copy of the process and its files (effects `sandbox_exec` and `local_write`). `none`: they cannot be undone, or
    their effect is unknown; they are never run early and save nothing."""
    steps: int
    tool_s: float


class LongCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call that took long according to its time stamps."""

    name: str
    tool_s: float
    key: str
    step: int
    """Index of the agent's message in the trace."""


class CeilingRow(msgspec.Struct, frozen=True, kw_only=True):
    """The ceiling of one source, agent or tool, or of all traces."""

    name: str
    steps: float
    """A step that calls several tools is divided between them by their time."""
    coverage: float
    verdict: Verdict
    wall_s: float
    model_s: float
    tool_s: float
    stamped_s: float
    """Part of the tool time that is a difference of the time stamps of call and result. If a person had to approve the
    call, it includes that wait, unless the source marks such calls; these have no time at all."""
    eligible_s: float
    """Tool time of steps all of whose calls are safe to run early."""
    oracle: Saving
    """Saving of running each step's calls while the model is still writing them."""
    ahead: Mapping[str, Saving]
    """Saving at this row's steps, by the number of steps guessed ahead; all steps are guessed."""


class CeilingReport(Report, CeilingRow, frozen=True, kw_only=True):
    """What a perfect predictor would save; seconds cover the steps with known times."""

    ahead: Mapping[str, AheadCeiling]  # pyright: ignore[reportIncompatibleVariableOverride]
    traces: int
    tasks: int
    known_steps: int
    held_by: list[HeldBy]
    """`pure`, `forkable` and `none`, regardless of `allow`; shares are of all time."""
    longest_stamped: list[LongCall]
    """The longest of the calls that are timed by time stamps, at most five, for a person to look at."""
    sources: list[CeilingRow]
    agents: list[CeilingRow]
    tools: list[CeilingRow]
    """The largest saving first."""
    unknown_steps: dict[str, int]
    """Steps with unknown times, by reason, the most frequent first."""
    overlaps: dict[str, int]
    """Steps with several results, by how their times were combined: `union`, or `longest` (too short if calls ran one
    after another)."""
    guess_latency: float
    assume_times: AssumedTimes | None
    assumed_steps: int
    """Steps whose times are assumed rather than measured."""
    conclusion: Conclusion
    allow: list[str]
    seed: int


class _Row(NamedTuple):
    """Identifies a row of the report; an empty name means the total."""

    kind: str
    name: str


_TOTAL = _Row("", "")
_UNIT = 2**60
"""Sums are kept as integer multiples of 1 / `_UNIT`, so that they do not depend on the order of the traces."""
_SUMMED = ("steps", "wall_s", "model_s", "tool_s", "stamped_s", "eligible_s")
"""Figures that are fields of `CeilingRow`."""
_SAVED = (*(f"ahead {depth}" for depth in DEPTHS), "pure saved", "forkable saved", "none saved")
"""Figures of seconds saved, reported as shares of `wall_s`."""


class Ceiling:
    """Takes traces one by one, or what others took of other traces (`merge`), and makes the report."""

    def __init__(
        self,
        *,
        guess_latency: float = GUESS_S,
        assume_times: AssumedTimes | None = None,
        allow: Collection[str] = (),
        seed: int = 0,
    ) -> None:
        check_number("guess_latency", guess_latency, "seconds, ")
        check_number("seed", seed)
        self._guess_s, self._assumed, self._seed = guess_latency, assume_times, seed
        self._safe = choose_safe_effects(allow)
        self._sums: dict[_Row, dict[str, Counter[str]]] = {}
        """By row and task: the sum of each figure."""
        self._counts: Counter[str] = Counter()
        self._unknown: Counter[str] = Counter()
        self._overlaps: Counter[str] = Counter()
        self._tasks: set[str] = set()
        self._longest: list[LongCall] = []

    def add_all(self, traces: Iterable[Trace]) -> None:
        """Add traces; one that cannot be measured is reported and left out."""
        for trace in traces:
            with contain_errors("ceiling", trace.key):
                self.add(trace)

    def merge(self, other: Ceiling) -> None:
        for row, tasks in other._sums.items():
            for task, sums in tasks.items():
                self._get_sums(row, task).update(sums)
        for own, more in (
            (self._counts, other._counts),
            (self._unknown, other._unknown),
            (self._overlaps, other._overlaps),
            (self._tasks, other._tasks),
        ):
            own.update(more)
        self._add_longest(other._longest)

    def add(self, trace: Trace) -> None:
        steps, labels, assumed = time_steps(trace), dict[int, StepLabel](), 0
        if self._assumed is not None or any(step.unknown is None for step in steps):
            labels = {label.index: label for label in label_trace(trace)}
        if self._assumed is not None:
            steps, assumed = fill_times(steps, labels, self._assumed)
        rows = {step.indexes: _list_rows(trace, step) for step in steps}
        # The trace is not read any further: if reading it failed above, nothing of it has been counted.
        task = trace.task.id
        self._tasks.add(task)
        self._counts.update(traces=1, steps=len(steps), assumed=assumed)
        self._unknown.update(step.unknown for step in steps if step.unknown is not None)
        for step in steps:
            self._add_figures(rows[step.indexes], task, {"steps": 1.0})
        for run in split_runs(steps):
            effects = [find_step_effect(step, labels) if step.calls else None for step in run]
            saved = self._run_ahead(run, effects, labels)
            for at, (step, effect) in enumerate(zip(run, effects, strict=True)):
                figures = self._measure_step(step, effect)
                figures |= {f"ahead {depth}": seconds[at] for depth, seconds in saved.items()}
                self._add_figures(rows[step.indexes], task, figures)
                self._add_longest(
                    LongCall(name=call.name, tool_s=call.tool_s, key=trace.key, step=step.indexes[0])
                    for call in step.calls
                    if call.stamped and call.tool_s
                )

    def _add_figures(self, rows: Mapping[_Row, float], task: str, figures: Mapping[str, float]) -> None:
        for row, weight in rows.items():
            sums = self._get_sums(row, task)
            for figure, value in figures.items():
                if value:
                    sums[figure] += round(weight * value * _UNIT)

    def _get_sums(self, row: _Row, task: str) -> Counter[str]:
        return self._sums.setdefault(row, {}).setdefault(task, Counter())

    def _run_ahead(
        self, run: Sequence[StepTimes], effects: Sequence[Effect | None], labels: Mapping[int, StepLabel]
    ) -> dict[int, tuple[float, ...]]:
        """Seconds that running ahead saves at each step of a run, by depth."""
        steps: list[SimulatedStep] = []
        for step, effect in zip(run, effects, strict=True):
            tool_s, version = step.tool_s or 0.0, labels[step.indexes[0]].state_version
            timed = SimulatedStep(step.model_s or 0.0, tool_s, (tool_s,), effect in self._safe, version, self._guess_s)
            steps.append(guess_true_calls(timed))
        saved: dict[int, tuple[float, ...]] = {}
        for depth in DEPTHS:
            done = simulate(steps, depth)
            self._counts[f"stale {depth}"] += sum(launch.stale for launch in done.launches)
            saved[depth] = done.saved_s
        return saved

    def _measure_step(self, step: StepTimes, effect: Effect | None) -> dict[str, float]:
        model_s, tool_s = step.model_s or 0.0, step.tool_s or 0.0
        stamped = math.fsum(call.tool_s or 0.0 for call in step.calls if call.stamped)
        measured = math.fsum(call.tool_s or 0.0 for call in step.calls)
        self._overlaps.update([step.overlap] if step.overlap else [])
        figures = {
            "known": 1.0,
            "model_s": model_s,
            "tool_s": tool_s,
            "stamped_s": tool_s * stamped / measured if stamped else 0.0,
            "eligible_s": tool_s if effect in self._safe else 0.0,
            "wall_s": model_s + tool_s,
        }
        if effect is not None:
            holder = _HELD_BY.get(effect, "none")
            hidden_s = 0.0 if holder == "none" else min(tool_s, max(0.0, model_s - self._guess_s))
            figures |= {f"{holder} steps": 1.0, f"{holder} tool_s": tool_s, f"{holder} saved": hidden_s}
        return figures

    def _add_longest(self, calls: Iterable[LongCall]) -> None:
        self._longest = heapq.nsmallest(
            _LONGEST_CALLS, [*self._longest, *calls], key=lambda call: (-call.tool_s, call.key, call.step, call.name)
        )

    def make_report(self) -> CeilingReport:
        counts, resamples = self._counts, Resamples(sorted(self._tasks), self._seed)
        total, savings = self._make_row(_TOTAL, resamples)
        rows: dict[str, list[CeilingRow]] = {"source": [], "agent": [], "tool": []}
        for row in sorted(self._sums.keys() - {_TOTAL}):
            rows[row.kind].append(self._make_row(row, resamples)[0])
        for found in rows.values():
            found.sort(key=lambda row: (-(row.oracle.saved_s or 0.0), -row.wall_s, -row.steps, row.name))
        own = {name: getattr(total, name) for name in CeilingRow.__struct_fields__}
        own["name"] = "all"
        own["ahead"] = {
            depth: AheadCeiling(**msgspec.structs.asdict(saving), stale=counts[f"stale {depth}"])
            for depth, saving in total.ahead.items()
        }
        return CeilingReport(
            **own,
            traces=counts["traces"],
            tasks=len(self._tasks),
            known_steps=round(self._sum(_TOTAL, "known")),
            held_by=[
                HeldBy(
                    name=holder,
                    steps=round(self._sum(_TOTAL, f"{holder} steps")),
                    tool_s=self._sum(_TOTAL, f"{holder} tool_s"),
                    **msgspec.structs.asdict(savings[f"{holder} saved"]),
                )
                for holder in ("pure", "forkable", "none")
            ],
            longest_stamped=self._longest,
            sources=rows["source"],
            agents=rows["agent"],
            tools=rows["tool"],
            unknown_steps=dict(sorted(self._unknown.items(), key=lambda item: (-item[1], item[0]))),
            overlaps=dict(sorted(self._overlaps.items())),
            guess_latency=self._guess_s,
            assume_times=self._assumed,
            assumed_steps=counts["assumed"],
            conclusion=conclude_ceiling(
                total.oracle.share if total.verdict == "known" else None,
                {row.name: row.oracle.saved_s or 0.0 for row in rows["tool"]},
            ),
            allow=sorted(self._safe),
            seed=self._seed,
        )

    def _sum(self, row: _Row, figure: str) -> float:
        return sum(sums[figure] for sums in self._sums.get(row, {}).values()) / _UNIT

    def _make_row(self, row: _Row, resamples: Resamples) -> tuple[CeilingRow, dict[str, Saving]]:
        sums = {name: self._sum(row, name) for name in _SUMMED}
        steps = sums.pop("steps")
        coverage = min(1.0, self._sum(row, "known") / steps) if steps else 0.0
        savings = dict.fromkeys(_SAVED, Saving(saved_s=None, share=None, low=None, high=None))
        if wall_s := sums["wall_s"]:
            by_task = [self._sums[row].get(task, {}) for task in sorted(self._tasks)]
            wall, *parts = ([own.get(name, 0) / _UNIT for own in by_task] for name in ("wall_s", *_SAVED))
            for name, (low, high) in zip(
                _SAVED, resamples.find_ratio_intervals([(part, wall) for part in parts]), strict=True
            ):
                saved_s = self._sum(row, name)
                savings[name] = Saving(saved_s=saved_s, share=saved_s / wall_s, low=low, high=high)
        made = CeilingRow(
            name=row.name,
            steps=int(steps) if steps.is_integer() else steps,
            **sums,
            coverage=coverage,
            verdict="known" if coverage >= MIN_COVERAGE else "unknown",
            oracle=savings["ahead 1"],
            ahead={str(depth): savings[f"ahead {depth}"] for depth in DEPTHS},
        )
        return made, savings


def measure_shard(settings: Mapping[str, Any], folder: Path, shard: int) -> Ceiling:
    """One worker's part: the traces of one shard of a folder. `settings` are the arguments of `Ceiling`."""
    found = Ceiling(**settings)
    found.add_all(TraceStore(folder).read(shard))
    return found


def _list_rows(trace: Trace, step: StepTimes) -> dict[_Row, float]:
    """The rows that a step counts in, with its weight in each: it is divided between the tools it calls by their times,
    or equally if these are unknown or 0."""
    origin = trace.provenance
    names = {"source": origin.source, "agent": origin.agent or origin.model or "(unknown)"}
    rows = {_TOTAL: 1.0} | {_Row(kind, name): 1.0 for kind, name in names.items()}
    if not step.calls:
        return rows | {_Row("tool", NO_CALL): 1.0}
    known = [call.tool_s for call in step.calls if call.tool_s is not None]
    total = math.fsum(known) if len(known) == len(step.calls) else 0.0
    for call in step.calls:
        row = _Row("tool", call.name)
        rows[row] = rows.get(row, 0.0) + ((call.tool_s or 0.0) / total if total else 1 / len(step.calls))
    return rows
