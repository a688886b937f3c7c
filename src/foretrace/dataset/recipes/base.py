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

from foretrace.actions.same_action import Action, make_action_key
from foretrace.actions.taxonomy import StepLabel
from foretrace.core.trace import Message, Trace
from foretrace.dataset.prompts import ChatText, Prompts
from foretrace.dataset.settings import BuildSettings, Outcomes
from foretrace.dataset.target import message_text, target_text

Kind = Literal["messages", "trajectory", "string", "strings", "int", "bool", "action", "actions"]
"""Type of a column: `messages` is a list of {role, content}, `action` a ClassLabel of the nine."""

IDENTITY: dict[str, Kind] = {
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
    columns: dict[str, Kind]
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
class Act:
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
    def deed(self) -> Deed:
        """What was done, however it is written."""
        return self.attempt.deed(self.index)

    @property
    def prompt(self) -> list[ChatText]:
        """What was before it."""
        return self.attempt.prompts.at(self.index)

    @property
    def prompt_mark(self) -> bytes:
        """The digest of the prompt."""
        return self.attempt.prompts.mark(self.index)


Deed = tuple[tuple[str, ...], ...]
"""What a step does, as something that can be compared: a key for each call, or the text of a message without one."""


def wants(outcomes: Outcomes, success: bool | None) -> bool:
    """Whether steps of an attempt of this outcome are targets."""
    return {"success": success is True, "not_failed": success is not False, "all": True}[outcomes]


def deed_of(message: Message) -> Deed:
    """What a message does. The type is left out: the same call can be a write here and a repair there."""
    calls = (make_action_key(Action(type=None, tool=c.name, arguments=c.arguments)) for c in message.tool_calls)
    return tuple(calls) or (("", "", message.content),)


class Attempt:
    """One labelled trace, with its prompts."""

    def __init__(self, trace: Trace, labels: list[StepLabel], prompts: Prompts, settings: BuildSettings) -> None:
        self.trace = trace
        self.labels = labels
        self.prompts = prompts
        self.wanted = wants(settings.outcomes, trace.outcome.success)
        """Whether the settings take this attempt's steps as targets."""
        self.drops: Counter[str] = Counter()
        self.acts: list[Act] = []
        """Steps that can be targets, in order, once `choose` has chosen them."""
        self._settings = settings
        self._deeds: dict[int, Deed] = {}
        self._times: dict[Deed, list[int]] | None = None

    def choose(self, until: int | None = None) -> None:
        """Fill `acts`, with no step behind the message `until` where that is given."""
        within = [label for label in self.labels if until is None or label.index <= until]
        self.acts = [act for label in within if (act := self._act(label, self._settings)) is not None]

    def deed(self, index: int) -> Deed:
        """What the message at `index` does, however it is written; equal for the same calls."""
        if index not in self._deeds:
            self._deeds[index] = deed_of(self.trace.messages[index])
        return self._deeds[index]

    def shows(self, deed: Deed, index: int) -> bool:
        """Whether the prompt at `index` shows that this was done before."""
        if self._times is None:
            self._times = {}
            for label in self.labels:
                self._times.setdefault(self.deed(label.index), []).append(label.index)
        times = self._times.get(deed)
        if times is None or times[0] >= index:
            return False
        kept = self.prompts.kept_from(index)
        return any(kept <= time < index for time in times)

    def shares_with(self, other: Attempt) -> int:
        """How many messages two attempts have in common from the start: only so far can a prompt be the same."""
        pairs = zip(self.trace.messages, other.trace.messages, strict=False)
        same = (a.role == b.role and message_text(a) == message_text(b) for a, b in pairs)
        return sum(1 for _ in takewhile(bool, same))

    def _act(self, label: StepLabel, settings: BuildSettings) -> Act | None:
        message = self.trace.messages[label.index]
        reason = self._refusal(message, label)
        if reason is not None:
            self.drops[reason] += 1
            return None
        assert label.action is not None
        try:
            text = target_text(message, label.action, settings.target)
        except (msgspec.DecodeError, RecursionError):
            self.drops["unreadable_call"] += 1
            return None
        return Act(self, label.index, label, text)

    def _refusal(self, message: Message, label: StepLabel) -> str | None:
        if label.action is None:
            return "not_a_step"
        if message.train is False:
            return "not_trainable"
        if message.author != "model":
            return "not_the_models"
        if any(call.error for call in message.tool_calls):
            return "unreadable_call"
        if self.prompts.leaks(label.index):
            return "target_text_in_prompt"
        if not self.prompts.fits(label.index):
            return "prompt_too_long"
        texts = [message.content, *(call.arguments for call in message.tool_calls)]
        return None if any(text.strip() for text in texts) else "empty_step"

    def identity(self, step: int) -> dict[str, Any]:
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


class Siblings(NamedTuple):
    """All attempts at one task, in key order."""

    attempts: list[Attempt]
    split: str
    settings: BuildSettings
    drops: Counter[str]
    """Reasons for which candidates of this recipe gave no row."""


class Recipe(Protocol):
    """Traces to rows of one or more configs."""

    configs: tuple[Config, ...]

    def rows(self, task: Siblings) -> Iterator[Row]:
        """Rows of one task. Every choice derives from (seed, key, step)."""
        ...
