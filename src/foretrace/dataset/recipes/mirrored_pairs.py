"""Mirrored pairs: two steps of one task make two rows, and each step is chosen in one row and rejected in the other.

Each completion is thus chosen as often as it is rejected, so its text, length or form does not tell which answer is
right. In the families `argument` and `type_swap`, the rule "reject what the agent had already done" must not help
either: a pair is taken only if the rule is right in one row and wrong in the other, or says nothing in both. The family
`redundancy` is about repeats, so there the rule may help."""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from hashlib import blake2b
from itertools import chain, combinations
from typing import Any, NamedTuple

import msgspec

from foretrace.actions.taxonomy import Effect
from foretrace.core.trace import Message
from foretrace.dataset.recipes.attempts import Attempt, Target, TaskAttempts

_WORD = re.compile(r"[^\s'\"=,;|&()<>]+")
_MAX_VALUE_CHARS = 200


class AcceptedActions:
    """What successful attempts did at each prompt. An action that one of them took is not wrong there."""

    def __init__(self, attempts: Iterable[Attempt]) -> None:
        self._by_prompt: dict[bytes, list[Target]] = {}
        attempts = list(attempts)
        if len(attempts) > 1:
            for attempt in attempts:
                for target in attempt.targets:
                    self._by_prompt.setdefault(target.prompt_digest, []).append(target)

    def find_at(self, target: Target) -> Sequence[Target]:
        return self._by_prompt.get(target.prompt_digest, ()) if self._by_prompt else ()

    def accepts(self, at: Target, wrong: Target) -> bool:
        """Whether some successful attempt did what `wrong` does at the prompt of `at`."""
        return any(are_same_targets(target, wrong) for target in self.find_at(at))


def are_same_targets(one: Target, other: Target) -> bool:
    """Whether two steps do the same, regardless of how it is written."""
    return one.text == other.text or one.action_key == other.action_key


def find_repeat_rule_sign(at: Target, wrong: Target) -> int:
    """Apply the rule "reject what was already done" to a pair: 1 if it is right, -1 if it is wrong, 0 if the prompt
    shows both actions or neither."""
    return at.attempt.is_shown(wrong.action_key, at.index) - at.attempt.is_repeat(at.index)


def are_interchangeable(first: Target, second: Target) -> bool:
    """Whether the order of two steps may not matter, so that neither is a wrong answer at the prompt of the other: two
    reads with only reads between them, or of different attempts."""
    if first.label.effect is not Effect.PURE_READ or second.label.effect is not Effect.PURE_READ:
        return False
    if first.attempt is not second.attempt:
        return True
    between = (a for a in first.attempt.targets if first.index < a.index < second.index)
    return all(a.label.effect is Effect.PURE_READ for a in between)


def find_call_shape(message: Message) -> tuple[Any, ...] | None:
    """The shape of a call: its tool, its argument names and the program of its command. `None` if the message does not
    have exactly one call, or has a long value."""
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
    """Whether the prompt at `at` shows every value in which the two calls differ. If it named only the file of one of
    them, a guesser could tell the answers apart by that."""
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
    """Whether a word of a command names something, unlike a program or an option."""
    return not word.startswith("-") and any(c in word for c in "/._0123456789")


@lru_cache(maxsize=256)
def _read_arguments(arguments: str) -> dict[str, str]:
    value = msgspec.json.decode(arguments)
    if not isinstance(value, dict):
        return {}
    return {k: v if isinstance(v, str) else msgspec.json.encode(v).decode() for k, v in value.items()}


MIRRORED = ("argument", "type_swap", "redundancy")
"""Families whose pairs have a mirror."""
REPEAT_BALANCED = ("argument", "type_swap")
"""Families in which the rule "reject what was already done" is right in exactly half of the pairs."""
MAX_TRIES = 48
"""Most candidate pairs tried for one family of one trace. The search then stops with the pairs found so far."""

_Candidates = Iterator[tuple[Target, Target]]


class MirroredPair(NamedTuple):
    """Two steps. Each is right at its own prompt, and the rejected answer at the other's."""

    family: str
    first: Target
    second: Target
    strengths: tuple[str, str]
    """How certain it is that the second is wrong at the first's prompt, and the first at the second's."""


def find_mirrored_pairs(
    attempts: list[Attempt], task: TaskAttempts, accepted: AcceptedActions
) -> Iterator[MirroredPair]:
    """Pairs of each mirrored family: up to `pairs` rows per trace, and each step in at most one pair of a family."""
    used: set[tuple[Target, Target]] = set()
    for family, find_candidates in _CANDIDATES.items():
        quota = Quota(task.settings.pairs)
        waiting: dict[tuple[str, str], MirroredPair] = {}
        tries: Counter[int] = Counter()
        shuffled = [_shuffle(attempt, family, task.settings.seed) for attempt in attempts]
        for place, attempt in enumerate(attempts):
            others = [target for targets in shuffled[place + 1 :] for target in targets]
            for first, second in find_candidates(shuffled[place], others):
                if tries[place] == MAX_TRIES or quota.is_full(attempt.trace.key):
                    break
                if (first, second) in used or not quota.has_room(first.place, second.place):
                    continue
                if family in REPEAT_BALANCED and sum(map(find_repeat_rule_sign, (first, second), (second, first))):
                    continue
                tries[place] += 1
                pair = _make_mirrored_pair(family, first, second, accepted, of_types=task.settings.target == "type")
                if pair is None:
                    task.drops[f"{family}_unfit"] += 1
                    continue
                for ready in [pair] if family != "type_swap" else _wait_for_other_order(waiting, pair, quota):
                    quota.take(ready.first.place, ready.second.place)
                    used.add((ready.first, ready.second))
                    yield ready


