"""What an evaluation writes down."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from foretrace.envs.rollouts import Rolled


def table(metrics: Mapping[str, float]) -> str:
    """Metrics, a line each."""
    width = max(map(len, metrics), default=0)
    return "\n".join(f"{name:<{width}}  {value:>8.4g}" for name, value in metrics.items())


def sample_of(rolled: Rolled) -> dict[str, Any]:
    """A rollout, for samples.jsonl."""
    trace = rolled.trace
    error = trace.outcome.error
    return {
        "problem": trace.task.id,
        "success": trace.outcome.success,
        "reward": trace.outcome.reward,
        "error": None if error is None else error.message,
        "messages": rolled.sequence.messages if rolled.sequence else [],
        "metrics": trace.outcome.metrics,
    }
