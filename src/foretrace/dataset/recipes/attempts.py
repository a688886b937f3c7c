"""The input of a recipe: the labeled attempts at one task, and the steps of each that can be targets."""

from __future__ import annotations

import bisect
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, NamedTuple

import msgspec

from foretrace.actions.corrections import Corrections
from foretrace.actions.label_steps import label_trace
from foretrace.actions.same_action import Action, make_call_key
from foretrace.actions.taxonomy import StepLabel
from foretrace.core.message_columns import ChatText
from foretrace.core.predictions import Prediction
from foretrace.core.trace import Message, Outcome, Trace
from foretrace.dataset.inferred_tools import InferredTools
from foretrace.dataset.prompts import Prompts, TokenCounter, make_message_text, make_target_text
from foretrace.dataset.settings import OUTCOME_NAMES, BuildSettings, Outcomes


@dataclass(frozen=True, slots=True, eq=False)
class Target:
    """One step that can be a target: what the agent did at a prompt."""

    attempt: Attempt
    index: int
    label: StepLabel
    text: str
    """What a proposer should answer."""

    @property
    def message(self) -> Message:
        return self.attempt.trace.messages[self.index]

    @property
    def place(self) -> tuple[str, int]:
        """Key of the trace and index of the message."""
        return self.attempt.trace.key, self.index

    @property
    def action_key(self) -> ActionKey:
        return self.attempt.find_action_key(self.index)

    @property
    def prompt(self) -> list[ChatText]:
        return self.attempt.prompts.render(self.index)

    @property
    def prompt_digest(self) -> bytes:
        return self.attempt.prompts.find_digest(self.index)


class Mistake(msgspec.Struct, frozen=True):
    """A wrong guess of a proposer that becomes a pair."""

    pair: str
    """Shared by a pair and its twin."""
    guess: Prediction


ActionKey = tuple[tuple[str, ...], ...]
"""What a step does, in a comparable form: a key for each call, or the text of a message without calls."""


def is_wanted_outcome(outcomes: Outcomes, success: bool | None) -> bool:
    return {"success": success is True, "not_failed": success is not False, "all": True}[outcomes]


def make_action_key(message: Message) -> ActionKey:
    """The action key of a message. It has no action type: the same call can be a write here and a repair there."""
    calls = (make_call_key(Action(type=None, tool=c.name, arguments=c.arguments)) for c in message.tool_calls)
    return tuple(calls) or (("", "", message.content),)


def make_outcome_values(outcome: Outcome, settings: BuildSettings) -> dict[str, Any]:
    """The values of the columns for the attempt's outcome and its weight."""
    return {
        "success": outcome.success,
        "reward": outcome.reward,
        "flags": list(outcome.flags),
        "weight": (settings.weights or {}).get(OUTCOME_NAMES[outcome.success], 1.0),
    }


