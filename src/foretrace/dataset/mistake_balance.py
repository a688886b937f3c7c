"""Which wrong guesses of a proposer become pairs: those for which a twin with the opposite answer is found.

Whoever does not read the prompt sees of each of the two answers its rank, its confidence, its action, tool, program and
length, and knows common completions by heart. A pair's twin is a pair of the same split in which all that is the same,
and the right and the wrong answer have changed places. So each rule that goes by it is right in exactly half of the
pairs: "prefer the higher rank", "prefer the tool that is called more often", "`submit` is mostly wrong".
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Collection, Iterable, Mapping, Sequence

from foretrace.core.digest import digest
from foretrace.core.predictions import Prediction
from foretrace.dataset.gate import Gate
from foretrace.dataset.recipes.attempts import Mistake
from foretrace.dataset.recipes.proposer_mistakes import FAMILY, Appearance, MistakeCandidate

COMMON_GROUPS = 3
"""A completion that comes in candidates of so many groups must have twins of the very same text."""
_MOST_LOG_ODDS = 7

_View = tuple[str, int, int | None, str]
"""What a twin must share of one answer: split, rank, confidence as its log-odds rounded down, text or form."""


def choose_mistakes(
    candidates: Iterable[MistakeCandidate], excluded: Mapping[bytes, str], pairs: int
) -> list[MistakeCandidate]:
    """The candidates that have a twin, each followed by it; the likeliest guesses first.

    Args:
        candidates: Of all shard jobs, in any order.
        excluded: Prompts that stood in several splits, and the split that keeps each.
        pairs: Pairs that one trace may give at most; a step gives one.
    """
    able = [each for each in candidates if excluded.get(each.prompt, each.split) == each.split]
    able.sort(key=lambda each: (max(each.right.rank, each.wrong.rank), each.place))
    common = _find_common_texts(able)
    waiting: dict[tuple[_View, _View], deque[MistakeCandidate]] = {}
    room = _Room(pairs)
    chosen: list[MistakeCandidate] = []
    for candidate in able:
        if not room.has(candidate):
            continue
        right, wrong = _find_views(candidate, common)
        twin = _take_twin(waiting.get((wrong, right), deque()), candidate, room)
        if twin is None:
            waiting.setdefault((right, wrong), deque()).append(candidate)
        else:
            room.take(candidate, twin)
            chosen += [candidate, twin]
    return chosen


def _take_twin(waiting: deque[MistakeCandidate], candidate: MistakeCandidate, room: _Room) -> MistakeCandidate | None:
    """The first that waits and still has room; one that has none now would have none later."""
    while waiting:
        twin = waiting.popleft()
        if room.has(candidate, twin):
            return twin
    return None


class _Room:
    """What traces and steps may still give."""

    def __init__(self, pairs: int) -> None:
        self._pairs = pairs
        self._of_trace: Counter[str] = Counter()
        self._steps: set[tuple[str, int]] = set()

    def has(self, *candidates: MistakeCandidate) -> bool:
        """Whether there is room for all of them."""
        wanted = Counter(each.key for each in candidates)
        steps = {(each.key, each.step) for each in candidates}
        fits = all(self._of_trace[key] + count <= self._pairs for key, count in wanted.items())
        return fits and len(steps) == len(candidates) and self._steps.isdisjoint(steps)

    def take(self, *candidates: MistakeCandidate) -> None:
        """Count them."""
        self._of_trace.update(each.key for each in candidates)
        self._steps.update((each.key, each.step) for each in candidates)


def _find_common_texts(candidates: Sequence[MistakeCandidate]) -> set[str]:
    groups: dict[str, set[str]] = {}
    for each in candidates:
        for answer in (each.right, each.wrong):
            groups.setdefault(answer.text, set()).add(each.group)
    return {text for text, found in groups.items() if len(found) >= COMMON_GROUPS}


def _find_views(candidate: MistakeCandidate, common: Collection[str]) -> tuple[_View, _View]:
    """What is seen of the right and of the wrong answer."""

    def view(answer: Appearance) -> _View:
        looks = answer.text if answer.text in common else answer.form
        return candidate.split, answer.rank, find_confidence_class(answer.confidence), looks

    return view(candidate.right), view(candidate.wrong)


def find_confidence_class(confidence: float | None) -> int | None:
    """Log-odds, rounded down and limited to -7 and 7; None where there is no confidence."""
    if confidence is None:
        return None
    odds = math.log((confidence + 1e-9) / (1 - confidence + 1e-9))
    return max(-_MOST_LOG_ODDS, min(_MOST_LOG_ODDS, math.floor(odds)))


def make_mistakes(
    chosen: Sequence[MistakeCandidate], guesses: Mapping[str, Mapping[int, Sequence[Prediction]]]
) -> dict[str, dict[int, Mistake]]:
    """The chosen by key and step, as the recipe makes pairs of them.

    Args:
        chosen: Each followed by its twin.
        guesses: All guesses, by key and step.
    """
    found: dict[str, dict[int, Mistake]] = {}
    for place, candidate in enumerate(chosen):
        first, twin = chosen[place - place % 2 : place - place % 2 + 2]
        wrong = next(g for g in guesses[candidate.key][candidate.step] if g.rank == candidate.wrong.rank)
        found.setdefault(candidate.key, {})[candidate.step] = Mistake(
            pair=digest(FAMILY, first.place, twin.place),
            guess=wrong,
            right_rank=candidate.right.rank,
            right_confidence=candidate.right.confidence,
        )
    return found


def make_twins_gate(chosen: Sequence[MistakeCandidate], written: int) -> Gate:
    """The proof that what is seen without the prompt tells nothing: each pair has its twin.

    Args:
        chosen: The pairs, as they were chosen.
        written: Pairs of the family that were written.
    """
    common = _find_common_texts(chosen)
    balance: Counter[tuple[_View, _View]] = Counter()
    for each in chosen:
        right, wrong = _find_views(each, common)
        is_first = right[1] < wrong[1]  # ranks differ
        balance[(right, wrong) if is_first else (wrong, right)] += 1 if is_first else -1
    alone = sum(map(abs, balance.values())) + abs(len(chosen) - written)
    proof = f".500 exactly, n={len(chosen)}, each with a twin of the opposite answer"
    return Gate(
        name=f"shortcut/{FAMILY}/twins",
        verdict="fail" if alone else "pass",
        figure={"accuracy": None if alone else 0.5, "pairs": written, "without_twin": alone},
        detail=f"{FAMILY}/twins: {f'{alone} pairs have no twin' if alone else proof}",
    )
