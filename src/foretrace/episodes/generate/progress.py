"""The attempts of a run, planned and finished, and their counts so far, for its progress and its report."""

from __future__ import annotations

import time
from collections import Counter, deque
from typing import Any, NamedTuple

import msgspec

from foretrace.core.journal import JournalEntry, encode_entry
from foretrace.core.problem import Problem
from foretrace.core.redactions import read_redactions
from foretrace.core.trace import Isolation, Trace
from foretrace.episodes.generate.settings import Keep
from foretrace.episodes.rollout import ENCODING_ERRORS, mark_unwritable
from foretrace.models.token_meter import TokenMeter

_RECENT_S = 30.0
"""Seconds over which rates are measured."""


class PlannedAttempt(NamedTuple):
    problem: Problem
    sample: int
    key: str


class FinishedAttempt(NamedTuple):
    trace: Trace
    line: bytes | None
    """The journal line: the trace, or why it is left out; `None` for an attempt that is not kept but made again."""
    left_out: str
    """Why the trace is not kept; empty if it is kept, or if the attempt ended in an error."""
    is_retried: bool
    """Whether it was started a second time after a transient failure."""

    @property
    def stored(self) -> bool:
        """Whether the line contains the trace."""
        return self.line is not None and not self.left_out


def finish_attempt(trace: Trace, keep: Keep, *, is_retried: bool) -> FinishedAttempt:
    """The attempt with its line; if its trace cannot be written, it is an error."""
    left_out = _explain_left_out(trace, keep)
    try:
        line = _make_line(trace, keep, left_out)
    except ENCODING_ERRORS as error:
        trace = mark_unwritable(trace, error)
        line = _make_line(trace, keep, left_out)
    return FinishedAttempt(trace, line, left_out, is_retried)


def _make_line(trace: Trace, keep: Keep, left_out: str) -> bytes | None:
    if left_out:
        return encode_entry(JournalEntry(key=trace.key, left_out=left_out))
    if trace.outcome.error is not None and keep != "all":
        return None
    return encode_entry(JournalEntry(key=trace.key, trace=trace))


def _explain_left_out(trace: Trace, keep: Keep) -> str:
    """Why `keep` leaves the trace out; empty if it is kept, or if it ended in an error, since it is then made again."""
    if trace.outcome.error is not None:
        return ""
    if keep != "all" and not trace.outcome.success:
        return "not_success"
    return "not_ideal" if keep == "ideal" and not trace.outcome.metrics.get("is_ideal") else ""


class RunCounts(msgspec.Struct, kw_only=True):
    """Counts of a run: `asked == already_done + filtered + done + remaining`, and
    `done == stored + sum(left_out) + failed`."""

    asked: int = 0
    """Attempts requested by the command."""
    already_done: int = 0
    filtered: int = 0
    """Attempts finished before and left out by `keep`."""
    done: int = 0
    remaining: int = 0
    """Attempts not started or not finished."""
    stored: int = 0
    left_out: dict[str, int] = {}
    """Attempts of this run that `keep` leaves out, by reason."""
    errors: dict[str, int] = {}
    """Attempts of this run that ended in an error, by kind; the next run of the same command repeats them."""
    examples: dict[str, str] = {}
    """The first message of each kind of error."""
    failed: int = 0
    """Attempts that ended in an error and are not stored, because of `keep`."""
    retried: int = 0
    """Attempts that were started a second time after a failure of the server."""
    replies: int = 0
    cut_replies: int = 0
    """Replies that were cut at the token limit."""
    model_s: float = 0.0
    tool_s: float = 0.0
    forms: dict[str, int] = {}
    """Attempts of this run without an error, by the form of judging."""
    capabilities: dict[str, Any] | None = None
    """What the model server can do; `None` until it was asked."""

    @property
    def judged(self) -> int:
        """Attempts of this run that ended without an error."""
        return self.done - sum(self.errors.values())