class Attempt:
    """One labeled trace, with its prompts. They show inferred tools if the source does not list any."""

    def __init__(
        self,
        trace: Trace,
        settings: BuildSettings,
        counter: TokenCounter,
        inferred_tools: InferredTools,
        corrections: Corrections | None,
        labels: list[StepLabel] | None = None,
    ) -> None:
        labels = label_trace(trace) if labels is None else labels
        offered = inferred_tools.offer(trace)
        self.trace = trace
        self.labels = labels if corrections is None else corrections.apply(trace, labels)
        self.prompts = Prompts(offered, settings.target, settings.max_context_tokens, counter, settings.window)
        self.has_inferred_tools = offered is not trace
        self.wanted = is_wanted_outcome(settings.outcomes, trace.outcome.success)
        """Whether the settings take this attempt's steps as targets."""
        self.drops: Counter[str] = Counter()
        self.mistakes: Mapping[int, Mistake] = {}
        """Wrong guesses of a proposer that become pairs, by step."""
        self.targets: list[Target] = []
        """Steps that can be targets, in order, after `select_targets`."""
        self._settings = settings
        self._action_keys: dict[int, ActionKey] = {}
        self._steps_by_action: dict[ActionKey, list[int]] = {}
        """Indexes of the steps with each action key, ascending; filled on first use."""
        self._repeats: dict[int, bool] = {}

    def select_targets(self, until: float = math.inf) -> None:
        """Fill `targets` with the steps up to message `until`."""
        within = (label for label in self.labels if label.index <= until)
        self.targets = [target for label in within if (target := self._make_target(label)) is not None]

    def find_action_key(self, index: int) -> ActionKey:
        """The action key of the message at `index`; equal for the same calls."""
        if index not in self._action_keys:
            self._action_keys[index] = make_action_key(self.trace.messages[index])
        return self._action_keys[index]

    def is_shown(self, action_key: ActionKey, index: int) -> bool:
        """Whether the prompt at `index` shows an earlier step with this action key."""
        if not self._steps_by_action:
            for label in self.labels:
                self._steps_by_action.setdefault(self.find_action_key(label.index), []).append(label.index)
        steps = self._steps_by_action.get(action_key)
        if steps is None or steps[0] >= index:
            return False
        shown = self.prompts.find_shown(index)
        return steps[bisect.bisect_left(steps, shown.stop) - 1] in shown

    def is_repeat(self, index: int) -> bool:
        """Whether the prompt at `index` shows an earlier step that did the same as the one at `index`."""
        if index not in self._repeats:
            self._repeats[index] = self.is_shown(self.find_action_key(index), index)
        return self._repeats[index]

    def count_shared_messages(self, other: Attempt) -> int:
        pairs = zip(self.trace.messages, other.trace.messages, strict=False)
        same = (a.role == b.role and make_message_text(a) == make_message_text(b) for a, b in pairs)
        return sum(1 for _ in takewhile(bool, same))

    def _make_target(self, label: StepLabel) -> Target | None:
        message = self.trace.messages[label.index]
        reason = self._find_refusal(message, label)
        if reason is not None:
            self.drops[reason] += 1
            return None
        assert label.action is not None
        try:
            text = make_target_text(message, label.action, self._settings.target)
        except (msgspec.DecodeError, RecursionError):
            self.drops["unreadable_call"] += 1
            return None
        return Target(self, label.index, label, text)

    def _find_refusal(self, message: Message, label: StepLabel) -> str | None:
        if label.action is None:
            return "not_a_step"
        if message.train is False:
            return "not_trainable"
        if message.author != "model":
            return "not_the_models"
        if any(call.error for call in message.tool_calls):
            return "unreadable_call"
        if self.prompts.has_target_before(label.index):
            return "target_text_in_prompt"
        if not self.prompts.has_room(label.index):
            return "prompt_too_long"
        texts = [message.content, *(call.arguments for call in message.tool_calls)]
        return None if any(text.strip() for text in texts) else "empty_step"

    def make_common_values(self, step: int) -> dict[str, Any]:
        """The values of `COMMON_COLUMNS` for a row at `step`."""
        trace = self.trace
        return {
            "key": trace.key,
            "step": step,
            "task": trace.task.id,
            "group": trace.task.group,
            "source": trace.provenance.source,
            "license": trace.provenance.license or "unknown",
            **make_outcome_values(trace.outcome, self._settings),
        }


def select_targets(attempts: Sequence[Attempt]) -> None:
    """Select the targets of attempts at one task. An unwanted one can only give wrong answers, to prompts that it
    shares with a wanted one."""
    wanted = [attempt for attempt in attempts if attempt.wanted]
    for attempt in attempts:
        if attempt.wanted:
            attempt.select_targets()
        elif wanted:
            attempt.select_targets(until=max(attempt.count_shared_messages(other) for other in wanted))


class TaskAttempts(NamedTuple):
    """All attempts at one task, in key order."""

    attempts: list[Attempt]
    split: str
    settings: BuildSettings
    drops: Counter[str]
    """Candidates of this recipe that gave no row, by reason."""
