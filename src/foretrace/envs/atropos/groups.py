"""A group of rollouts as Atropos takes it, and whether Atropos sends it to the trainer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from foretrace.core.errors import ForetraceError
from foretrace.envs.metrics import was_cut
from foretrace.envs.rollouts import Rollout

ONE_SCORE, TOO_LONG = "one score", "too long"
_FATAL_FACTOR = 2
"""A run whose replies are all cut by length ends after this many times `patience` groups of which none was sent."""
_MIN_CUT_SHARE = 0.9
"""Share of rollouts from which on it is the lengths that keep groups from being sent."""


def make_group(members: Sequence[Rollout], sampling: Mapping[str, Any], *, messages: bool) -> dict[str, Any]:
    """Atropos' `ScoredDataGroup`. Keys without a value are left out: Atropos takes `None` for a value.

    Args:
        members: rollouts that can be trained on.
        sampling: sent as `generation_params`.
        messages: whether to add the messages of each rollout.
    """
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


def find_drop_reason(group: Mapping[str, Any], *, drop_one_score: bool, max_tokens: int) -> str:
    """Why Atropos drops a group (its own conditions: `BaseEnv.handle_send_to_api`); empty where it sends it.

    Args:
        drop_one_score: whether a group in which all scores are the same is dropped.
        max_tokens: ids of a sequence from which on its group is dropped; 0 or less means no limit.
    """
    if drop_one_score and len(set(group["scores"])) == 1:
        return ONE_SCORE
    return TOO_LONG if 0 < max_tokens <= max(map(len, group["tokens"])) else ""


class GroupMonitor:
    """Counts the groups that Atropos sends and those that it drops, and says when too many are dropped.

    Args:
        patience: groups in a row that are dropped before a warning.
    """

    def __init__(self, patience: int) -> None:
        self.sent = 0
        """Groups that were sent."""
        self.dropped: Counter[str] = Counter()
        """Groups that were dropped, by reason."""
        self._patience = patience
        self._start_row()

    def _start_row(self) -> None:
        self._row: Counter[str] = Counter()
        """Groups dropped since the last that was sent, by reason."""
        self._rollouts = self._cut = self._solved = 0
        """Of the rollouts of these groups: all, those that were cut by length, those that solved their problem."""

    def record(self, members: Sequence[Rollout], reason: str, limits: str) -> str:
        """Count a full group.

        Args:
            reason: why it is dropped, see `find_drop_reason`; empty where it is sent.
            limits: the settings that limit lengths, for the remedy.

        Returns:
            A warning where it is time for one, else nothing.

        Raises:
            ForetraceError: no group was ever sent, and that is because of lengths.
        """
        if not reason:
            self.sent += 1
            self._start_row()
            return ""
        self.dropped[reason] += 1
        self._row[reason] += 1
        self._rollouts += len(members)
        self._cut += len(members) if reason == TOO_LONG else sum(was_cut(one.trace) for one in members)
        self._solved += sum(bool(one.trace.outcome.success) for one in members)
        number, longer = self._row.total(), f"raise {limits}"
        if not self.sent and number >= _FATAL_FACTOR * self._patience and self._cut >= _MIN_CUT_SHARE * self._rollouts:
            raise ForetraceError(f"gave up: no group could be sent: {self.describe_row()}; {longer}")
        if number != self._patience:
            return ""
        other = "choose problems that the model solves now and then, a larger group_size or a higher temperature"
        remedy = longer if 2 * self._cut >= self._rollouts else other
        return f"{number} groups in a row were not sent: {self.describe_row()}; {remedy}"

    def describe_row(self) -> str:
        """Why the groups since the last that was sent were dropped, in numbers."""
        return (
            f"{self._row[ONE_SCORE]} had one score, {self._row[TOO_LONG]} were too long; of their {self._rollouts} "
            f"rollouts {self._cut} were cut by length and {self._solved} solved their problem"
        )
