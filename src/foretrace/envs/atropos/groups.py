"""A group of rollouts in the form that Atropos expects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from foretrace.envs.rollouts import Rollout


def make_group(members: Sequence[Rollout], sampling: Mapping[str, Any], *, messages: bool) -> dict[str, Any]:
    """Atropos' `ScoredDataGroup` of rollouts that can be trained on. Keys without a value are left out, because Atropos
    treats `None` as a value."""
    pairs = [(one.trace, one.sequence) for one in members if one.sequence is not None]
    sequences = [sequence for _, sequence in pairs]
    group: dict[str, Any] = {
        "tokens": [s.tokens for s in sequences],
        "masks": [s.masks for s in sequences],
        "scores": [max(-1.0, min(1.0, trace.outcome.reward or 0.0)) for trace, _ in pairs],
        "inference_logprobs": [s.logprobs for s in sequences],
        "generation_params": dict(sampling),
    }
    overrides: list[dict[str, Any]] = [{} for _ in sequences]
    for override, (trace, sequence) in zip(overrides, pairs, strict=True):
        if trace.outcome.metrics.get("cut_replies") or not sequence.trained:
            override["set_advantage_to_zero"] = True
        if sequence.inexact:
            override["inexact_tokens"] = sequence.inexact
    if any(overrides):
        group["overrides"] = overrides
    if messages:
        group["messages"] = [s.messages for s in sequences]
    return group
