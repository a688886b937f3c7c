"""The reward of an episode."""

from __future__ import annotations

import msgspec

from foretrace.episodes._working import Verdicts


class RewardRule(msgspec.Struct, frozen=True, kw_only=True):
    """How the reward is made; `formula` is recorded with each trace."""

    bonuses: bool = False
    """Add the structure bonuses, at full pass too."""
    thinks: float = 0.1
    """For two thinks or more."""
    verify: float = 0.1
    """For a verification."""

    @property
    def formula(self) -> str:
        """The rule in words."""
        base = "-1 + 2 * passed / total over the hidden tests (over the public ones where there are no hidden ones); "
        base += "-1 without code that runs"
        if not self.bonuses:
            return base
        return f"{base}; + {self.thinks:g} for two thinks or more; + {self.verify:g} for a verification"


def reward_of(verdicts: Verdicts, metrics: dict[str, float], rule: RewardRule) -> float:
    """The reward of an episode that came to its end."""
    judged = verdicts.hidden or verdicts.public
    if not verdicts.runnable or judged is None or not judged.counts.total:
        reward = -1.0
    else:
        reward = -1.0 + 2.0 * judged.counts.passed / judged.counts.total
    if rule.bonuses:
        reward += rule.thinks * (metrics["think_count"] >= 2) + rule.verify * bool(metrics["has_verify"])
    return reward
