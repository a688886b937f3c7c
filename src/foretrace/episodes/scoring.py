"""The reward of an episode."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from foretrace.core.completion import Completion
from foretrace.core.trace import Usage
from foretrace.episodes.workspace import Verdicts
from foretrace.protocols.base import Act, InteractionProtocol, Reply, Result


class RewardRule(msgspec.Struct, frozen=True, kw_only=True):
    """How the reward is made; `formula` is recorded with each trace."""

    structure_bonus: bool = False
    """Add the structure bonus, at full pass too."""
    thinks: float = 0.1
    """For two thinks or more."""
    verify: float = 0.1
    """For a verification."""

    @property
    def formula(self) -> str:
        """The rule in words."""
        base = "-1 + 2 * passed / total over the hidden tests (over the public ones where there are no hidden ones); "
        base += "-1 without code that runs"
        if not self.structure_bonus:
            return base
        return f"{base}; + {self.thinks:g} for two thinks or more; + {self.verify:g} for a verification"


def reward_of(verdicts: Verdicts, metrics: dict[str, float], rule: RewardRule) -> float:
    """The reward of an episode that came to its end."""
    judged = verdicts.hidden or verdicts.public
    if not verdicts.runnable or judged is None or not judged.counts.total:
        reward = -1.0
    else:
        reward = -1.0 + 2.0 * judged.counts.passed / judged.counts.total
    if rule.structure_bonus:
        reward += rule.thinks * (metrics["think_count"] >= 2) + rule.verify * bool(metrics["has_verify"])
    return reward


_WORDS = ("think", "plan", "reflect")


class Tally:
    """Counts what happens in an episode as it happens."""

    def __init__(self) -> None:
        self.invented = self.executions = self.iterations = self.failures = self.seen = self.repairs = 0
        self._answered = 0
        self._last = ""
        self._sums: dict[str, float] = {"turns": 0, "cut_replies": 0, "model_s": 0.0, "tool_s": 0.0}

    def sums(self) -> dict[str, float]:
        """Turns, cut replies, seconds and tokens so far; tokens only where the server counts them."""
        return {name: round(float(value), 6) for name, value in self._sums.items()}

    def reply(self, reply: Reply, completion: Completion) -> None:
        """A reply came: what was answered before has been seen by the model."""
        self.seen += self._answered
        self._answered = 0
        self.invented += reply.hallucinated
        self.repairs += sum(len(act.repairs) for act in reply.acts)
        self._sums["turns"] += 1
        self._sums["cut_replies"] += completion.finish == "length"
        self._sums["model_s"] += completion.seconds
        usage = completion.usage or Usage()
        counts = {"prompt_tokens": usage.prompt_tokens, "completion_tokens": usage.completion_tokens}
        for name, count in counts.items():
            if count is not None:
                self._sums[name] = self._sums.get(name, 0) + count

    def result(self, result: Result, seconds: float) -> None:
        """An act was done."""
        self._sums["tool_s"] += seconds
        act = result.act
        if result.run is not None or result.public is not None:
            self.executions += 1
            self._answered += 1
            if act.kind in ("code", "final") and act.code.strip() != self._last:
                self._last = act.code.strip()
                self.iterations += 1
        self.failures += result.failed


def metrics_of(
    tally: Tally, acts: Sequence[Act], verdicts: Verdicts, protocol: InteractionProtocol
) -> dict[str, float]:
    """All metrics of a finished episode; truths are 1 and 0 (docs/protocols.md defines each)."""
    kinds = [act.kind for act in acts]
    found: dict[str, float] = {
        "think_count": sum(kind in _WORDS for kind in kinds),
        "code_block_count": sum(
            kind in ("code", "final") and bool(act.code) for kind, act in zip(kinds, acts, strict=True)
        ),
        "execution_count": tally.executions,
        "code_iterations": tally.iterations,
        "had_errors": tally.failures > 0,
        "recovered": tally.failures > 0 and verdicts.success,
        "has_verify": "verify" in kinds,
        "is_interleaved": interleaved(kinds),
        "has_tool_feedback": tally.seen > 0,
        "invented_results": tally.invented,
        "repairs": tally.repairs,
    }
    found["is_ideal"] = verdicts.success and all(found[name] for name in protocol.ideal_metrics)
    return tally.sums() | {name: float(value) for name, value in found.items()}


def interleaved(kinds: Sequence[str]) -> bool:
    """Whether words of thought stand between code: a think, then code, then a think, then code or a check."""
    words = (*_WORDS, "wait")
    wanted = [words, ("code",), words, ("code", "verify", "final")]
    for kind in kinds:
        if wanted and kind in wanted[0]:
            wanted.pop(0)
    return not wanted
