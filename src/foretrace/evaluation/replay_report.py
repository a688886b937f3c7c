"""The settings and the report of `replay`."""

from __future__ import annotations

import math
from typing import Literal

import msgspec

from foretrace.core.errors import Setting, UsageError
from foretrace.core.report import Report
from foretrace.evaluation.savings import Conclusion, Saving, Verdict, check_number, choose_safe_effects
from foretrace.evaluation.step_times import AssumedTimes

Gate = Literal["score", "confidence"]
"""What a threshold applies to: the verifier's score, or if no guess has one, the proposer's confidence."""


class ReplaySettings(msgspec.Struct, frozen=True, kw_only=True):
    """How guesses are run: the arguments of `foretrace.replay`."""

    guess_latency: float | None = None
    assume_times: AssumedTimes | None = None
    verifier_s: float | None = None
    threshold: float | None = None
    ahead: int = 1
    top: int = 1
    allow: tuple[str, ...] = ()
    seed: int = 0

    def check(self) -> None:
        """Refuse values that are out of range."""
        for name in ("guess_latency", "verifier_s"):
            check_number(name, getattr(self, name), "seconds, ")
        for name, lowest in (("ahead", 1), ("top", 1), ("seed", 0)):
            check_number(name, getattr(self, name), lowest=lowest)
        if self.threshold is not None and not math.isfinite(self.threshold):
            raise UsageError(Setting("threshold", self.threshold), ": give a number")
        choose_safe_effects(self.allow)


class Percentiles(msgspec.Struct, frozen=True, kw_only=True):
    """Percentiles over tasks; None if there are none."""

    p50: float | None
    p95: float | None


class TaskTimes(msgspec.Struct, frozen=True, kw_only=True):
    """Times over tasks, each the mean of its attempts."""

    base_s: Percentiles
    remaining_s: Percentiles
    share: Percentiles


class Assumption(msgspec.Struct, frozen=True, kw_only=True):
    """Something that a figure needs but the traces and predictions do not say."""

    text: str
    count: int
    """Number of steps or calls for which it is assumed."""


class FrontierPoint(msgspec.Struct, frozen=True, kw_only=True):
    """The result at one threshold."""

    threshold: float | None
    """None: every guess is launched."""
    launched: int
    hits: int
    saved_s: float
    share: float | None
    wasted_s: float


class ReplayReport(Report, Saving, frozen=True, kw_only=True):
    """What a predictor would have saved on the traces it has predictions for. Seconds cover all their steps with known
    times, as in `ceiling`; a step without a prediction saves nothing."""

    verdict: Verdict
    predictor: str
    traces: int
    tasks: int
    steps: int
    """Steps with a prediction."""
    known_steps: int
    """Of these, the steps with known times."""
    coverage: float
    base_s: float
    """Model and tool time without guesses, of all steps with known times."""
    tool_s: float
    speedup: float | None
    remaining_s: float
    launched: int
    hits: int
    stale: int
    """Of the others, the calls made stale by a write."""
    refused: int
    """Guesses not launched because one of their calls is not safe."""
    wasted_s: float
    """Tool seconds of the calls whose result was not used."""
    tokens: int
    oracle: Saving
    """The saving with the true calls as guesses and no verifier."""
    per_task: TaskTimes
    hit_rate: float | None
    """Share of the steps with calls and guesses whose first guess is exactly their calls."""
    eligible_hit_rate: float | None
    """The same over the steps whose calls are all safe to run early."""
    gate: Gate | None
    frontier: list[FrontierPoint]
    """First without a threshold, then by increasing threshold."""
    assumed: list[Assumption]
    unknown_steps: dict[str, int]
    """Steps with a prediction but unknown times, by reason."""
    steps_without_prediction: int
    """Other steps of the same traces; their time counts."""
    assumed_steps: int
    """Steps whose times are assumed rather than measured."""
    conclusion: Conclusion
    other_predictions: int
    """Predictions for steps that the traces do not have; left out."""
    problems: dict[str, int]
    settings: ReplaySettings
