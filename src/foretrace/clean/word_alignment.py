"""Decide whether one text is a copy of another, by aligning their words and counting the differences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import NamedTuple

LEAST_NEAR = 20
"""Fewest words of a near copy; shorter texts are copies only if all words are the same."""
_WINDOWS = ((8, 5), (20, 8))
"""Sizes of windows in words, and how many of these words may differ. Rewording is spread over a text, unlike the
values filled into a template."""
_ROW = 4
"""Pieces in a row that are matched first."""
_MAX_INSERTED = 4
"""Most that an inserted or omitted passage counts in a window."""


class ComparedText(NamedTuple):
    """A text to compare: the hash of each piece (odd for numbers), and the word it belongs to, ascending."""

    pieces: Sequence[int]
    words: Sequence[int]

    def count_words(self) -> int:
        """Number of words in the text."""
        return len({*self.words})


def allow_differences(words: int) -> int:
    """How many of this many words may differ between copies: about 15%, fewer in a short text."""
    if words < LEAST_NEAR:
        return 0
    return int(1 + 0.08 * words) if words < 2 * LEAST_NEAR else int(1 + 0.15 * words)


def is_near_copy(a: ComparedText, b: ComparedText) -> bool:
    """Whether two texts are copies except for a few words that are spread over the text.

    A word that is replaced throughout (a changed name) counts once. A changed number changes the meaning: one in a
    hundred words is allowed, and a third of the numbers.
    """
    words_a, words_b = a.count_words(), b.count_words()
    limit = allow_differences(max(words_a, words_b))
    if min(words_a, words_b) < LEAST_NEAR or abs(words_a - words_b) > limit:
        return False
    # Pieces missing in the other text are differences in any case: this avoids most alignments, which are slow.
    if max(_count_least_changed(a, b), _count_least_changed(b, a)) > limit:
        return False
    differences = _Differences(a, b)
    if len(differences.at) + differences.inserted > limit or _has_dense_window(differences.at):
        return False
    numbers = len({piece for piece in a.pieces if piece & 1})
    return differences.numbers <= words_a // 100 and 3 * differences.numbers <= numbers


def _count_least_changed(text: ComparedText, other: ComparedText) -> int:
    """Words that count as changed in every alignment: those with the first occurrence of a piece that the other text
    does not have."""
    missing = {*text.pieces}.difference(other.pieces)
    firsts = {text.pieces.index(piece) for piece in missing}
    return len({text.words[place] for place in firsts})


class _Differences:
    """Differences between two texts."""

    def __init__(self, a: ComparedText, b: ComparedText) -> None:
        self.at: list[int] = []
        """The words of `a` that count as changed, each once; inserted words count at their place in `a`."""
        self.inserted = self.numbers = 0
        """Inserted words beyond `_MAX_INSERTED`; changed numbers."""
        self._a, self._b = a, b
        self._met: set[tuple[object, ...]] = set()
        """Replacements already counted: a repeated one is the same name."""
        for region in _align(a.pieces, b.pieces):
            self._add(*region)

    def _add(self, start_a: int, end_a: int, start_b: int, end_b: int) -> None:
        a, b = self._a, self._b
        replaced = tuple(a.pieces[start_a:end_a]), tuple(b.pieces[start_b:end_b])
        if all(replaced):
            if replaced in self._met:
                return
            self._met.add(replaced)
        in_a, in_b = {*range(start_a, end_a)}, {*range(start_b, end_b)}
        for i, j in zip(range(start_a, end_a), range(start_b, end_b), strict=False):
            pair = a.pieces[i], b.pieces[j]
            if pair in self._met:
                in_a.remove(i)
                in_b.remove(j)
            else:
                self._met.add(pair)
                self.numbers += pair[0] & pair[1] & 1
        words_a, words_b = {a.words[i] for i in in_a}, {b.words[j] for j in in_b}
        start = a.words[min(start_a, len(a.words) - 1)]
        changed = sorted(words_a) + [max(words_a, default=start)] * max(0, len(words_b) - len(words_a))
        if not words_a or not words_b:
            self.inserted += len(changed[_MAX_INSERTED:])
            del changed[_MAX_INSERTED:]
        self.at += changed


def _align(a: Sequence[int], b: Sequence[int]) -> Iterator[tuple[int, int, int, int]]:
    """The regions in which two sequences differ: start and end in both.

    Runs of a few pieces, which are rare, are matched first, and then single pieces between them.
    """
    rows = [[*zip(*(side[shift:] for shift in range(_ROW)), strict=False)] for side in (a, b)]
    at_a = at_b = 0
    for block in SequenceMatcher(None, *rows, autojunk=False).get_matching_blocks():
        if block.size and (block.a < at_a or block.b < at_b):
            continue  # overlaps the previous block
        to_a, to_b = (block.a, block.b) if block.size else (len(a), len(b))
        between = SequenceMatcher(None, a[at_a:to_a], b[at_b:to_b], autojunk=False)
        for tag, start_a, end_a, start_b, end_b in between.get_opcodes():
            if tag != "equal":
                yield at_a + start_a, at_a + end_a, at_b + start_b, at_b + end_b
        at_a, at_b = block.a + block.size + _ROW - 1, block.b + block.size + _ROW - 1


def _has_dense_window(at: Sequence[int]) -> bool:
    return any(at[i + most] - at[i] < size for size, most in _WINDOWS for i in range(len(at) - most))
