"""The records of what `ceiling` found."""

from __future__ import annotations

from typing import Literal

import msgspec

from foretrace.core.report import Report
from foretrace.evaluation.assumed_times import AssumedTimes
from foretrace.evaluation.conclusion import Conclusion

Verdict = Literal["known", "unknown"]
"""`unknown`: the times of fewer than half of the steps are known; figures are then of the others alone."""


class Saving(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds saved of the known time; None where nothing is known."""

    saved_s: float | None
    share: float | None
    low: float | None
    """Of the share: a 95 % interval over tasks."""
    high: float | None


class AheadCeiling(Saving, frozen=True, kw_only=True):
    """What running ahead saves."""

    stale: int
    """Launches that a write overtook."""
    repeated_s: float
    """Tool seconds that they cost, and that were paid again."""


class EagerSaving(Saving, frozen=True, kw_only=True):
    """What dispatch without a guess saves, over the steps of which it is known."""

    coverage: float
    """Share of the steps with calls (of known times) of which it is known how much of the reply follows the calls; 1
    where no step of known times has a call."""
    verdict: Verdict


class EagerCeiling(EagerSaving, frozen=True, kw_only=True):
    """The same, of all traces."""

    place_assumed_steps: int
    """Those of them with native calls, which are taken to stand at the end of their reply, in their order."""


class LongCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call that took long by its stamps."""

    name: str
    tool_s: float
    key: str
    """Of the trace."""
    step: int
    """Index of the agent's message in it."""
    eligible: bool
    """Whether its step is safe to run early."""


class StampedTime(msgspec.Struct, frozen=True, kw_only=True):
    """Tool time that nobody measured: the result's stamp less that of the call. Where a person had to allow the call,
    that wait is in it, unless the source tells it apart: then the call has no time at all."""

    tool_s: float
    share: float | None
    """Of all tool time; None where there is none."""
    eligible_s: float
    """Of it, in calls that are safe to run early."""
    eligible_share: float | None
    """Of all tool time in such calls."""
    saved_s: float
    """Of the oracle's saving."""
    longest: list[LongCall]
    """The longest of these calls, at most five: what a person should look at."""


class CeilingRow(msgspec.Struct, frozen=True, kw_only=True):
    """The ceiling of one source, agent or tool."""

    name: str
    steps: float
    """A step with calls of several tools counts in parts, by their time."""
    coverage: float
    verdict: Verdict
    wall_s: float
    model_s: float
    tool_s: float
    stamped_s: float
    """Of the tool time, what is a difference of stamps."""
    eligible_s: float
    oracle: Saving
    ahead: dict[str, Saving]
    """By the number of steps: what is saved of the time of this row's steps, while all steps are guessed ahead."""
    eager: EagerSaving


class CeilingReport(Report, msgspec.Struct, frozen=True, kw_only=True):
    """What a perfect predictor would save; seconds are of steps whose times are known."""

    verdict: Verdict
    traces: int
    tasks: int
    steps: int
    known_steps: int
    coverage: float
    """Share of steps whose times are known."""
    wall_s: float
    """Model and tool time together; waiting for a person is not in it."""
    model_s: float
    tool_s: float
    eligible_s: float
    """Tool time of steps all of whose calls are safe to run early."""
    oracle: Saving
    """Prefetching the calls of every step while the model writes them."""
    ahead: dict[str, AheadCeiling]
    """By the number of steps."""
    eager: EagerCeiling
    stamped: StampedTime
    sources: list[CeilingRow]
    agents: list[CeilingRow]
    tools: list[CeilingRow]
    """The most saved first."""
    unknown_steps: dict[str, int]
    """Steps of unknown times, by reason."""
    to_record: list[str]
    """What would have to be recorded for more coverage, the most frequent want first."""
    overlaps: dict[str, int]
    """Steps with several results, by how their times became one: `union`, or `longest` (too short where calls ran one
    after another)."""
    guess_latency: float
    assume_times: AssumedTimes | None
    assumed_steps: int
    """Steps whose times are assumed, and not measured."""
    conclusion: Conclusion
    allow: list[str]
    seed: int
