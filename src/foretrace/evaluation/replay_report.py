"""What `replay` is asked, and the records of what it found."""

from __future__ import annotations

import math
from typing import Literal

import msgspec

from foretrace.core.errors import Setting, UsageError
from foretrace.core.report import Report
from foretrace.evaluation.ceiling_report import Conclusion, Saving, Verdict
from foretrace.evaluation.checked_settings import check_number, choose_safe_effects
from foretrace.evaluation.step_times import AssumedTimes

Gate = Literal["score", "confidence"]
"""What a threshold is held against: the verifier's score, or where no guess has one the proposer's confidence."""


class ReplaySettings(msgspec.Struct, frozen=True, kw_only=True):
    """How the guesses are run, and what they cost: the arguments of `foretrace.replay`."""

    guess_latency: float | None = None
    assume_times: AssumedTimes | None = None
    verifier_s: float | None = None
    threshold: float | None = None
    ahead: int = 1
    top: int = 1
    parallel: int | None = None
    cancel: bool = True
    price_token: float = 0.0
    price_tool_s: float = 0.0
    allow: tuple[str, ...] = ()
    seed: int = 0

    def check(self) -> None:
        """Refuse what cannot be served.

        Raises:
            UsageError: a setting is out of its range.
        """
        for name in ("guess_latency", "verifier_s"):
            check_number(name, getattr(self, name), "seconds, ")
        for name in ("price_token", "price_tool_s"):
            check_number(name, getattr(self, name), "a price, ")
        for name in ("ahead", "top", "parallel"):
            check_number(name, getattr(self, name), lowest=1)
        check_number("seed", self.seed)
        if self.threshold is not None and not math.isfinite(self.threshold):
            raise UsageError(Setting("threshold", self.threshold), ": give a number")
        choose_safe_effects(self.allow)


class Percentiles(msgspec.Struct, frozen=True, kw_only=True):
    """Over tasks, or over steps; None where there is none."""

    p50: float | None
    p95: float | None


class TaskTimes(msgspec.Struct, frozen=True, kw_only=True):
    """Over tasks, each the mean of its attempts."""

    base_s: Percentiles
    remaining_s: Percentiles
    share: Percentiles
    """Share saved of a task's time."""


class Accuracy(msgspec.Struct, frozen=True, kw_only=True):
    """How good the guesses are, apart from what they save; None where there is nothing to measure it on."""

    hit_rate: float | None
    """Share of the steps with calls whose first guess is all of their calls."""
    eligible_hit_rate: float | None
    """The same over the steps whose calls are all safe to run early."""
    mean_confidence: float | None
    """Of the first guesses at steps with calls that have one."""
    calibration_error: float | None
    """Expected calibration error of these, in ten bins of equal width."""
    proposer_s: Percentiles
    """Seconds of a guess, over the steps whose predictions say them."""


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """What guessing costs, in the unit of the prices. The model's replies and the calls that the steps make are paid as
    without it, each once, and are not in it."""

    tokens: int
    """That the proposer wrote."""
    proposer: float
    wasted_tools: float
    extra: float
    """Both together."""
    base_tools: float
    """Of the calls that the steps make, run early or after the reply."""
    per_saved_s: float | None
    """Extra cost for each second saved; None where nothing is saved."""


class Assumption(msgspec.Struct, frozen=True, kw_only=True):
    """Something that the traces and predictions do not say, and that a figure needs."""

    name: str
    count: int
    """Steps, guesses or calls for which it is assumed."""
    text: str


class FrontierPoint(msgspec.Struct, frozen=True, kw_only=True):
    """What one threshold gives."""

    threshold: float | None
    """None: every guess is launched."""
    launched: int
    hits: int
    saved_s: float
    share: float | None
    wasted_s: float
    extra_cost: float


class ReplayReport(Report, Saving, frozen=True, kw_only=True):
    """What a predictor would have saved on the traces that it guessed at. Seconds are of all their steps of known
    times, as in `ceiling`; a step without a prediction saves nothing."""

    verdict: Verdict
    predictor: str
    traces: int
    """That have a prediction."""
    tasks: int
    steps: int
    """That have a prediction."""
    known_steps: int
    """Of these, those of known times."""
    coverage: float
    """Share of `steps` whose times are known."""
    base_s: float
    """Model and tool time without guesses, of all steps of known times."""
    tool_s: float
    speedup: float | None
    """Base time by remaining time."""
    remaining_s: float
    launched: int
    """Calls that were launched early."""
    hits: int
    """Of these, those whose result was used."""
    stale: int
    """Of the others, those that a write overtook."""
    refused: int
    """Guesses that were not launched since one of their calls is not safe."""
    wasted_s: float
    """Tool seconds of the calls whose result was not used."""
    wasted_s_per_saved_s: float | None
    oracle: Saving
    """The same with the true calls as guesses, no limit on parallel calls and no verifier."""
    per_task: TaskTimes
    accuracy: Accuracy
    cost: Cost
    gate: Gate | None
    frontier: list[FrontierPoint]
    """Without a threshold first, then by rising threshold."""
    assumed: list[Assumption]
    unknown_steps: dict[str, int]
    """Steps with a prediction but of unknown times, by reason."""
    to_record: list[str]
    steps_without_prediction: int
    """Steps of the same traces; their time counts."""
    assumed_steps: int
    """Steps whose times are assumed, and not measured."""
    conclusion: Conclusion
    other_predictions: int
    """Predictions for steps that the traces do not have, left out."""
    other_traces: bool
    """Whether these are not the traces of the predicted dataset, or not all of them, as far as the predictions say."""
    problems: dict[str, int]
    """Faults of lines of the predictions, by kind."""
    settings: ReplaySettings
