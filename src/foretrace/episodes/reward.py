"""The reward of an episode, by `compute_reward` with a `RewardRule`."""

from __future__ import annotations

from typing import Literal

import msgspec

from foretrace.episodes.workspace import Evaluation


class RewardRule(msgspec.Struct, frozen=True, kw_only=True):
    """How the reward is computed; `formula` is recorded with each trace."""

    structure_bonus: bool = False
    """Add the structure bonus, even if all tests pass."""
    think_bonus: float = 0.1
    """Bonus for two or more thoughts."""
    verify_bonus: float = 0.1
    """Bonus for a verification."""
    flagged: Literal["zero", "report"] = "zero"
    """The reward of flagged code (see `EpisodeSettings.flagged`)."""

    @property
    def formula(self) -> str:
        """The rule in words."""
        base = "-1 + 2 * passed / total over the hidden tests (over the public ones where there are no hidden ones); "
        base += "-1 without code that runs"
        base += "; -1 for code that is flagged" if self.flagged == "zero" else ""
        if not self.structure_bonus:
            return base
        return f"{base}; + {self.think_bonus:g} for two thinks or more; + {self.verify_bonus:g} for a verification"


def compute_reward(evaluation: Evaluation, metrics: dict[str, float], rule: RewardRule) -> float:
    """The reward of a judged episode: -1 to 1, plus the structure bonus."""
    if evaluation.flags and rule.flagged == "zero":
        return -1.0
    judged = evaluation.hidden or evaluation.public
    if not evaluation.runnable or judged is None or not judged.counts.total:
        reward = -1.0
    else:
        reward = -1.0 + 2.0 * judged.counts.passed / judged.counts.total
    if rule.structure_bonus:
        reward += rule.think_bonus * (metrics["think_count"] >= 2) + rule.verify_bonus * bool(metrics["has_verify"])
    return reward
