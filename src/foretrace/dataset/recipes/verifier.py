"""`verifier` (prompt, chosen, rejected) and `verifier_unpaired` (prompt, completion, label): real pairs, no tricks.

The families argument, type_swap and redundancy come as mirrored couples: with prompt i, c_i over c_j, comes prompt
j, c_j over c_i, so that every completion is chosen exactly as often as it is rejected. A guesser that reads the
completion alone, its length or its form has nothing to go by. Nor has one that rejects whatever the agent had done
before, except in redundancy, which is about that: couples of the other two are chosen so that the rule is right once
where it is wrong once, or silent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from itertools import chain, combinations
from typing import NamedTuple

from foretrace.actions.taxonomy import ActionType, Effect
from foretrace.core.digest import digest, unit
from foretrace.dataset.recipes import rejection_rules
from foretrace.dataset.recipes.base import IDENTITY, Attempt, Config, Row, Target, TaskAttempts

MIRRORED = ("argument", "type_swap", "redundancy")
REPEAT_BALANCED = ("argument", "type_swap")
"""Families in which whether a call was made before tells nothing, exactly."""
FAMILIES = ("sibling", *MIRRORED)
MAX_TRIES = 48
"""Candidate couples of a family that are weighed in one trace before it is left at what was found."""


class MirroredPair(NamedTuple):
    """Two acts, each of which was right at its own prompt and is rejected at the other's."""

    family: str
    first: Target
    second: Target
    strengths: tuple[str, str]
    """How sure it is that the second is wrong at the first's prompt, and the first at the second's."""


class Verifier:
    """`strong`: provably useless there (an answered call repeated with nothing changed, a finish before the last
    change). `weak`: not what the agent did, which does not prove it wrong."""

    configs = (
        Config(
            "verifier",
            {
                "prompt": "messages",
                "chosen": "messages",
                "rejected": "messages",
                "family": "string",
                "strength": "string",
                "pair": "string",
                "action": "action",
                "rejected_action": "action",
                **IDENTITY,
            },
            "Pairs of a right and a wrong next action of the same prompt, for preference training.",
        ),
        Config(
            "verifier_unpaired",
            {
                "prompt": "messages",
                "completion": "messages",
                "label": "bool",
                "family": "string",
                "strength": "string",
                "pair": "string",
                "action": "action",
                **IDENTITY,
            },
            "The same pairs as single rows with a label.",
        ),
    )

    def rows(self, task: TaskAttempts) -> Iterator[Row]:
        """Rows of all families, each mirrored couple as two neighbours."""
        if task.settings.target == "type":
            task.drops["no_pairs_of_types"] += 1
            return
        wanted = [a for a in task.attempts if a.wanted]
        right = rejection_rules.AcceptedActions(a for a in wanted if a.trace.outcome.success is not False)
        for couple in find_mirrored_pairs(wanted, task, right):
            first, second = couple.first, couple.second
            pair = digest(first.attempt.trace.key, couple.family, str(first.index), str(second.index))
            yield from _make_rows(first, second, couple.family, couple.strengths[0], pair)
            yield from _make_rows(second, first, couple.family, couple.strengths[1], pair)
        for chosen, rejected in _find_sibling_pairs(task, right):
            pair = digest(chosen.attempt.trace.key, "sibling", str(chosen.index), rejected.attempt.trace.key)
            yield from _make_rows(chosen, rejected, "sibling", "weak", pair)


