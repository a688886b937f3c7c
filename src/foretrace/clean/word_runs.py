"""Find runs of words that stand in known texts too, in one pass over texts of any length.

Words are what is left of a text without case, punctuation, line breaks and numbers of lines, so that a copy that was
formatted anew, escaped in JSON or put into a diff has the same words. Every eight words are looked up by a hash
(numpy); where they are known, the run is followed to both sides, word by word.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

SEED_WORDS = 8
"""Words that are looked up together; a text of fewer cannot be found."""
MAX_OWNERS = 2
"""Owners whose texts may have the same eight words: what more of them share is boilerplate, and tells nothing."""
_MAX_PLACES = 16
"""Places of the same eight words in all known texts: such as zeros in a row stand in every table."""
_LEAST_VARIED = 4
"""Words of a seed that differ."""
_WORD = rb"[0-9A-Za-z_\x80-\xff]"
_WORDS = re.compile(_WORD + rb"+")
_TABLE = bytes(b + 32 if 65 <= b <= 90 else b if re.match(_WORD, bytes([b])) else 32 for b in range(256))
_OTHER_SIGNS = re.compile(r"[^\w\x00-\x7f]")
_ESCAPES = re.compile(rb"\\[nrt]")
_LINE_NUMBER = re.compile(rb"(?m)^[ \t]*\d+[ \t]*(?:[:|\t]|  )")
"""What `cat -n`, `grep -n` and editors put in front of a line."""
_BOUND = b" \xff "
"""Stands between two texts: a word that no text has, since it is no UTF-8."""
_FACTOR = np.uint64(0x9E3779B97F4A7C15)

Array = np.ndarray[Any, Any]


class Run(NamedTuple):
    """Words of a known text that stand in another text, in the same order."""

    known: int
    """Index of the known text."""
    start: int
    """Its first word in the known text, and the one behind its last."""
    end: int
    at: int
    """Its first word in the text that was looked through."""


class Vocabulary:
    """The words of known texts, numbered from 1; every other word is 0."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._numbers: dict[bytes, int] = {}
        for text in texts:
            for word in blank(text).split():
                self._numbers.setdefault(word, len(self._numbers) + 1)
        self.size = len(self._numbers) + 1

    def read(self, text: str) -> Array:
        """Numbers of the words of a text."""
        return self.number(blank(text))

    def number(self, blanked: bytes) -> Array:
        """Numbers of the words of a text that was blanked."""
        words = blanked.split()
        find = self._numbers.get
        return np.fromiter((find(word, 0) for word in words), np.uint32, len(words))

    def find(self, word: str) -> int:
        """The number of one word; 0 where it is not known."""
        return self._numbers.get(blank(word).strip(), 0)


class RunFinder:
    """Finds the runs of known sequences of words (as numbers)."""

    def __init__(self, sequences: Sequence[Array], owners: Sequence[int], seed_words: int = SEED_WORDS) -> None:
        self._sequences = [np.asarray(each, np.uint32) for each in sequences]
        self._seed_words = seed_words
        hashes = [_hash_windows(each, seed_words) for each in self._sequences]
        counts = [len(each) for each in hashes]
        known = np.repeat(np.arange(len(hashes)), counts)
        places = np.concatenate([np.arange(count) for count in counts] or [np.empty(0, np.int64)])
        flat = np.concatenate([*hashes, np.empty(0, np.uint64)])
        owner = np.asarray(owners, np.int64)[known] if len(known) else known
        order = np.lexsort((places, known, owner, flat))
        self._hashes, self._first = np.unique(flat[order], return_index=True)
        self._known, self._at = known[order], places[order]
        self._ends = np.append(self._first[1:], len(flat))
        is_new = np.ones(len(flat), np.bool_)
        is_new[1:] = (np.diff(flat[order]) != 0) | (np.diff(owner[order]) != 0)
        before = np.append(0, np.cumsum(is_new))
        n_owners = before[self._ends] - before[self._first]
        varied = np.concatenate([*(_find_varied(each, seed_words) for each in self._sequences), np.empty(0, np.bool_)])
        tells = (n_owners <= MAX_OWNERS) & (self._ends - self._first <= _MAX_PLACES)
        tells = self._tells = tells & varied[order][self._first]
        bits = max(16, min(24, (32 * len(self._hashes)).bit_length()))
        self._shift = np.uint64(64 - bits)
        self._may_be = np.zeros(1 << bits, np.bool_)
        self._may_be[self._hashes[tells] >> self._shift] = True
        self.telling = [self._find_telling(*each) for each in zip(hashes, map(len, self._sequences), strict=True)]
        """Of each sequence, which of its words stand in a seed that is no boilerplate."""

    def _find_telling(self, hashes: Array, count: int) -> Array:
        begun = np.zeros(count + 1, np.int64)
        at = np.flatnonzero(self._tells[np.searchsorted(self._hashes, hashes)])
        np.add.at(begun, at, 1)
        np.add.at(begun, at + self._seed_words, -1)
        return np.cumsum(begun[:count]) > 0

    def find(self, numbers: Array) -> list[Run]:
        """The runs in a text, given as numbers of words: the longest ones, each known text's in the order of `at`."""
        if len(numbers) < self._seed_words or not len(self._hashes):
            return []
        hashes = _hash_windows(numbers, self._seed_words)
        candidates = np.flatnonzero(self._may_be[hashes >> self._shift])
        if not len(candidates):
            return []
        indexes = np.searchsorted(self._hashes, hashes[candidates])
        indexes[indexes == len(self._hashes)] = 0
        is_known = (self._hashes[indexes] == hashes[candidates]) & self._tells[indexes]
        done: dict[tuple[int, int], int] = defaultdict(lambda: -1)
        runs: list[Run] = []
        for at, index in zip(candidates[is_known].tolist(), indexes[is_known].tolist(), strict=True):
            here = slice(self._first[index], self._ends[index])
            for known, place in zip(self._known[here].tolist(), self._at[here].tolist(), strict=True):
                if done[known, at - place] > at:
                    continue
                run = self._follow(numbers, known, place, at)
                done[known, at - place] = run.at + run.end - run.start
                if run.end - run.start >= self._seed_words:  # else two texts with one hash
                    runs.append(run)
        return runs

    def _follow(self, numbers: Array, known: int, place: int, at: int) -> Run:
        """The run around a seed, as far as the words are the same."""
        sequence = self._sequences[known]
        back = min(place, at)
        before = sequence[place - back : place] == numbers[at - back : at]
        left = back if before.all() else back - 1 - int(np.flatnonzero(~before)[-1])
        ahead = min(len(sequence) - place, len(numbers) - at)
        behind = sequence[place : place + ahead] == numbers[at : at + ahead]
        right = ahead if behind.all() else int(np.flatnonzero(~behind)[0])
        return Run(known, place - left, place + right, at - left)