class RunProgress(RunCounts, eq=False):
    """Live counts of one run of `generate`, and what it is doing now."""

    meter: TokenMeter
    doing: str = "starting"
    isolation: Isolation | None = None
    successes: int = 0
    ideal_attempts: int = 0
    reward_sum: float = 0.0
    """Sums over the attempts of this run without an error, like `metric_sums`."""
    metric_sums: Counter[str] = msgspec.field(default_factory=Counter)
    redacted: Counter[str] = msgspec.field(default_factory=Counter)
    """Redactions in the traces of this run, by type."""
    in_flight: int = 0
    slots: int = 0
    """Most requests to the model server at a time."""
    server_failure: str = ""
    """Kind of the server's last failure, if it has not answered since."""
    started: float = msgspec.field(default_factory=time.monotonic)
    _recent: deque[tuple[float, int, int]] = msgspec.field(default_factory=deque)
    """Recent (time, attempts done, completion tokens)."""

    def __post_init__(self) -> None:
        self._recent.append((self.started, 0, 0))

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.started

    def count(self, attempt: FinishedAttempt) -> None:
        """Count an attempt that has ended and is durable."""
        trace, outcome = attempt.trace, attempt.trace.outcome
        error, metrics = outcome.error, outcome.metrics
        self.done += 1
        self.remaining -= 1
        self.retried += attempt.is_retried
        self.stored += attempt.stored
        self.failed += attempt.line is None
        self.model_s += sum(message.model_s or 0.0 for message in trace.messages)
        self.tool_s += sum(message.tool_s or 0.0 for message in trace.messages)
        self.replies += int(metrics.get("turns", 0))
        self.cut_replies += int(metrics.get("cut_replies", 0))
        self.redacted.update(read_redactions(trace))
        if error is not None:
            self.errors[error.kind] = self.errors.get(error.kind, 0) + 1
            self.examples.setdefault(error.kind, error.message)
            return
        if attempt.left_out:
            self.left_out[attempt.left_out] = self.left_out.get(attempt.left_out, 0) + 1
        self.successes += bool(outcome.success)
        self.ideal_attempts += bool(metrics.get("is_ideal"))
        self.reward_sum += outcome.reward or 0.0
        if outcome.integrity:
            self.forms[outcome.integrity] = self.forms.get(outcome.integrity, 0) + 1
        for name, value in metrics.items():
            self.metric_sums[name] += value  # type: ignore[assignment]

    def compute_rates(self) -> tuple[float, float]:
        """Recent rates of attempts and completion tokens per second."""
        now = time.monotonic()
        then, done, tokens = self._recent[0]
        span = max(now - then, 1e-3)
        return (self.done - done) / span, (self.meter.completion_tokens - tokens) / span

    def tick(self) -> None:
        """Note the attempts and tokens so far; call it about once a second."""
        now = time.monotonic()
        self._recent.append((now, self.done, self.meter.completion_tokens))
        while len(self._recent) > 1 and self._recent[1][0] < now - _RECENT_S:
            self._recent.popleft()

    def copy_counts(self) -> RunCounts:
        """A copy of the counts, in the order of a report."""
        counts = RunCounts(**{name: getattr(self, name) for name in RunCounts.__struct_fields__})
        counts.left_out = dict(sorted(self.left_out.items()))
        counts.errors, counts.examples = dict(Counter(self.errors).most_common()), dict(self.examples)
        counts.forms = dict(sorted(self.forms.items()))
        counts.model_s, counts.tool_s = round(self.model_s, 3), round(self.tool_s, 3)
        return counts

    def compute_mean(self, total: float) -> float | None:
        """The mean of a sum over this run's attempts without an error; `None` if there are none."""
        return total / self.judged if self.judged else None

    def compute_mean_metrics(self) -> dict[str, float]:
        return {name: round(total / self.judged, 4) for name, total in sorted(self.metric_sums.items())}

    def compute_recovery(self) -> float | None:
        """The share of successes among attempts in which something failed first; `None` without such attempts."""
        with_errors = self.metric_sums["had_errors"]
        return self.metric_sums["recovered"] / with_errors if with_errors else None
