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
from foretrace.core.digest import digest, hash_fraction
from foretrace.dataset.recipes import wrong_answers as judge
from foretrace.dataset.recipes.base import IDENTITY, Act, Attempt, Config, Row, Siblings

MIRRORED = ("argument", "type_swap", "redundancy")
UNTOLD = ("argument", "type_swap")
"""Families in which whether a call was made before tells nothing, exactly."""
FAMILIES = ("sibling", *MIRRORED)
_TRIES = 48
"""Candidate couples of a family that are weighed in one trace before it is left at what was found."""


class Couple(NamedTuple):
    """Two acts, each of which was right at its own prompt and is rejected at the other's."""

    family: str
    first: Act
    second: Act
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

    def rows(self, task: Siblings) -> Iterator[Row]:
        """Rows of all families, each mirrored couple as two neighbours."""
        if task.settings.target == "type":
            task.drops["no_pairs_of_types"] += 1
            return
        wanted = [a for a in task.attempts if a.wanted]
        right = judge.Accepted(a for a in wanted if a.trace.outcome.success is not False)
        for couple in _couples(wanted, task, right):
            first, second = couple.first, couple.second
            pair = digest(first.attempt.trace.key, couple.family, str(first.index), str(second.index))
            yield from _both(first, second, couple.family, couple.strengths[0], pair)
            yield from _both(second, first, couple.family, couple.strengths[1], pair)
        for chosen, rejected in _siblings(task, right):
            pair = digest(chosen.attempt.trace.key, "sibling", str(chosen.index), rejected.attempt.trace.key)
            yield from _both(chosen, rejected, "sibling", "weak", pair)


def _couples(attempts: list[Attempt], task: Siblings, right: judge.Accepted) -> Iterator[Couple]:
    """Couples of each mirrored family: up to `pairs` rows a trace, every act in at most one couple of a family."""
    taken: set[tuple[Act, Act]] = set()
    for family, candidates in _CANDIDATES.items():
        room = _Room(task.settings.pairs)
        waiting: dict[tuple[str, str], Couple] = {}
        tries: Counter[int] = Counter()
        orders = [_shuffled(attempt, family, task.settings.seed) for attempt in attempts]
        for place, attempt in enumerate(attempts):
            others = [act for order in orders[place + 1 :] for act in order]
            for first, second in candidates(orders[place], others):
                if tries[place] == _TRIES or room.is_full(attempt):
                    break
                if (first, second) in taken or not room.has_for([(first, second)]):
                    continue
                if family in UNTOLD and judge.told_by_repeats(first, second) + judge.told_by_repeats(second, first):
                    continue
                tries[place] += 1
                couple = _couple(family, first, second, right)
                if couple is None:
                    task.drops[f"{family}_unfit"] += 1
                    continue
                found = [couple] if family != "type_swap" else _both_orders(waiting, couple, room)
                for couple in found:
                    room.take(couple.first, couple.second)
                    taken.add((couple.first, couple.second))
                    yield couple


class _Room:
    """What one family may still take of each trace: `pairs` rows, and no act twice."""

    def __init__(self, pairs: int) -> None:
        self._pairs = pairs
        self._rows: Counter[str] = Counter()
        self._used: set[Act] = set()

    def is_full(self, attempt: Attempt) -> bool:
        """Whether no couple of this attempt alone finds room."""
        return self._rows[attempt.trace.key] + 2 > self._pairs

    def has_for(self, couples: Iterable[tuple[Act, Act]]) -> bool:
        """Whether all of these couples find room."""
        acts = [act for couple in couples for act in couple]
        rows = Counter(act.attempt.trace.key for act in acts)
        fits = all(self._rows[key] + count <= self._pairs for key, count in rows.items())
        return fits and len({*acts}) == len(acts) and self._used.isdisjoint(acts)

    def take(self, first: Act, second: Act) -> None:
        """Give room to a couple."""
        self._rows.update((first.attempt.trace.key, second.attempt.trace.key))
        self._used |= {first, second}


def _both_orders(waiting: dict[tuple[str, str], Couple], couple: Couple, room: _Room) -> list[Couple]:
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


def _shuffled(attempt: Attempt, family: str, seed: int) -> list[Act]:
    """The acts in hash order: couples are looked at in the order of their acts."""
    base = f"{seed}\0{attempt.trace.key}\0{family}\0"
    return sorted(attempt.acts, key=lambda act: blake2b(f"{base}{act.index}".encode(), digest_size=8).digest())


def _two(acts: Iterable[Act]) -> Iterator[tuple[Act, Act]]:
    """Couples of acts of one attempt, the earlier one first."""
    return ((a, b) if a.index < b.index else (b, a) for a, b in combinations(acts, 2))


