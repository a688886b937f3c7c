"""What makes the action of one step a fair wrong answer at the prompt of another."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import msgspec

from foretrace.actions.taxonomy import Effect
from foretrace.core.trace import Message
from foretrace.dataset.recipes.attempts import ActionKey, Attempt, Target

_WORD = re.compile(r"[^\s'\"=,;|&()<>]+")
_MAX_VALUE_CHARS = 200


class AcceptedActions:
    """What successful attempts did at each prompt. An action that one of them took at a prompt is not wrong there."""

    def __init__(self, attempts: Iterable[Attempt]) -> None:
        self._by_prompt: dict[bytes, list[Target]] = {}
        attempts = list(attempts)
        if len(attempts) > 1:
            for attempt in attempts:
                for target in attempt.targets:
                    self._by_prompt.setdefault(target.prompt_digest, []).append(target)

    def accepts_key(self, at: Target, wrong: ActionKey) -> bool:
        """Whether some successful attempt did what this key says at the prompt of `at`."""
        if not self._by_prompt:
            return False
        return any(target.action_key == wrong for target in self._by_prompt.get(at.prompt_digest, ()))

    def accepts(self, at: Target, wrong: Target) -> bool:
        """Whether some successful attempt did what `wrong` does at the prompt of `at`."""
        if not self._by_prompt:
            return False
        return any(are_same_targets(target, wrong) for target in self._by_prompt.get(at.prompt_digest, ()))


def are_same_targets(one: Target, other: Target) -> bool:
    """Whether two steps do the same, however it is written."""
    return one.text == other.text or one.action_key == other.action_key


def find_repeat_rule_sign(at: Target, wrong: Target) -> int:
    """Apply the rule "reject what was already done" to a pair: 1 where it is right, -1 where it is wrong, 0 where
    the prompt shows both actions or neither."""
    return at.attempt.is_shown(wrong.action_key, at.index) - at.attempt.is_repeat(at.index)


def are_interchangeable(first: Target, second: Target) -> bool:
    """Whether the order of two steps may not matter, so that neither is a wrong answer at the prompt of the other.

    True for two reads with only reads between them, and for two reads of different attempts, whose order is unknown.
    """
    if first.label.effect is not Effect.PURE_READ or second.label.effect is not Effect.PURE_READ:
        return False
    if first.attempt is not second.attempt:
        return True
    between = (a for a in first.attempt.targets if first.index < a.index < second.index)
    return all(a.label.effect is Effect.PURE_READ for a in between)


def find_call_shape(message: Message) -> tuple[Any, ...] | None:
    """The shape of a call: its tool, its argument names and the program of its command. Two calls of one shape
    differ in values alone, such as `cat a.py` and `cat b.py`. `None` for a message without exactly one call, or with
    a long value."""
    if len(message.tool_calls) != 1:
        return None
    call = message.tool_calls[0]
    values = _read_arguments(call.arguments)
    if not values or any(len(v) > _MAX_VALUE_CHARS for v in values.values()):
        return None
    command = values.get("command", "")
    words = command.split()
    head = command if len(words) < 2 else " ".join(w for w in words if not _names_something(w))
    return (call.name, tuple(sorted(values)), head)


def has_visible_values(wrong: Target, at: Target) -> bool:
    """Whether the prompt at `at` shows every value in which the two calls differ.

    Both calls count. Say the agent read `a.py` and the wrong call reads `b.py`: the prompt must name both files. If
    it named one of them only, a guesser could tell the answers apart by that.
    """
    mine, others = (_find_named_values(target.message.tool_calls[0].arguments) for target in (at, wrong))
    if not others - mine or not mine - others:
        return False
    texts = [m.content for m in at.prompt[1:]]
    return all(any(_stands_in(value, text) for text in texts) for value in mine ^ others)


def _stands_in(value: str, text: str) -> bool:
    at = text.find(value)
    while at >= 0:
        before, after = text[at - 1 : at], text[at + len(value) : at + len(value) + 1]
        if not (before.isalnum() and value[0].isalnum()) and not (after.isalnum() and value[-1].isalnum()):
            return True
        at = text.find(value, at + 1)
    return False


@lru_cache(maxsize=256)
def _find_named_values(arguments: str) -> frozenset[str]:
    """The values of a call that an earlier message could name: paths, ids, numbers, words of a command."""
    units: set[str] = set()
    for name, value in _read_arguments(arguments).items():
        if name == "command":
            units |= {w for w in _WORD.findall(value) if _names_something(w)}
        elif value[:1] in "[{":
            units |= set(re.findall(r"[\w./-]+", value))
        else:
            units.add(value)
    return frozenset(posixpath.normpath(u) if "/" in u else u for u in units if len(u) > 1 or u.isdigit())


def _names_something(word: str) -> bool:
    """A word of a command that names something, as opposed to a program or an option."""
    return not word.startswith("-") and any(c in word for c in "/._0123456789")


@lru_cache(maxsize=256)
def _read_arguments(arguments: str) -> dict[str, str]:
    value = msgspec.json.decode(arguments)
    if not isinstance(value, dict):
        return {}
    return {k: v if isinstance(v, str) else msgspec.json.encode(v).decode() for k, v in value.items()}
