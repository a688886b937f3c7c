"""The records of what `ceiling` found."""

from __future__ import annotations

from typing import Literal

import msgspec

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


class EagerCeiling(Saving, frozen=True, kw_only=True):
    """What dispatch without a guess saves, over the steps of which it is known."""

    coverage: float
    """Share of the steps with calls (of known times) of which it is known how much of the reply follows the calls."""
    verdict: Verdict
    place_assumed_steps: int
    """Those of them with native calls, which are taken to stand at the end of their reply, in their order."""


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
    eligible_s: float
    oracle: Saving


class CeilingReport(msgspec.Struct, frozen=True, kw_only=True):
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
    proposer_s: float
    allow: list[str]
    seed: int