class Quota:
    """What each trace can still give: a limited number of rows, and each step once. A step is its key and index."""

    def __init__(self, pairs: int) -> None:
        self._pairs = pairs
        self._rows: Counter[str] = Counter()
        self._used: set[tuple[str, int]] = set()

    def is_full(self, key: str) -> bool:
        """Whether the trace lacks room for a pair of its own steps."""
        return self._rows[key] + 2 > self._pairs

    def has_room(self, *steps: tuple[str, int]) -> bool:
        if not self._used.isdisjoint(steps) or len({*steps}) < len(steps):
            return False
        keys = [key for key, _ in steps]
        return all(self._rows[key] + keys.count(key) <= self._pairs for key in keys)

    def take(self, *steps: tuple[str, int]) -> None:
        self._rows.update(key for key, _ in steps)
        self._used.update(steps)


def _wait_for_other_order(
    waiting: dict[tuple[str, str], MirroredPair], pair: MirroredPair, quota: Quota
) -> list[MirroredPair]:
    """Return the pair together with a waiting one that has its two types in the other order, or keep it waiting: edits
    tend to come late in a trace, and reads early, so that type and place would tell the right answer."""
    order = (str(pair.first.label.action), str(pair.second.label.action))
    other = waiting.get((order[1], order[0]))
    if other is None or not quota.has_room(
        *(step.place for each in (other, pair) for step in (each.first, each.second))
    ):
        waiting[order] = pair
        return []
    return [waiting.pop((order[1], order[0])), pair]


def _shuffle(attempt: Attempt, family: str, seed: int) -> list[Target]:
    base = f"{seed}\0{attempt.trace.key}\0{family}\0"

    def find_place(target: Target) -> bytes:
        return blake2b(f"{base}{target.index}".encode(), digest_size=8).digest()

    return sorted(attempt.targets, key=find_place)


def _combine(targets: Iterable[Target]) -> _Candidates:
    return ((a, b) if a.index < b.index else (b, a) for a, b in combinations(targets, 2))


def _find_same_call_shape(targets: list[Target], others: list[Target]) -> _Candidates:
    """Calls of the same shape, in one attempt or in two that both succeeded."""
    shapes: dict[object, list[Target]] = {}
    for target in targets:
        if (shape := find_call_shape(target.message)) is not None:
            shapes.setdefault(shape, []).append(target)
    own = chain.from_iterable(_combine(alike) for alike in shapes.values())
    across = ((mine, other) for other in others for mine in shapes.get(find_call_shape(other.message), ()))
    return chain(own, across)


def _find_other_types(targets: list[Target], _others: list[Target]) -> _Candidates:
    calls = [target for target in targets if target.message.tool_calls]
    return ((a, b) for a, b in _combine(calls) if a.label.action != b.label.action)


def _find_redundant(targets: list[Target], _others: list[Target]) -> _Candidates:
    """A read before a call that acts, if nothing changed between them; or any call before the finish."""
    unsure = [t.index for t in targets if t.label.effect in (Effect.UNKNOWN, Effect.SANDBOX_EXEC)]
    return (
        (a, b)
        for a, b in _combine(targets)
        if _is_redundant(a, b) and not any(a.index < index < b.index for index in unsure)
    )


def _is_redundant(first: Target, second: Target) -> bool:
    if second.label.effect is Effect.TERMINAL:
        return first.label.effect is not Effect.TERMINAL
    return (
        first.label.effect is Effect.PURE_READ
        and not first.label.failed
        and second.label.effect not in (Effect.PURE_READ, Effect.UNKNOWN)
        and first.label.state_version == second.label.state_version
    )


_CANDIDATES = {"redundancy": _find_redundant, "argument": _find_same_call_shape, "type_swap": _find_other_types}


def _make_mirrored_pair(
    family: str, first: Target, second: Target, accepted: AcceptedActions, *, of_types: bool
) -> MirroredPair | None:
    """The pair; `None` if one step is not wrong at the other's prompt, or the prompt does not show its values."""
    if are_same_targets(first, second) or are_interchangeable(first, second):
        return None
    if accepted.accepts(first, second) or accepted.accepts(second, first):
        return None
    if family == "argument" and not (has_visible_values(second, first) and has_visible_values(first, second)):
        return None
    # A useless call does not make every action of its type useless.
    strengths = ("weak", "weak") if of_types else _find_strengths(family, first, second)
    return MirroredPair(family, first, second, strengths)


def _find_strengths(family: str, first: Target, second: Target) -> tuple[str, str]:
    if family == "redundancy":
        if second.label.effect is Effect.TERMINAL:
            between = (t for t in first.attempt.targets if first.index <= t.index < second.index)
            return "strong" if any(t.label.effect is Effect.LOCAL_WRITE for t in between) else "weak", "weak"
        if second.attempt.prompts.shows_whole(second.index, first.index):
            return "weak", "strong"
    return "weak", "weak"