def _same_tool(acts: list[Act], others: list[Act]) -> Iterator[tuple[Act, Act]]:
    """Calls of one shape, in one attempt or in two that both succeeded."""
    shapes: dict[object, list[Act]] = {}
    for act in acts:
        if (shape := judge.shape(act.message)) is not None:
            shapes.setdefault(shape, []).append(act)
    own = chain.from_iterable(_two(alike) for alike in shapes.values())
    across = ((mine, act) for act in others for mine in shapes.get(judge.shape(act.message), ()))
    return chain(own, across)


def _other_type(acts: list[Act], _others: list[Act]) -> Iterator[tuple[Act, Act]]:
    """Calls of different types."""
    calling = [a for a in acts if a.message.tool_calls]
    return ((a, b) for a, b in _two(calling) if a.label.action != b.label.action)


def _redundant(acts: list[Act], _others: list[Act]) -> Iterator[tuple[Act, Act]]:
    """A call that changes nothing, before one that acts with nothing changed between; or any call and the finish."""
    unsure = [a.index for a in acts if a.label.effect in (Effect.UNKNOWN, Effect.SANDBOX_EXEC)]
    return ((a, b) for a, b in _two(acts) if _is_redundant(a, b) and not any(a.index < i < b.index for i in unsure))


def _is_redundant(first: Act, second: Act) -> bool:
    if second.label.effect is Effect.TERMINAL:
        return first.label.effect is not Effect.TERMINAL
    return (
        first.label.effect is Effect.PURE_READ
        and not first.label.failed
        and second.label.effect not in (Effect.PURE_READ, Effect.UNKNOWN)
        and first.label.state_version == second.label.state_version
    )


_CHANGES = (ActionType.FILE_WRITE, ActionType.REPAIR)
_CANDIDATES = {"redundancy": _redundant, "argument": _same_tool, "type_swap": _other_type}


def _couple(family: str, first: Act, second: Act, right: judge.Accepted) -> Couple | None:
    if judge.same(first, second) or judge.interchangeable(first, second):
        return None
    if right.accepts(first, second) or right.accepts(second, first):
        return None
    if family == "argument" and not (judge.visible(second, first) and judge.visible(first, second)):
        return None
    strengths = ("weak", "weak")
    if family == "redundancy":
        if second.label.effect is Effect.TERMINAL:
            early = any(
                first.index <= a.index < second.index and a.label.action in _CHANGES for a in first.attempt.acts
            )
            strengths = ("strong" if early else "weak", "weak")
        elif second.attempt.shows(first.deed, second.index):
            strengths = ("weak", "strong")
    return Couple(family, first, second, strengths)


def _siblings(task: Siblings, right: judge.Accepted) -> Iterator[tuple[Act, Act]]:
    """What a successful and what a failed attempt did at the same prompt, each wrong action once a prompt."""
    by_prompt: dict[bytes, list[Act]] = {}
    for attempt in task.attempts:
        if attempt.trace.outcome.success is False:
            for act in attempt.acts:
                by_prompt.setdefault(act.prompt_mark, []).append(act)
    given: dict[str, int] = {}
    done: set[tuple[bytes, str]] = set()
    for attempt in task.attempts:
        if attempt.trace.outcome.success is not True or not attempt.wanted:
            continue
        for act in attempt.acts:
            prompt = act.prompt_mark
            for wrong in _ranked(by_prompt.get(prompt, ()), task.settings.seed):
                mark = (prompt, wrong.text)
                if mark in done or judge.same(act, wrong) or right.accepts(act, wrong):
                    continue
                if given.get(attempt.trace.key, 0) >= task.settings.pairs:
                    break
                given[attempt.trace.key] = given.get(attempt.trace.key, 0) + 1
                done.add(mark)
                yield act, wrong


def _ranked(acts: Iterable[Act], seed: int) -> list[Act]:
    return sorted(acts, key=lambda a: hash_fraction(str(seed), a.attempt.trace.key, str(a.index)))


def _both(act: Act, wrong: Act, family: str, strength: str, pair: str) -> Iterator[Row]:
    """The paired row, and the two unpaired ones."""
    salt = f"{family}:{pair}"
    shared = {"prompt": act.prompt, "family": family, "strength": strength, "pair": pair}
    shared |= {"action": act.label.action, **act.attempt.identity(act.index)}
    chosen, rejected = [("assistant", act.text)], [("assistant", wrong.text)]
    key, index = act.attempt.trace.key, act.index
    more = {"chosen": chosen, "rejected": rejected, "rejected_action": wrong.label.action}
    yield Row("verifier", key, index, salt, shared | more)
    yield Row("verifier_unpaired", key, index, salt + "+", shared | {"completion": chosen, "label": True})
    wrong_values = {"completion": rejected, "label": False, "action": wrong.label.action}
    yield Row("verifier_unpaired", key, index, salt + "-", shared | wrong_values)


PLUGIN = Verifier()