def find_mirrored_pairs(
    attempts: list[Attempt], task: TaskAttempts, right: rejection_rules.AcceptedActions
) -> Iterator[MirroredPair]:
    """Couples of each mirrored family: up to `pairs` rows a trace, every act in at most one couple of a family."""
    taken: set[tuple[Target, Target]] = set()
    for family, candidates in _CANDIDATES.items():
        room = _Quota(task.settings.pairs)
        waiting: dict[tuple[str, str], MirroredPair] = {}
        tries: Counter[int] = Counter()
        orders = [_shuffle(attempt, family, task.settings.seed) for attempt in attempts]
        for place, attempt in enumerate(attempts):
            others = [act for order in orders[place + 1 :] for act in order]
            for first, second in candidates(orders[place], others):
                if tries[place] == MAX_TRIES or room.is_full(attempt):
                    break
                if (first, second) in taken or not room.has_for([(first, second)]):
                    continue
                if family in REPEAT_BALANCED and rejection_rules.find_repeat_rule_sign(
                    first, second
                ) + rejection_rules.find_repeat_rule_sign(second, first):
                    continue
                tries[place] += 1
                couple = _make_mirrored_pair(family, first, second, right)
                if couple is None:
                    task.drops[f"{family}_unfit"] += 1
                    continue
                found = [couple] if family != "type_swap" else _wait_for_other_order(waiting, couple, room)
                for couple in found:
                    room.take(couple.first, couple.second)
                    taken.add((couple.first, couple.second))
                    yield couple


class _Quota:
    """What one family may still take of each trace: `pairs` rows, and no act twice."""

    def __init__(self, pairs: int) -> None:
        self._pairs = pairs
        self._rows: Counter[str] = Counter()
        self._used: set[Target] = set()

    def is_full(self, attempt: Attempt) -> bool:
        """Whether no couple of this attempt alone finds room."""
        return self._rows[attempt.trace.key] + 2 > self._pairs

    def has_for(self, couples: Iterable[tuple[Target, Target]]) -> bool:
        """Whether all of these couples find room."""
        acts = [act for couple in couples for act in couple]
        rows = Counter(act.attempt.trace.key for act in acts)
        fits = all(self._rows[key] + count <= self._pairs for key, count in rows.items())
        return fits and len({*acts}) == len(acts) and self._used.isdisjoint(acts)

    def take(self, first: Target, second: Target) -> None:
        """Give room to a couple."""
        self._rows.update((first.attempt.trace.key, second.attempt.trace.key))
        self._used |= {first, second}


def _wait_for_other_order(
    waiting: dict[tuple[str, str], MirroredPair], couple: MirroredPair, room: _Quota
) -> list[MirroredPair]:
    """The couple and one of the same two types in the other order, once both are found in the task.

    An edit comes late and a look comes early: were couples taken as they come, the type and the place in the trace
    would tell which answer is right.
    """
    order = (str(couple.first.label.action), str(couple.second.label.action))
    other = waiting.get((order[1], order[0]))
    if other is None or not room.has_for([(other.first, other.second), (couple.first, couple.second)]):
        waiting[order] = couple
        return []
    return [waiting.pop((order[1], order[0])), couple]


def _shuffle(attempt: Attempt, family: str, seed: int) -> list[Target]:
    """The acts in hash order: couples are looked at in the order of their acts."""
    base = f"{seed}\0{attempt.trace.key}\0{family}\0"
    return sorted(attempt.targets, key=lambda act: blake2b(f"{base}{act.index}".encode(), digest_size=8).digest())


def _combine(acts: Iterable[Target]) -> Iterator[tuple[Target, Target]]:
    """Couples of acts of one attempt, the earlier one first."""
    return ((a, b) if a.index < b.index else (b, a) for a, b in combinations(acts, 2))


def _find_same_call_shape(acts: list[Target], others: list[Target]) -> Iterator[tuple[Target, Target]]:
    """Calls of one shape, in one attempt or in two that both succeeded."""
    shapes: dict[object, list[Target]] = {}
    for act in acts:
        if (shape := rejection_rules.find_call_shape(act.message)) is not None:
            shapes.setdefault(shape, []).append(act)
    own = chain.from_iterable(_combine(alike) for alike in shapes.values())
    across = ((mine, act) for act in others for mine in shapes.get(rejection_rules.find_call_shape(act.message), ()))
    return chain(own, across)


