"""Metrics of rollouts have one definition for training and for evaluation."""

from __future__ import annotations

import pytest

from foretrace.core.trace import Outcome, Provenance, Task, TestCounts, Trace
from foretrace.envs.metrics import RolloutMetrics, format_metrics
from foretrace.episodes.rollout import CONTEXT


def trace(task: str, success: bool, passed: int, exit_reason: str | None = None, **metrics: float) -> Trace:
    return Trace(
        key=f"k/{task}/{passed}",
        task=Task(id=task, group=task),
        messages=(),
        outcome=Outcome(
            success=success,
            reward=passed / 2 - 1,
            tests=TestCounts(passed=passed, total=4),
            metrics=metrics,
            exit_reason=exit_reason,
        ),
        provenance=Provenance(origin="generated", source="s"),
    )


def test_metrics_are_means_over_the_rollouts() -> None:
    metrics = RolloutMetrics()
    assert metrics.compute_means("eval/") == {}
    metrics.add(trace("a", True, 4, think_count=2, has_verify=1, is_ideal=1, had_errors=1, recovered=1))
    metrics.add(trace("a", False, 1, think_count=1, had_errors=1, cut_replies=2))
    metrics.add(trace("b", True, 4, CONTEXT))
    metrics.failed["mismatch"] += 1
    assert metrics.compute_means("eval/") == pytest.approx(
        {
            "eval/rollouts": 3,
            "eval/problems": 2,
            "eval/failed/mismatch": 1,
            "eval/accuracy": 2 / 3,
            "eval/pass_rate": 0.75,
            "eval/mean_reward": (1 - 0.5 + 1) / 3,
            "eval/cut_rate": 2 / 3,
            "eval/flag_rate": 0.0,
            "eval/think_count": 1.0,
            "eval/verify_rate": 1 / 3,
            "eval/ideal_rate": 1 / 3,
            "eval/recovery": 0.5,
        }
    )


def test_metrics_are_a_line_each() -> None:
    assert format_metrics({"eval/accuracy": 0.25, "eval/failed/refused": 2}) == (
        "eval/accuracy            0.25\neval/failed/refused         2"
    )
