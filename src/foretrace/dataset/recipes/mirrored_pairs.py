"""Mirrored pairs: two steps of one task make two rows, and each step is chosen in one row and rejected in the other.

For example, the agent ran A at prompt 1 and B at prompt 2. Row 1 is prompt 1 with A chosen and B rejected; row 2 is
prompt 2 with B chosen and A rejected. Every completion is thus chosen as often as it is rejected, so its text,
length or form does not tell which answer is right.

The rule "reject what the agent had already done" must not help either. In the families `argument` and `type_swap`,
pairs are taken only if the rule is right in one row and wrong in the other, or says nothing in both. The family
`redundancy` is about repeats, so there the rule may help.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from itertools import chain, combinations, islice
from typing import NamedTuple

from foretrace.actions.taxonomy import ActionType, Effect
from foretrace.dataset.recipes import rejection_rules as rules
from foretrace.dataset.recipes.attempts import Attempt, Target, TaskAttempts

MIRRORED = ("argument", "type_swap", "redundancy")
"""Families whose pairs have a mirror."""
REPEAT_BALANCED = ("argument", "type_swap")
"""Families in which the rule "reject what was already done" is right in exactly one half of the pairs."""
MAX_TRIES = 48
"""Candidate pairs of one family that are tried for one trace; the search then stops with the pairs found so far."""

MAX_SORTED = 500
"""Candidate pairs of one family and trace among which the likely ones are preferred."""

_Candidates = Iterator[tuple[Target, Target]]


class MirroredPair(NamedTuple):
    """Two steps. Each was right at its own prompt, and is the rejected answer at the prompt of the other."""

    family: str
    first: Target
    second: Target
    strengths: tuple[str, str]
    """How sure it is that the second is wrong at the first's prompt, and the first at the second's."""


def find_mirrored_pairs(
    attempts: list[Attempt], task: TaskAttempts, accepted: rules.AcceptedActions
) -> Iterator[MirroredPair]:
    """Pairs of each mirrored family: up to `pairs` rows a trace, every step in at most one pair of a family."""
    used: set[tuple[Target, Target]] = set()
    for family, find_candidates in _CANDIDATES.items():
        quota = _Quota(task.settings.pairs)
        waiting: dict[tuple[str, str], MirroredPair] = {}
        tries: Counter[int] = Counter()
        shuffled = [_shuffle(attempt, family, task.settings.seed) for attempt in attempts]
        for place, attempt in enumerate(attempts):
            others = [target for targets in shuffled[place + 1 :] for target in targets]
            candidates = find_candidates(shuffled[place], others)
            for first, second in candidates if family == "argument" else _prefer_likely(candidates, task):
                if tries[place] == MAX_TRIES or quota.is_full(attempt):
                    break
                if (first, second) in used or not quota.has_room(first, second):
                    continue
                if family in REPEAT_BALANCED and _is_repeat_rule_right(first, second):
                    continue
                tries[place] += 1
                pair = _make_mirrored_pair(family, first, second, accepted)
                if pair is None:
                    task.drops[f"{family}_unfit"] += 1
                    continue
                for ready in [pair] if family != "type_swap" else _wait_for_other_order(waiting, pair, quota):
                    quota.take(ready.first, ready.second)
                    used.add((ready.first, ready.second))
                    yield ready


def _prefer_likely(candidates: _Candidates, task: TaskAttempts) -> _Candidates:
    """Of the first candidates those first in which each step is likely at the prompt of the other, where that is
    asked for; the order stays as it is among equals.

    Not for `argument`: both its steps have one name, so that this would prefer frequent programs, not likely values.
    """
    if task.likely is None:
        return candidates

    def measure(pair: tuple[Target, Target]) -> float:
        return task.measure_likelihood(*pair) * task.measure_likelihood(pair[1], pair[0])

    return iter(sorted(islice(candidates, MAX_SORTED), key=measure, reverse=True))


def _is_repeat_rule_right(first: Target, second: Target) -> bool:
    """Whether the rule "reject what was already done" would win or lose on the two rows together, instead of coming
    out even."""
    return rules.find_repeat_rule_sign(first, second) + rules.find_repeat_rule_sign(second, first) != 0


class _Quota:
    """What one family may still take of each trace: `pairs` rows, and no step twice."""

    def __init__(self, pairs: int) -> None:
        self._pairs = pairs
        self._rows: Counter[str] = Counter()
        self._used: set[Target] = set()

    def is_full(self, attempt: Attempt) -> bool:
        """Whether there is no room for a pair of this attempt alone."""
        return self._rows[attempt.trace.key] + 2 > self._pairs

    def has_room(self, first: Target, second: Target) -> bool:
        """Whether there is room for this pair: asked of every candidate."""
        if first in self._used or second in self._used or first is second:
            return False
        if first.attempt is second.attempt:
            return not self.is_full(first.attempt)
        rows, left = self._rows, self._pairs - 1
        return rows[first.attempt.trace.key] <= left and rows[second.attempt.trace.key] <= left

    def has_room_for(self, pairs: Iterable[tuple[Target, Target]]) -> bool:
        """Whether there is room for all of these pairs."""
        targets = [target for pair in pairs for target in pair]
        rows = Counter(target.attempt.trace.key for target in targets)
        fits = all(self._rows[key] + count <= self._pairs for key, count in rows.items())
        return fits and len({*targets}) == len(targets) and self._used.isdisjoint(targets)

    def take(self, first: Target, second: Target) -> None:
        """Count a pair."""
        self._rows.update((first.attempt.trace.key, second.attempt.trace.key))
        self._used |= {first, second}


def _wait_for_other_order(
    waiting: dict[tuple[str, str], MirroredPair], pair: MirroredPair, quota: _Quota
) -> list[MirroredPair]:
    """Return the pair together with a waiting one whose two types come in the other order; where none waits, keep
    the pair waiting and return nothing.

    Edits tend to come late in a trace, and reads early. Without this balance, the type of an action and its place in
    the trace would tell which answer is right.
    """
    order = (str(pair.first.label.action), str(pair.second.label.action))
    other = waiting.get((order[1], order[0]))
    if other is None or not quota.has_room_for([(other.first, other.second), (pair.first, pair.second)]):
        waiting[order] = pair
        return []
    return [waiting.pop((order[1], order[0])), pair]


def _shuffle(attempt: Attempt, family: str, seed: int) -> list[Target]:
    """The steps in hash order: pairs are looked at in the order of their steps."""
    base = f"{seed}\0{attempt.trace.key}\0{family}\0"

    def find_place(target: Target) -> bytes:
        return blake2b(f"{base}{target.index}".encode(), digest_size=8).digest()

    return sorted(attempt.targets, key=find_place)


def _combine(targets: Iterable[Target]) -> _Candidates:
    """Each two steps of one attempt, the earlier one first."""
    return ((a, b) if a.index < b.index else (b, a) for a, b in combinations(targets, 2))


def _find_same_call_shape(targets: list[Target], others: list[Target]) -> _Candidates:
    """Calls of one shape, in one attempt or in two that both succeeded."""
    shapes: dict[object, list[Target]] = {}
    for target in targets:
        if (shape := rules.find_call_shape(target.message)) is not None:
            shapes.setdefault(shape, []).append(target)
    own = chain.from_iterable(_combine(alike) for alike in shapes.values())
    across = ((mine, other) for other in others for mine in shapes.get(rules.find_call_shape(other.message), ()))
    return chain(own, across)


def _find_other_types(targets: list[Target], _others: list[Target]) -> _Candidates:
    """Calls of different types."""
    calls = [target for target in targets if target.message.tool_calls]
    return ((a, b) for a, b in _combine(calls) if a.label.action != b.label.action)


def _find_redundant(targets: list[Target], _others: list[Target]) -> _Candidates:
    """A read before a call that acts, where nothing changed between the two; or any call before the finish."""
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


_CHANGES = (ActionType.FILE_WRITE, ActionType.REPAIR)
_CANDIDATES = {"redundancy": _find_redundant, "argument": _find_same_call_shape, "type_swap": _find_other_types}
"""Family -> the function that finds steps which may be a pair of it."""


def _make_mirrored_pair(
    family: str, first: Target, second: Target, accepted: rules.AcceptedActions
) -> MirroredPair | None:
    """The pair; `None` where one of the steps is not wrong at the prompt of the other, or the prompt does not show
    its values."""
    if rules.are_same_targets(first, second) or rules.are_interchangeable(first, second):
        return None
    if accepted.accepts(first, second) or accepted.accepts(second, first):
        return None
    if family == "argument" and not (
        rules.has_visible_values(second, first) and rules.has_visible_values(first, second)
    ):
        return None
    return MirroredPair(family, first, second, _find_strengths(family, first, second))


def _find_strengths(family: str, first: Target, second: Target) -> tuple[str, str]:
    if family == "redundancy":
        if second.label.effect is Effect.TERMINAL:
            between = (t for t in first.attempt.targets if first.index <= t.index < second.index)
            return "strong" if any(t.label.action in _CHANGES for t in between) else "weak", "weak"
        if second.attempt.is_shown(first.action_key, second.index):
            return "weak", "strong"
    return "weak", "weak"