def _find_other_types(acts: list[Target], _others: list[Target]) -> Iterator[tuple[Target, Target]]:
    """Calls of different types."""
    calling = [a for a in acts if a.message.tool_calls]
    return ((a, b) for a, b in _combine(calling) if a.label.action != b.label.action)


def _find_redundant(acts: list[Target], _others: list[Target]) -> Iterator[tuple[Target, Target]]:
    """A call that changes nothing, before one that acts with nothing changed between; or any call and the finish."""
    unsure = [a.index for a in acts if a.label.effect in (Effect.UNKNOWN, Effect.SANDBOX_EXEC)]
    return ((a, b) for a, b in _combine(acts) if _is_redundant(a, b) and not any(a.index < i < b.index for i in unsure))


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


def _make_mirrored_pair(
    family: str, first: Target, second: Target, right: rejection_rules.AcceptedActions
) -> MirroredPair | None:
    if rejection_rules.is_same_action(first, second) or rejection_rules.are_interchangeable(first, second):
        return None
    if right.accepts(first, second) or right.accepts(second, first):
        return None
    if family == "argument" and not (
        rejection_rules.has_visible_values(second, first) and rejection_rules.has_visible_values(first, second)
    ):
        return None
    strengths = ("weak", "weak")
    if family == "redundancy":
        if second.label.effect is Effect.TERMINAL:
            early = any(
                first.index <= a.index < second.index and a.label.action in _CHANGES for a in first.attempt.targets
            )
            strengths = ("strong" if early else "weak", "weak")
        elif second.attempt.is_shown(first.action_key, second.index):
            strengths = ("weak", "strong")
    return MirroredPair(family, first, second, strengths)


def _find_sibling_pairs(task: TaskAttempts, right: rejection_rules.AcceptedActions) -> Iterator[tuple[Target, Target]]:
    """What a successful and what a failed attempt did at the same prompt, each wrong action once a prompt."""
    by_prompt: dict[bytes, list[Target]] = {}
    for attempt in task.attempts:
        if attempt.trace.outcome.success is False:
            for act in attempt.targets:
                by_prompt.setdefault(act.prompt_digest, []).append(act)
    given: dict[str, int] = {}
    done: set[tuple[bytes, str]] = set()
    for attempt in task.attempts:
        if attempt.trace.outcome.success is not True or not attempt.wanted:
            continue
        for act in attempt.targets:
            prompt = act.prompt_digest
            for wrong in _rank(by_prompt.get(prompt, ()), task.settings.seed):
                mark = (prompt, wrong.text)
                if mark in done or rejection_rules.is_same_action(act, wrong) or right.accepts(act, wrong):
                    continue
                if given.get(attempt.trace.key, 0) >= task.settings.pairs:
                    break
                given[attempt.trace.key] = given.get(attempt.trace.key, 0) + 1
                done.add(mark)
                yield act, wrong


def _rank(acts: Iterable[Target], seed: int) -> list[Target]:
    return sorted(acts, key=lambda a: unit(str(seed), a.attempt.trace.key, str(a.index)))


def _make_rows(act: Target, wrong: Target, family: str, strength: str, pair: str) -> Iterator[Row]:
    """The paired row, and the two unpaired ones."""
    salt = f"{family}:{pair}"
    shared = {"prompt": act.prompt, "family": family, "strength": strength, "pair": pair}
    shared |= {"action": act.label.action, **act.attempt.make_identity(act.index)}
    chosen, rejected = [("assistant", act.text)], [("assistant", wrong.text)]
    key, index = act.attempt.trace.key, act.index
    more = {"chosen": chosen, "rejected": rejected, "rejected_action": wrong.label.action}
    yield Row("verifier", key, index, salt, shared | more)
    yield Row("verifier_unpaired", key, index, salt + "+", shared | {"completion": chosen, "label": True})
    wrong_values = {"completion": rejected, "label": False, "action": wrong.label.action}
    yield Row("verifier_unpaired", key, index, salt + "-", shared | wrong_values)


PLUGIN = Verifier()
