"""Whether one text is a copy of another: their words are aligned, and what differs is counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from foretrace.clean.word_texts import is_identifier

LEAST_NEAR = 20
"""Words from which on a text can be a near copy; a shorter one is a copy only where all words are the same."""
_WINDOWS = ((8, 5), (20, 8))
"""Windows in words, and how many of them may differ. Rewording is spread over a text; what stands in the slot of a
template is not."""
_WORDS_PER_NAME = 40
"""Of two texts of so many words, one name may differ although many texts have the rest; of longer ones more names."""
_NAMES_OF_LONG = 4
"""So many names may differ in long texts: the slots of long templates hold more than a word."""
_MAX_INSERTED = 4
"""What a passage that was put in or left out counts in a window at most."""
_MAX_STEPS = 700
"""Pieces put in and left out that an alignment follows: its time grows with the square."""


class Region(NamedTuple):
    """A passage of one text, and what stands in its place in the other."""

    a_start: int
    a_end: int
    b_start: int
    b_end: int


class ComparedText(NamedTuple):
    """What is compared: of each piece its hash (odd for numbers), and more."""

    pieces: Sequence[int]
    words: Sequence[int]
    """In which word it stands, ascending."""
    own: Sequence[bool] | None = None
    """Whether it stands in a sentence that few texts have; `None`: all do."""

    def count_words(self) -> int:
        """Words of the text."""
        return len({*self.words})


def allow_differences(words: int) -> int:
    """How many words may differ between copies of so many words: some 15 %, fewer in a short text."""
    if words < LEAST_NEAR:
        return 0
    return int(1 + 0.08 * words) if words < 2 * LEAST_NEAR else int(1 + 0.15 * words)


def is_near_copy(a: ComparedText, b: ComparedText) -> bool:
    """Whether two texts are copies but for some words.

    What stands throughout for something else (a name was changed) counts once. A number that became another number is a
    difference in meaning: one in a hundred words is allowed, and a third of the numbers.
    """
    words_a, words_b = a.count_words(), b.count_words()
    limit = allow_differences(max(words_a, words_b))
    if min(words_a, words_b) < LEAST_NEAR:
        return False
    if abs(words_a - words_b) > limit or _count_least_differences(a.pieces, b.pieces) > 2 * limit + 4:
        return False
    if max(_count_least_changed(a, b), _count_least_changed(b, a)) > limit:  # spares the alignment, which is slow
        return False
    size = max(len(a.pieces), len(b.pieces))
    regions = align(a.pieces, b.pieces, min(_MAX_STEPS, 2 * (2 * limit + 3 * size // 10)))
    return regions is not None and _Comparison(a, b, regions).is_copy(limit)


def _count_least_differences(a: Sequence[int], b: Sequence[int]) -> int:
    """Differences that there are at least: each piece that the other text does not have is one."""
    pieces_a, pieces_b = {*a}, {*b}
    return max(len(pieces_a - pieces_b), len(pieces_b - pieces_a))


def _count_least_changed(text: ComparedText, other: ComparedText) -> int:
    """Words that count as changed in every alignment: those in which a piece comes for the first time that the other
    text does not have."""
    missing = {*text.pieces}.difference(other.pieces)
    firsts = {text.pieces.index(piece) for piece in missing}
    return len({text.words[place] for place in firsts})


class _Comparison:
    def __init__(self, a: ComparedText, b: ComparedText, regions: Sequence[Region]) -> None:
        self._a, self._b, self._regions = a, b, regions
        self._renamed = self._find_renamed()
        self._met: set[object] = set()
        """Replacements that were counted: what comes again is the same name."""
        self._own = self._numbers = self._inserted = 0
        """Differences in sentences of the texts' own; numbers that became others; words put in beyond what counts."""

    def _find_renamed(self) -> set[tuple[int, int]]:
        """Pieces, and those that stand for them in most of their places."""
        pairs = Counter(
            pair
            for region in self._regions
            for pair in zip(
                self._a.pieces[region.a_start : region.a_end],
                self._b.pieces[region.b_start : region.b_end],
                strict=False,
            )
        )
        repeated = {pair: count for pair, count in pairs.items() if count > 1}
        if not repeated:
            return set()
        in_a, in_b = Counter(self._a.pieces), Counter(self._b.pieces)
        return {(x, y) for (x, y), count in repeated.items() if 2 * count > max(in_a[x], in_b[y])}

    def is_copy(self, limit: int) -> bool:
        """Whether the differences are few, spread over the text, and not in its numbers."""
        at: list[int] = []
        for region in self._regions:
            at += self._list_changed(region)
        if len(at) + self._inserted > limit or _has_dense_window(at) or self._changes_numbers():
            return False
        size = max(_count_own(self._a), _count_own(self._b))
        return self._own <= (0 if size < LEAST_NEAR else 1 + size // 4) or self._changes_names_alone()

    def _changes_names_alone(self) -> bool:
        """Whether all that differs between two texts that are not short are a few names: such texts are copies although
        others like them may have most of their sentences too. Each stands for another one. A word
        that comes once, and is no name of code or of a repository, may be the slot of a template, but of a long one."""
        a, b = self._a, self._b
        most = min(a.count_words(), b.count_words()) // _WORDS_PER_NAME
        changed: Counter[tuple[tuple[int, ...], tuple[int, ...]]] = Counter()
        for region in self._regions if most else ():
            old, new = a.pieces[region.a_start : region.a_end], b.pieces[region.b_start : region.b_end]
            words = {*a.words[region.a_start : region.a_end]}, {*b.words[region.b_start : region.b_end]}
            if [*map(len, words)] != [1, 1] or all(piece & 1 for piece in old) or all(piece & 1 for piece in new):
                return False
            changed[tuple(old), tuple(new)] += 1
        names = 0
        renamed: set[tuple[int, int]] = set()
        for old, new in sorted(changed, key=lambda each: -len(each[0])):
            pairs = {*zip(old, new, strict=False)}
            if len(old) == len(new) and pairs <= renamed:  # a part of a longer one, as of owner/repository
                continue
            if most < _NAMES_OF_LONG and changed[old, new] == 1 and not (_is_of_code(old) or _is_of_code(new)):
                return False
            if _has_passage(b.pieces, old) or _has_passage(a.pieces, new):
                return False
            names += 1
            renamed |= pairs
        return names <= most

    def _list_changed(self, region: Region) -> list[int]:
        """The words of `a` that count as changed, each once; words put in count where they were."""
        a, b = self._a, self._b
        passage = (*a.pieces[region.a_start : region.a_end], None, *b.pieces[region.b_start : region.b_end])
        if region.a_start < region.a_end and region.b_start < region.b_end:
            if passage in self._met:
                return []
            self._met.add(passage)
        in_a, in_b = list(range(region.a_start, region.a_end)), list(range(region.b_start, region.b_end))
        renamed: set[int] = set()
        for i, j in list(zip(in_a, in_b, strict=False)):
            pair = a.pieces[i], b.pieces[j]
            if pair in self._met:
                in_a.remove(i)
                in_b.remove(j)
                continue
            if pair in self._renamed:
                self._met.add(pair)
                renamed.update((i, ~j))
            self._numbers += pair[0] & pair[1] & 1
        words_a, words_b = {a.words[i] for i in in_a}, {b.words[j] for j in in_b}
        self._own += max(
            len({a.words[i] for i in in_a if i not in renamed and (a.own is None or a.own[i])}),
            len({b.words[j] for j in in_b if ~j not in renamed and (b.own is None or b.own[j])}),
        )
        start = a.words[min(region.a_start, len(a.words) - 1)]
        changed = sorted(words_a) + [max(words_a, default=start)] * max(0, len(words_b) - len(words_a))
        if not words_a or not words_b:
            self._inserted += len(changed[_MAX_INSERTED:])
            del changed[_MAX_INSERTED:]
        return changed

    def _changes_numbers(self) -> bool:
        if not self._numbers:
            return False
        numbers = len({piece for piece in self._a.pieces if piece & 1})
        return self._numbers > self._a.count_words() // 100 or 3 * self._numbers > numbers


def _is_of_code(passage: tuple[int, ...]) -> bool:
    """Of the pieces of one word: an identifier, a path, `owner/repository`."""
    return len(passage) > 1 or any(map(is_identifier, passage))


def _has_passage(pieces: Sequence[int], passage: tuple[int, ...]) -> bool:
    size = len(passage)
    return any(tuple(pieces[start : start + size]) == passage for start in range(len(pieces) - size + 1))


def _count_own(text: ComparedText) -> int:
    return (
        text.count_words() if text.own is None else len({w for w, own in zip(text.words, text.own, strict=True) if own})
    )


def _has_dense_window(at: Sequence[int]) -> bool:
    return any(at[i + most] - at[i] < size for size, most in _WINDOWS for i in range(len(at) - most))


def align(a: Sequence[int], b: Sequence[int], max_steps: int) -> list[Region] | None:
    """The regions in which two sequences differ (Myers' algorithm), ascending; `None` where more than `max_steps`
    words were put in or left out."""
    start = 0
    end_a, end_b = len(a), len(b)
    while start < end_a and start < end_b and a[start] == b[start]:
        start += 1
    while end_a > start and end_b > start and a[end_a - 1] == b[end_b - 1]:
        end_a, end_b = end_a - 1, end_b - 1
    runs = _find_equal_runs(a[start:end_a], b[start:end_b], max_steps)
    if runs is None:
        return None
    regions: list[Region] = []
    at_a = at_b = start
    for run_a, run_b, length in [*((x + start, y + start, n) for x, y, n in runs), (end_a, end_b, 0)]:
        if run_a > at_a or run_b > at_b:
            regions.append(Region(at_a, run_a, at_b, run_b))
        at_a, at_b = run_a + length, run_b + length
    return regions


def _find_equal_runs(a: Sequence[int], b: Sequence[int], max_steps: int) -> list[tuple[int, int, int]] | None:
    """Start in `a`, start in `b` and length of what both have, ascending."""
    size_a, size_b = len(a), len(b)
    if abs(size_a - size_b) > max_steps:
        return None
    most = min(max_steps, size_a + size_b)
    zero = most + 1
    furthest = [0] * (2 * zero + 1)
    """Of each diagonal (place in `a` minus place in `b`, plus `zero`): how far in `a` it was followed."""
    history: list[list[int]] = []
    for steps in range(most + 1):
        history.append(furthest[zero - steps - 1 : zero + steps + 2])
        for k in range(zero - steps, zero + steps + 1, 2):
            is_down = k == zero - steps or (k != zero + steps and furthest[k - 1] < furthest[k + 1])
            x = furthest[k + 1] if is_down else furthest[k - 1] + 1
            y = x - k + zero
            while x < size_a and y < size_b and a[x] == b[y]:
                x += 1
                y += 1
            furthest[k] = x
            if x >= size_a and y >= size_b:
                return _trace_back(history, size_a, size_b)
    return None


def _trace_back(history: Sequence[Sequence[int]], x: int, y: int) -> list[tuple[int, int, int]]:
    runs: list[tuple[int, int, int]] = []
    for steps in range(len(history) - 1, -1, -1):
        furthest, k = history[steps], x - y + steps + 1
        is_down = k == 1 or (k != 2 * steps + 1 and furthest[k - 1] < furthest[k + 1])
        before = k + 1 if is_down else k - 1
        from_x = furthest[before] if steps else 0
        from_y = from_x - (before - steps - 1) if steps else 0
        length = min(x - from_x, y - from_y)
        if length:
            runs.append((x - length, y - length, length))
        x, y = from_x, from_y
    return runs[::-1]
