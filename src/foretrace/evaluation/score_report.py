"""The records of what `score` found."""

from __future__ import annotations

import msgspec

from foretrace.core.references import Reference, ScoreRow
from foretrace.core.report import Report


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """A share in [0, 1], with its 95 % interval over resampled groups."""

    value: float | None
    """None where no row counts."""
    low: float | None
    high: float | None
    n: int
    """Rows that it is taken over."""


class CascadeRow(msgspec.Struct, frozen=True, kw_only=True):
    """What a cascade does at one threshold: it takes the guesses above it, and asks the large model at all other steps.
    Intervals are over resampled groups."""

    predictor: str
    by: str
    """What the threshold is on: `verifier`, `confidence`, or `all guesses` without one."""
    threshold: float | None
    accepted: Share
    """Guesses that are taken, of all steps."""
    precision: Share
    """Right ones, of the guesses that are taken."""
    accuracy: Share
    """Steps that come out right: all but those at which a wrong guess is taken."""
    cost: Share
    """Relative to always asking the large model."""


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """The steps of one action, tool or source in the natural slice; figures that ask for a call are over those with
    one."""

    name: str
    n: int
    type_accuracy: Share
    tool: Share
    exact_call: Share


class ArgumentRow(msgspec.Struct, frozen=True, kw_only=True):
    """One argument by its name, over the calls in the natural slice that have it."""

    name: str
    """Empty for all arguments together."""
    right: Share


class AheadRow(msgspec.Struct, frozen=True, kw_only=True):
    """Consecutive steps that are all predicted rightly."""

    steps: int
    """How many."""
    type_accuracy: Share
    right: Share
    """Type and calls."""


class ReliabilityBin(msgspec.Struct, frozen=True, kw_only=True):
    """Guesses whose confidence is in [low, high), the last bin with its upper end."""

    low: float
    high: float
    n: int
    confidence: float | None
    """Mean of it."""
    right: float | None
    """Share of them that are right."""


class CoverageRow(msgspec.Struct, frozen=True, kw_only=True):
    """How many guesses may be taken where at most `risk` of those taken may be wrong."""

    risk: float
    coverage: float
    """Share of all guesses with a confidence."""
    threshold: float | None
    """Lowest confidence that is taken; None where nothing is."""


class Calibration(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the confidences of the first guesses are what they say."""

    of: str
    """What is right or wrong: `type`, or `call` for type and calls."""
    n: int
    without_confidence: int
    """Steps of the slice whose first guess has none, or that have no guess: left out."""
    ece: float
    """Expected calibration error: mean over the bins of |confidence - share right|, weighted by their guesses."""
    brier: float
    """Mean square of confidence - right."""
    bins: list[ReliabilityBin]
    aurc: float
    """Area under the risk-coverage curve: mean risk over all numbers of guesses taken, the most confident first."""
    coverage: list[CoverageRow]


class AcceptRow(msgspec.Struct, frozen=True, kw_only=True):
    """What one policy accepts of the first guesses."""

    policy: str
    """verifier, confidence, accept_all, reject_all or oracle."""
    precision_wanted: float | None
    """None for a policy without a threshold."""
    threshold: float | None
    """Lowest score that is accepted; None where no threshold reached the precision, so that nothing is."""
    accepted: float
    """Share of the guesses."""
    precision: float | None
    """Share of the accepted ones that are right; None where nothing is accepted."""
    recall: float | None
    """Share of the right guesses that are accepted; None where none is right."""


class VerifierScore(msgspec.Struct, frozen=True, kw_only=True):
    """How well scores tell right guesses from wrong ones."""

    verifier: str | None
    n: int
    """First guesses that the accept rates are measured on: those with a score."""
    without_score: int = 0
    """First guesses at test steps that have none: left out."""
    auroc: Share
    """Of the scores of all guesses at test steps; without a value where all are right, or all wrong."""
    auroc_confidence: Share
    """Of their confidences."""
    thresholds_from: str
    """`validation`, or `half` where they were chosen on half of the test groups and measured on the other."""
    chosen_on: int
    """Guesses that the thresholds were chosen on."""
    policies: list[AcceptRow]


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """By how much these predictions are better than the others in one figure, with a 95 % interval of the difference
    over resampled tasks: both are measured on the same draws."""

    slice: str
    metric: str
    value: float
    low: float
    high: float
    n: int


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """Two files of predictions for the same steps."""

    other: str
    predictor: str
    tasks: int
    missing: int = 0
    """Eval rows without a prediction of the other file: they count as wrong there."""
    scores: list[ScoreRow]
    """Of the other file."""
    differences: list[Difference]


class ScoreReport(Report, msgspec.Struct, frozen=True, kw_only=True):
    """All figures, and what was wrong with the predictions."""

    predictor: str = ""
    """As the file's header has it."""
    predicted: str = "call"
    """What it guesses, as the file's header has it: `type` or `call`."""
    target: str = "call"
    scores: list[ScoreRow]
    rows: int
    """Gold rows."""
    missing: int
    """Gold rows without a prediction: counted as wrong."""
    unreadable: int
    """Gold rows whose predictions hold no action: counted as wrong."""
    unknown: int
    """Steps predicted that the dataset does not have: ignored. More than half of them are refused."""
    problems: dict[str, int] = {}
    """Lines of the file with a fault, by its kind (see `core/predictions.py`)."""
    guesses: int = 1
    """Guesses a step at most."""
    tasks: int = 0
    groups: int = 0
    allow: list[str] = []
    """Effects that are safe to run early."""
    eligible: int = 0
    """Steps of the natural slice whose calls are safe to run early, and were answered."""
    by_action: list[Part] = []
    by_tool: list[Part] = []
    by_source: list[Part] = []
    arguments: list[ArgumentRow] = []
    """All together, then by name, the most frequent first."""
    ahead: list[AheadRow] = []
    calibration: list[Calibration] | None = None
    """None where no guess has a confidence."""
    verifier: VerifierScore | None = None
    """None where no guess has a score."""
    against: Comparison | None = None
    references: list[Reference] = []
    """What free predictors reach on the same steps, where the dataset says."""
    references_left_out: str | None = None
    """Why the dataset's references are not shown, where they are not."""
    cascade: list[CascadeRow] = []
    """Of the predictions and of the references, where it was asked for."""
    latency_s: dict[str, float] = {}
    """As the file's header has it."""
    seed: int = 0
