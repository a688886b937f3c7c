"""What a run has done so far, for its progress and its report."""

from __future__ import annotations

import time
from collections import Counter, deque
from typing import Any

from foretrace.core.trace import Isolation, Trace
from foretrace.episodes.generate.usage import TokenMeter

_RECENT_S = 30.0
"""Rates are those of the last seconds."""
_MAX_KINDS = 2
"""Kinds of errors that the line of progress names."""


class RunProgress:
    """Live counts of one run of `generate`; attempts add up: `asked == already_done + filtered + done + remaining`."""

    def __init__(self, meter: TokenMeter) -> None:
        self.meter = meter
        self.doing = "starting"
        self.capabilities: dict[str, Any] | None = None
        """What the model server was found to do; `None` before it was asked."""
        self.isolation: Isolation | None = None
        self.asked = self.already_done = self.filtered = 0
        """Attempts that the command asks for; those that were stored before; those that `keep` left out before."""
        self.done = self.stored = self.successes = self.ideal = self.retried = 0
        """Of this run: attempts that ended; that are kept; that passed all tests; that are ideal; that were begun a
        second time after a failure of the server."""
        self.left_out: Counter[str] = Counter()
        self.errors: Counter[str] = Counter()
        self.examples: dict[str, str] = {}
        """The first message of each kind of error."""
        self.forms: Counter[str] = Counter()
        self.replies = self.cut_replies = 0
        """Completions of the attempts that ended, and how many of them were cut at the token limit."""
        self.rewards = 0.0
        self.metrics: Counter[str] = Counter()
        """Sums over the attempts that ended without an error."""
        self.model_s = self.tool_s = 0.0
        self.in_flight = 0
        self.slots = 0
        """Requests that the model server may get at a time."""
        self.trouble = ""
        """Kind of the server's last failure, while it has served nothing since."""
        self.begun = time.monotonic()
        self._recent: deque[tuple[float, int, int]] = deque([(self.begun, 0, 0)])

    @property
    def judged(self) -> int:
        """Attempts of this run that ended without an error."""
        return self.done - self.errors.total()

    @property
    def remaining(self) -> int:
        """Attempts that are still to be done."""
        return self.asked - self.already_done - self.filtered - self.done

    @property
    def seconds(self) -> float:
        """Since the run began."""
        return time.monotonic() - self.begun

    def count(self, trace: Trace, left_out: str, *, stored: bool) -> None:
        """Count an attempt that ended and is durable."""
        self.done += 1
        self.stored += stored
        self.model_s += sum(m.model_s or 0.0 for m in trace.messages)
        self.tool_s += sum(m.tool_s or 0.0 for m in trace.messages)
        outcome = trace.outcome
        self.replies += int(outcome.metrics.get("turns", 0))
        self.cut_replies += int(outcome.metrics.get("cut_replies", 0))
        if outcome.error is not None:
            self.errors[outcome.error.kind] += 1
            self.examples.setdefault(outcome.error.kind, outcome.error.message)
            return
        if left_out:
            self.left_out[left_out] += 1
        self.successes += bool(outcome.success)
        self.ideal += bool(outcome.metrics.get("is_ideal"))
        self.rewards += outcome.reward or 0.0
        if outcome.integrity:
            self.forms[outcome.integrity] += 1
        for name, value in outcome.metrics.items():
            self.metrics[name] += value  # type: ignore[assignment]

    def rates(self) -> tuple[float, float]:
        """Attempts and completion tokens a second, of late."""
        now = time.monotonic()
        begun, done, tokens = self._recent[0]
        span = max(now - begun, 1e-3)
        return (self.done - done) / span, (self.meter.completion_tokens - tokens) / span

    def tick(self) -> None:
        """Note where things stand; to be called about once a second."""
        now = time.monotonic()
        self._recent.append((now, self.done, self.meter.completion_tokens))
        while len(self._recent) > 1 and self._recent[1][0] < now - _RECENT_S:
            self._recent.popleft()

    def line(self) -> str:
        """Where things stand, in one line; what matters most comes first, since a terminal cuts its end off."""
        if self.doing != "running":
            return self.doing
        attempts_s, tokens_s = self.rates()
        parts = [f"{self.done:,} of {self.done + self.remaining:,} done"]
        if attempts_s > 0:
            parts[0] += f", {_duration(self.remaining / attempts_s)} left"
        if self.trouble:
            parts.append(f"the server fails ({self.trouble}), trying again")
        if self.errors:
            told = [f"{kind} {n:,}" for kind, n in self.errors.most_common(_MAX_KINDS)]
            told += ["..."] * (len(self.errors) > _MAX_KINDS)
            parts.append(f"errors: {', '.join(told)}")
        if self.judged:
            parts.append(f"{self.successes / self.judged:.0%} passed, {self.ideal / self.judged:.0%} ideal")
        parts += [f"{tokens_s:,.0f} tokens/s", f"{self.in_flight} in flight (up to {self.slots} asking)"]
        return "; ".join(parts)

    def means(self) -> dict[str, float]:
        """Mean of each metric over the attempts that ended without an error."""
        return {name: round(total / self.judged, 4) for name, total in sorted(self.metrics.items())}


def _duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
