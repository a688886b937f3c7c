"""A group of rollouts as Atropos takes it, and whether a trainer gets it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from foretrace.core.errors import ForetraceError
from foretrace.envs.metrics import was_cut
from foretrace.envs.rollouts import Rolled

ONE_SCORE, TOO_LONG = "one score", "too long"
_ROUNDS = 2
"""Times `give_up_after` groups of which none was sent, after which a run ends whose replies are all cut by length."""
_CUT_SHARE = 0.9
"""Share of rollouts from which on it is the lengths that keep groups from being sent."""


def group_of(members: Sequence[Rolled], params: Mapping[str, Any], *, messages: bool) -> dict[str, Any]:
    """A ScoredDataGroup. Keys without a value are left out: Atropos takes null for a value.

    Args:
        members: rollouts that can be trained on.
        params: how was sampled.
        messages: whether to add what was said.
    """
    pairs = [(one.trace, one.sequence) for one in members if one.sequence is not None]
    sequences = [sequence for _, sequence in pairs]
    group: dict[str, Any] = {
        "tokens": [s.tokens for s in sequences],
        "masks": [s.masks for s in sequences],
        "scores": [max(-1.0, min(1.0, trace.outcome.reward or 0.0)) for trace, _ in pairs],
        "inference_logprobs": [s.logprobs for s in sequences],
        "generation_params": dict(params),
    }
    overrides: list[dict[str, Any]] = [{} for _ in sequences]
    for mine, (trace, sequence) in zip(overrides, pairs, strict=True):
        if trace.outcome.metrics.get("cut_replies") or not sequence.trained:
            mine["set_advantage_to_zero"] = True
        if sequence.inexact:
            mine["inexact_tokens"] = sequence.inexact
    if any(overrides):
        group["overrides"] = overrides
    if messages:
        group["messages"] = [s.messages for s in sequences]
    return group


def why_left_out(group: Mapping[str, Any], *, one_score: bool, most: int) -> str:
    """Why Atropos does not send a group (its own conditions: `BaseEnv.handle_send_to_api`); empty where it does.

    Args:
        one_score: whether a group in which all scores are the same is left out.
        most: ids of a sequence from which on its group is left out; 0 or less is no limit.
    """
    if one_score and len(set(group["scores"])) == 1:
        return ONE_SCORE
    return TOO_LONG if 0 < most <= max(map(len, group["tokens"])) else ""


class Sent:
    """Counts the groups that a trainer gets, and those that Atropos leaves out.

    Args:
        patience: groups in a row that are left out before that is said.
    """

    def __init__(self, patience: int) -> None:
        self.groups = 0
        self.left_out: Counter[str] = Counter()
        """By reason."""
        self._patience = patience
        self._forget()

    def _forget(self) -> None:
        self._row: Counter[str] = Counter()
        """Groups left out since the last that was sent, by reason."""
        self._rollouts = self._cut = self._solved = 0
        """Of these groups."""

    def add(self, members: Sequence[Rolled], why: str, limits: str) -> str:
        """Count a whole group.

        Args:
            why: see `why_left_out`.
            limits: the settings that limit lengths, for the remedy.

        Returns:
            A warning where it is time for one, else nothing.

        Raises:
            ForetraceError: no group was ever sent, and that is because of lengths.
        """
        if not why:
            self.groups += 1
            self._forget()
            return ""
        self.left_out[why] += 1
        self._row[why] += 1
        self._rollouts += len(members)
        self._cut += len(members) if why == TOO_LONG else sum(was_cut(one.trace) for one in members)
        self._solved += sum(bool(one.trace.outcome.success) for one in members)
        number, longer = self._row.total(), f"raise {limits}"
        if not self.groups and number >= _ROUNDS * self._patience and self._cut >= _CUT_SHARE * self._rollouts:
            raise ForetraceError(f"gave up: no group could be sent: {self.told()}; {longer}")
        if number != self._patience:
            return ""
        other = "choose problems that the model solves now and then, a larger group_size or a higher temperature"
        remedy = longer if 2 * self._cut >= self._rollouts else other
        return f"{number} groups in a row were not sent: {self.told()}; {remedy}"

    def told(self) -> str:
        """What was the matter with the groups since the last that was sent."""
        return (
            f"{self._row[ONE_SCORE]} had one score, {self._row[TOO_LONG]} were too long; of their {self._rollouts} "
            f"rollouts {self._cut} were cut by length and {self._solved} solved their problem"
        )
