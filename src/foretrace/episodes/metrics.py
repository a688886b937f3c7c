"""The metrics of an episode, counted while it runs or computed at its end, and its reward (docs/protocols.md)."""

from __future__ import annotations

from collections.abc import Sequence

from foretrace.core.completion import Completion
from foretrace.core.trace import Usage
from foretrace.episodes.settings import EpisodeSettings
from foretrace.episodes.workspace import Evaluation
from foretrace.protocols.base import Act, InteractionProtocol, Reply, Result

_THOUGHT_KINDS = ("think", "plan", "reflect")
_BONUS = 0.1
"""Bonus for two or more thoughts, and for a verification."""


class EventCounter:
    """Counts replies, runs and failures of an episode while it runs."""

    def __init__(self) -> None:
        self.hallucinated = self.executions = self.iterations = self.failures = self.results_seen = self.repairs = 0
        self._results_unseen = 0
        self._last_code = ""
        self._sums: dict[str, float] = {"turns": 0, "cut_replies": 0, "model_s": 0.0, "tool_s": 0.0}

    def make_totals(self) -> dict[str, float]:
        """Turns, cut replies, seconds and tokens so far; tokens only if the server counts them."""
        return {name: round(float(value), 6) for name, value in self._sums.items()}

    def count_reply(self, reply: Reply, completion: Completion) -> None:
        """Count a reply; the model has seen all results before it."""
        self.results_seen += self._results_unseen
        self._results_unseen = 0
        self.hallucinated += reply.hallucinated
        self.repairs += sum(len(act.repairs) for act in reply.acts)
        self._sums["turns"] += 1
        self._sums["cut_replies"] += completion.finish == "length"
        self._sums["model_s"] += completion.seconds
        usage = completion.usage or Usage()
        counts = {"prompt_tokens": usage.prompt_tokens, "completion_tokens": usage.completion_tokens}
        for name, count in counts.items():
            if count is not None:
                self._sums[name] = self._sums.get(name, 0) + count

    def count_result(self, result: Result, seconds: float) -> None:
        self._sums["tool_s"] += seconds
        act = result.act
        if result.run is not None or result.public is not None:
            self.executions += 1
            self._results_unseen += 1
            if act.kind in ("code", "final") and act.code.strip() != self._last_code:
                self._last_code = act.code.strip()
                self.iterations += 1
        self.failures += result.failed


def compute_metrics(
    events: EventCounter, acts: Sequence[Act], evaluation: Evaluation, protocol: InteractionProtocol
) -> dict[str, float]:
    """All metrics of a finished episode, by name; true is 1, false is 0."""
    kinds = [act.kind for act in acts]
    metrics: dict[str, float] = {
        "think_count": sum(kind in _THOUGHT_KINDS for kind in kinds),
        "code_block_count": sum(
            kind in ("code", "final") and bool(act.code) for kind, act in zip(kinds, acts, strict=True)
        ),
        "execution_count": events.executions,
        "code_iterations": events.iterations,
        "had_errors": events.failures > 0,
        "recovered": events.failures > 0 and evaluation.success,
        "has_verify": "verify" in kinds,
        "is_interleaved": is_interleaved(kinds),
        "has_tool_feedback": events.results_seen > 0,
        "invented_results": events.hallucinated,
        "repairs": events.repairs,
    }
    metrics["is_ideal"] = evaluation.success and all(metrics[name] for name in protocol.ideal_metrics)
    return events.make_totals() | {name: float(value) for name, value in metrics.items()}


def is_interleaved(kinds: Sequence[str]) -> bool:
    """Whether the episode has a thought, then code, then a thought, then code or a check."""
    words = (*_THOUGHT_KINDS, "wait")
    wanted = [words, ("code",), words, ("code", "verify", "final")]
    for kind in kinds:
        if wanted and kind in wanted[0]:
            wanted.pop(0)
    return not wanted


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
