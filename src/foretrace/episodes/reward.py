"""The reward of an episode."""

from __future__ import annotations

from foretrace.episodes.settings import EpisodeSettings
from foretrace.episodes.workspace import Evaluation

_BONUS = 0.1
"""Bonus for two or more thoughts, and for a verification."""


def describe_reward(settings: EpisodeSettings) -> str:
    """How the reward is computed, as each trace records it."""
    formula = "-1 + 2 * passed / total over the hidden tests (over the public ones where there are no hidden ones); "
    formula += "-1 without code that runs"
    if settings.flagged == "zero":
        formula += "; -1 for code that is flagged"
    if settings.structure_bonus:
        formula += f"; + {_BONUS:g} for two thinks or more; + {_BONUS:g} for a verification"
    return formula


def compute_reward(evaluation: Evaluation, metrics: dict[str, float], settings: EpisodeSettings) -> float:
    """The reward of a judged episode: -1 to 1, plus the structure bonus."""
    if evaluation.flags and settings.flagged == "zero":
        return -1.0
    judged = evaluation.hidden or evaluation.public
    reward = -1.0
    if evaluation.runnable and judged is not None and judged.counts.total:
        reward += 2.0 * judged.counts.passed / judged.counts.total
    if settings.structure_bonus:
        reward += _BONUS * (metrics["think_count"] >= 2) + _BONUS * bool(metrics["has_verify"])
    return reward