class Reading:
    """Some texts as one sequence of numbered words."""

    def __init__(self, texts: Sequence[str], vocabulary: Vocabulary) -> None:
        self._blanked = [blank(text) for text in texts]
        self.numbers = vocabulary.number(_BOUND.join(self._blanked))
        self._starts: list[int] | None = None

    def find_text(self, at: int) -> int:
        """Index of the text that has the word."""
        return int(np.searchsorted(self._find_starts(), at, side="right")) - 1

    def find_span(self, text: int, start: int, end: int) -> tuple[int, int]:
        """Character offsets in a text of the words from `start` up to `end`."""
        data, first = self._blanked[text], self._find_starts()[text]
        matches = list(_WORDS.finditer(data))[start - first : end - first]
        return tuple(len(data[:byte].decode(errors="replace")) for byte in (matches[0].start(), matches[-1].end()))  # type: ignore[return-value]

    def _find_starts(self) -> list[int]:
        if self._starts is None:
            self._starts = [0]
            for data in self._blanked[:-1]:
                self._starts.append(self._starts[-1] + len(data.split()) + 1)
        return self._starts


def blank(text: str) -> bytes:
    """The text in UTF-8 and, as far as it is ASCII, in lower case, with a space for each sign that is part of no word.

    It has as many characters as the text.
    """
    if not text.isascii():
        text = _OTHER_SIGNS.sub(" ", text.replace("→", "\t"))
    data = text.encode("utf-8", "replace")
    if b"\\" in data:
        data = _ESCAPES.sub(b"  ", data)
    if _has_line_numbers(data):
        data = _LINE_NUMBER.sub(lambda match: b" " * len(match[0]), data)
    return data.translate(_TABLE)


def _has_line_numbers(data: bytes) -> bool:
    """Whether most of the first lines begin with a number."""
    lines = data[:2048].split(b"\n", 24)[:24]
    return len(lines) > 2 and sum(_LINE_NUMBER.match(line) is not None for line in lines) * 2 > len(lines)


def _find_varied(numbers: Array, size: int) -> Array:
    """Of each `size` neighbours, whether they are more than a few words again and again: a table of zeros would be
    found at every word."""
    if len(numbers) < size:
        return np.empty(0, np.bool_)
    windows = np.sort(np.lib.stride_tricks.sliding_window_view(numbers, size), axis=1)
    return (np.diff(windows, axis=1) != 0).sum(axis=1) >= _LEAST_VARIED - 1


def _hash_windows(numbers: Array, size: int) -> Array:
    """A hash of each `size` neighbours, as uint64: none where there are fewer."""
    if len(numbers) < size:
        return np.empty(0, np.uint64)
    values = (numbers.astype(np.uint64) + np.uint64(1)) * _FACTOR
    values ^= values >> np.uint64(29)
    # Windows of 1, 2, 4, ... words become those of twice as many; the last step adds what is left.
    hashes, width = values, 1
    while width < size:
        step = min(width, size - width)
        power = np.uint64(pow(int(_FACTOR) | 1, step, 1 << 64))
        hashes = hashes[: len(hashes) - step] * power + hashes[step:]
        width += step
    return (hashes ^ (hashes >> np.uint64(32))) * _FACTOR
