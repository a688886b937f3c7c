"""Metrics over many rollouts, with the same names in training and evaluation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from foretrace.core.trace import Trace
from foretrace.episodes.rollout import CONTEXT

_MEANS = {"think_count": "think_count", "verify_rate": "has_verify", "ideal_rate": "is_ideal"}
"""Means over rollouts, and the trace metric that each averages (docs/protocols.md)."""


class RolloutMetrics:
    """Accumulates rollouts, and computes their means."""

    def __init__(self) -> None:
        self.rollouts = 0
        """Judged rollouts."""
        self.failed: Counter[str] = Counter()
        """Unusable rollouts by reason."""
        self._problems: set[str] = set()
        self._sums: Counter[str] = Counter()

    def add(self, trace: Trace, why_unusable: str = "") -> None:
        """Count a rollout; if it failed or is otherwise unusable, under the reason."""
        outcome = trace.outcome
        if reason := outcome.error.kind if outcome.error else why_unusable:
            self.failed[reason] += 1
        if outcome.error:
            return
        self.rollouts += 1
        self._problems.add(trace.task.id)
        tests = outcome.tests
        values = {name: outcome.metrics.get(metric, 0.0) for name, metric in _MEANS.items()} | {
            "accuracy": float(bool(outcome.success)),
            "pass_rate": tests.passed / tests.total if tests and tests.total else 0.0,
            "mean_reward": outcome.reward or 0.0,
            "flag_rate": float(bool(outcome.flags)),
            "cut_rate": float(bool(outcome.metrics.get("cut_replies")) or outcome.exit_reason == CONTEXT),
            "failed_once": float(bool(outcome.metrics.get("had_errors"))),
            "recovered": float(bool(outcome.metrics.get("recovered"))),
        }
        for name, value in values.items():
            self._sums[name] += value  # type: ignore[assignment]

    def compute_means(self, prefix: str) -> dict[str, float]:
        """All figures, with a prefix to each name: shares and means over the rollouts, and counts.

        `recovery` is the share of successes among the rollouts in which something failed on the way, and is left out if
        nothing did. Empty without rollouts.
        """
        if not self.rollouts and not self.failed:
            return {}
        means: dict[str, float] = {"rollouts": self.rollouts, "problems": len(self._problems)}
        means |= {f"failed/{reason}": number for reason, number in sorted(self.failed.items())}
        if self.rollouts:
            names = ("accuracy", "pass_rate", "mean_reward", "cut_rate", "flag_rate", *_MEANS)
            means |= {name: self._sums[name] / self.rollouts for name in names}
        if self._sums["failed_once"]:
            means["recovery"] = self._sums["recovered"] / self._sums["failed_once"]
        return {f"{prefix}{name}": float(value) for name, value in means.items()}


def format_metrics(metrics: Mapping[str, float]) -> str:
    """Metrics as text, one per line."""
    width = max(map(len, metrics), default=0)
    return "\n".join(f"{name:<{width}}  {value:>8.4g}" for name, value in metrics.items())
