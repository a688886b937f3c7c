"""The report of `score`."""

from __future__ import annotations

import msgspec

from foretrace.core.references import Reference, ScoreRow
from foretrace.core.report import Report


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """A share in [0, 1], with its 95% interval over resampled groups."""

    value: float | None
    low: float | None
    high: float | None
    n: int


class CascadeRow(msgspec.Struct, frozen=True, kw_only=True):
    """What a cascade does at one threshold: it accepts the guesses at or above it, and asks the large model at all
    other steps."""

    predictor: str
    by: str
    """What the threshold applies to: `verifier` or `confidence`; `all guesses` if there is none."""
    threshold: float | None
    accepted: Share
    """Share of steps whose guess is accepted."""
    precision: Share
    """Share of the accepted guesses that are right."""
    accuracy: Share
    """Share of steps that come out right: all but those with a wrong accepted guess."""
    cost: Share
    """Relative to always asking the large model."""


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """The steps of one action, tool or source in the natural slice; figures about calls cover only the steps with a
    call."""

    name: str
    n: int
    type_accuracy: Share
    tool: Share
    exact_call: Share


class ReliabilityBin(msgspec.Struct, frozen=True, kw_only=True):
    """Guesses with a confidence in [low, high), or [low, high] in the last bin."""

    low: float
    high: float
    n: int
    confidence: float | None
    right: float | None


class CoverageRow(msgspec.Struct, frozen=True, kw_only=True):
    """How many guesses can be accepted if at most a share `risk` of those may be wrong."""

    risk: float
    coverage: float
    """Share of all guesses with a confidence."""
    threshold: float | None
    """Lowest accepted confidence; None if nothing is accepted."""


class Calibration(msgspec.Struct, frozen=True, kw_only=True):
    """How reliable the confidences of the first guesses are."""

    of: str
    """What is right or wrong: the `type`, or the whole `guess`."""
    n: int
    without_confidence: int
    """Steps of the slice with no first guess, or one without a confidence: left out."""
    ece: float
    """Expected calibration error: mean of |confidence - share right| over the bins, weighted by their guesses."""
    brier: float
    """Mean square of (confidence - right)."""
    bins: list[ReliabilityBin]
    aurc: float
    """Area under the risk-coverage curve: mean risk over all numbers of accepted guesses, most confident first."""
    coverage: list[CoverageRow]


class AcceptRow(msgspec.Struct, frozen=True, kw_only=True):
    """What one policy accepts of the first guesses."""

    policy: str
    """verifier, confidence, accept_all, reject_all or oracle."""
    precision_wanted: float | None
    """None for a policy without a threshold."""
    threshold: float | None
    """Lowest accepted score; None without a threshold, or if none reached the precision and nothing is accepted."""
    accepted: float
    precision: float | None
    """Share of the accepted guesses that are right; None if nothing is accepted."""
    recall: float | None
    """Share of the right guesses that are accepted; None if none is right."""


class VerifierScore(msgspec.Struct, frozen=True, kw_only=True):
    """How well scores distinguish right guesses from wrong ones."""

    verifier: str | None
    n: int
    """First guesses on which the acceptance rates are measured: those with a score."""
    without_score: int = 0
    """First guesses at test steps without a score: left out."""
    auroc: Share
    """AUROC of the scores of all guesses at test steps; no value if all are right or all are wrong."""
    auroc_confidence: Share
    thresholds_from: str
    """`validation`, or `half` if they were chosen on half of the test groups and measured on the other half."""
    chosen_on: int
    policies: list[AcceptRow]


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """Comparison with another file of predictions for the same steps."""

    other: str
    predictor: str
    tasks: int
    missing: int = 0
    """Eval rows without a prediction in the other file, which count as wrong."""
    scores: list[ScoreRow]
    differences: list[ScoreRow]
    """How much better these predictions are than the others, with intervals of the differences over resampled tasks;
    both are measured on the same draws."""


class ScoreReport(Report, msgspec.Struct, frozen=True, kw_only=True):
    """All figures, and the problems of the predictions."""

    predictor: str = ""
    predicted: str = "call"
    """What the predictor guesses, from the file's header: `type` or `call`."""
    target: str = "call"
    scores: list[ScoreRow]
    rows: int
    missing: int
    """Gold rows without a prediction: counted as wrong."""
    unreadable: int
    """Gold rows whose predictions have no action: counted as wrong."""
    unknown: int
    """Predicted steps that the dataset does not have: ignored, unless they are more than half."""
    problems: dict[str, int] = {}
    """Number of faulty lines of the file, by kind (see `core/predictions.py`)."""
    guesses: int = 1
    tasks: int = 0
    groups: int = 0
    allow: list[str] = []
    eligible: int = 0
    """Steps of the natural slice whose calls are safe to run early and were answered."""
    by_action: list[Part] = []
    by_tool: list[Part] = []
    by_source: list[Part] = []
    calibration: list[Calibration] | None = None
    """None if no guess has a confidence."""
    verifier: VerifierScore | None = None
    """None if no guess has a score."""
    against: Comparison | None = None
    references: list[Reference] = []
    """Scores of free predictors on the same steps, if the dataset has them."""
    references_left_out: str | None = None
    """Why the dataset's references are not shown, if so."""
    cascade: list[CascadeRow] = []
    """Rows of the predictions and of the references, if requested."""
    latency_s: dict[str, float] = {}
    seed: int = 0
