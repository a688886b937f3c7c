"""The contract of a recipe: the attempts at one task in, rows of one or more datasets out.

To add a recipe, drop a file in this folder with a `PLUGIN` that has `configs` and `rows`. See docs/add-a-recipe.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, Literal, NamedTuple, Protocol

import msgspec

from foretrace.actions import match
from foretrace.actions.match import Action
from foretrace.actions.taxonomy import StepLabel
from foretrace.core.trace import Message, Trace
from foretrace.dataset.prompts import ChatText, Prompts
from foretrace.dataset.settings import BuildSettings, Outcomes
from foretrace.dataset.target_text import make_message_text, make_target_text

ColumnType = Literal["messages", "trajectory", "string", "strings", "int", "bool", "action", "actions"]
"""Type of a column: `messages` is a list of {role, content}, `action` a ClassLabel of the nine."""

IDENTITY: dict[str, ColumnType] = {
    "key": "string",
    "step": "int",
    "task": "string",
    "group": "string",
    "source": "string",
    "license": "string",
}
"""Columns that every row carries: where it comes from. `step` is the index of the assistant message."""


class Config(NamedTuple):
    """One dataset: its name on the Hub side, its columns, and what it is for."""

    name: str
    columns: dict[str, ColumnType]
    about: str
    splits: tuple[str, ...] = ("train", "validation", "test")


class Row(NamedTuple):
    """One row of one config."""

    config: str
    key: str
    step: int
    salt: str
    """Tells rows of one config at one step apart."""
    values: dict[str, Any]


@dataclass(frozen=True, slots=True, eq=False)
class Target:
    """One step that can be a target: what the agent did at that prompt."""

    attempt: Attempt
    index: int
    label: StepLabel
    text: str
    """The target text."""

    @property
    def message(self) -> Message:
        """The assistant message."""
        return self.attempt.trace.messages[self.index]

    @property
    def action_key(self) -> ActionKey:
        """What was done, however it is written."""
        return self.attempt.find_action_key(self.index)

    @property
    def prompt(self) -> list[ChatText]:
        """What was before it."""
        return self.attempt.prompts.render(self.index)

    @property
    def prompt_digest(self) -> bytes:
        """The digest of the prompt."""
        return self.attempt.prompts.find_digest(self.index)


ActionKey = tuple[tuple[str, ...], ...]
"""What a step does, as something that can be compared: a key for each call, or the text of a message without one."""


def is_wanted_outcome(outcomes: Outcomes, success: bool | None) -> bool:
    """Whether steps of an attempt of this outcome are targets."""
    return {"success": success is True, "not_failed": success is not False, "all": True}[outcomes]


def make_action_key(message: Message) -> ActionKey:
    """What a message does. The type is left out: the same call can be a write here and a repair there."""
    calls = (match.key(Action(type=None, tool=c.name, arguments=c.arguments)) for c in message.tool_calls)
    return tuple(calls) or (("", "", message.content),)


class Attempt:
    """One labelled trace, with its prompts."""

    def __init__(self, trace: Trace, labels: list[StepLabel], prompts: Prompts, settings: BuildSettings) -> None:
        self.trace = trace
        self.labels = labels
        self.prompts = prompts
        self.wanted = is_wanted_outcome(settings.outcomes, trace.outcome.success)
        """Whether the settings take this attempt's steps as targets."""
        self.drops: Counter[str] = Counter()
        self.targets: list[Target] = []
        """Steps that can be targets, in order, once `choose` has chosen them."""
        self._settings = settings
        self._action_keys: dict[int, ActionKey] = {}
        self._steps_by_action: dict[ActionKey, list[int]] | None = None

    def select_targets(self, until: int | None = None) -> None:
        """Fill `acts`, with no step behind the message `until` where that is given."""
        within = [label for label in self.labels if until is None or label.index <= until]
        self.targets = [act for label in within if (act := self._make_target(label, self._settings)) is not None]

    def find_action_key(self, index: int) -> ActionKey:
        """What the message at `index` does, however it is written; equal for the same calls."""
        if index not in self._action_keys:
            self._action_keys[index] = make_action_key(self.trace.messages[index])
        return self._action_keys[index]

    def is_shown(self, deed: ActionKey, index: int) -> bool:
        """Whether the prompt at `index` shows that this was done before."""
        if self._steps_by_action is None:
            self._steps_by_action = {}
            for label in self.labels:
                self._steps_by_action.setdefault(self.find_action_key(label.index), []).append(label.index)
        times = self._steps_by_action.get(deed)
        if times is None or times[0] >= index:
            return False
        kept = self.prompts.find_first_shown(index)
        return any(kept <= time < index for time in times)

    def count_shared_messages(self, other: Attempt) -> int:
        """How many messages two attempts have in common from the start: only so far can a prompt be the same."""
        pairs = zip(self.trace.messages, other.trace.messages, strict=False)
        same = (a.role == b.role and make_message_text(a) == make_message_text(b) for a, b in pairs)
        return sum(1 for _ in takewhile(bool, same))

    def _make_target(self, label: StepLabel, settings: BuildSettings) -> Target | None:
        message = self.trace.messages[label.index]
        reason = self._find_refusal(message, label)
        if reason is not None:
            self.drops[reason] += 1
            return None
        assert label.action is not None
        try:
            text = make_target_text(message, label.action, settings.target)
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

    def make_identity(self, step: int) -> dict[str, Any]:
        """The identity columns of a row at `step`."""
        trace = self.trace
        return {
            "key": trace.key,
            "step": step,
            "task": trace.task.id,
            "group": trace.task.group,
            "source": trace.provenance.source,
            "license": trace.provenance.license or "unknown",
        }


class TaskAttempts(NamedTuple):
    """All attempts at one task, in key order."""

    attempts: list[Attempt]
    split: str
    settings: BuildSettings
    drops: Counter[str]
    """Reasons for which candidates of this recipe gave no row."""


class Recipe(Protocol):
    """Traces to rows of one or more configs."""

    configs: tuple[Config, ...]

    def rows(self, task: TaskAttempts) -> Iterator[Row]:
        """Rows of one task. Every choice derives from (seed, key, step)."""
        ...
