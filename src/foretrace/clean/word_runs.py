"""Find runs of words that also appear in known texts, in one pass over texts of any length.

Words are taken without case, punctuation, line breaks and line numbers, so that a copy that was reformatted, escaped
in JSON or put into a diff has the same words. Every eight words are looked up by a hash (numpy); if they are known, the
run is extended in both directions. Only hashes of the known texts are needed.
"""

from __future__ import annotations

import functools
import itertools
import re
import zlib
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

SEED_WORDS = 8
"""Words that are looked up together; shorter texts cannot be found."""
MAX_OWNERS = 2
"""Most owners whose texts may have the same eight words: what more of them share is boilerplate."""
_MAX_PLACES = 16
"""Most places of the same eight words in all known texts: every table has zeros in a row, for example."""
_LEAST_VARIED = 4
"""Fewest different words in a seed."""
_WORD = rb"[0-9A-Za-z_\x80-\xff]"
_WORDS = re.compile(_WORD + rb"+")
_TABLE = bytes(b + 32 if 65 <= b <= 90 else b if re.match(_WORD, bytes([b])) else 32 for b in range(256))
_OTHER_SIGNS = re.compile(r"[^\w\x00-\x7f]")
_ESCAPES = re.compile(rb"\\[nrt]")
_LINE_NUMBER = re.compile(rb"(?m)^[ \t]*\d+[ \t]*(?:[:|\t]|  )")
"""What `cat -n`, `grep -n` and editors put before a line."""
_BOUND = b" \xff "
"""Separates two texts: a word that no text contains, since it is not UTF-8."""
_FACTOR = np.uint64(0x9E3779B97F4A7C15)
Array = np.ndarray[Any, Any]


class Run(NamedTuple):
    """Words of a known text that appear in another text in the same order."""

    known: int
    """Index of the known text."""
    start: int
    """Its first word in the known text, and the one after its last."""
    end: int
    at: int
    """Its first word in the searched text."""


class Windows(NamedTuple):
    """All windows of `SEED_WORDS` words of a known text, in order."""

    hashes: Array
    """uint64."""
    tell: Array
    """Whether each is looked up: not if it repeats a few words, since a table of zeros would match at every word."""


def cut_windows(numbers: Array) -> Windows:
    """The windows of a text, given as word numbers; none if it has fewer than `SEED_WORDS` words."""
    return Windows(_hash_windows(numbers), _find_varied(numbers))


class RunFinder:
    """Finds runs of known texts, given as their windows; those of one owner are next to each other."""

    def __init__(self, texts: Sequence[Windows], owners: Sequence[int]) -> None:
        self._windows = [each.hashes for each in texts]
        counts = [len(hashes) for hashes in self._windows]
        flat = np.concatenate([*self._windows, np.empty(0, np.uint64)])
        order = np.argsort(flat, kind="stable")
        self._known = np.repeat(np.arange(len(texts)), counts)[order]
        self._at = np.concatenate([np.arange(count) for count in (*counts, 0)])[order]
        self._hashes, self._first, n_places = np.unique(flat[order], return_index=True, return_counts=True)
        self._ends = self._first + n_places
        of_owner = np.asarray(owners, np.int64)[self._known]
        is_new = np.append(True, (np.diff(flat[order]) != 0) | (np.diff(of_owner) != 0))
        n_owners = np.add.reduceat(is_new, self._first, dtype=np.int64)
        may_tell = np.concatenate([*(each.tell for each in texts), np.empty(0, np.bool_)])[order][self._first]
        self._tells = (n_owners <= MAX_OWNERS) & (n_places <= _MAX_PLACES) & may_tell
        bits = max(16, min(24, (32 * len(self._hashes)).bit_length()))
        self._shift = np.uint64(64 - bits)
        self._may_be = np.zeros(1 << bits, np.bool_)
        self._may_be[self._hashes[self._tells] >> self._shift] = True
        self.telling = [self._find_telling(hashes) for hashes in self._windows]
        """For each known text, which of its words are in a seed that is not boilerplate."""

    def _find_telling(self, hashes: Array) -> Array:
        tells = self._tells[np.searchsorted(self._hashes, hashes)]
        return np.convolve(tells, np.ones(SEED_WORDS, np.int64)) > 0 if len(hashes) else tells

    def find(self, numbers: Array) -> list[Run]:
        """The longest runs in a text, given as word numbers; those of each known text are in the order of `at`."""
        if len(numbers) < SEED_WORDS or not len(self._hashes):
            return []
        hashes = _hash_windows(numbers)
        candidates = np.flatnonzero(self._may_be[hashes >> self._shift])
        indexes = np.minimum(np.searchsorted(self._hashes, hashes[candidates]), len(self._hashes) - 1)
        is_known = (self._hashes[indexes] == hashes[candidates]) & self._tells[indexes]
        done: dict[tuple[int, int], int] = defaultdict(lambda: -1)
        runs: list[Run] = []
        for at, index in zip(candidates[is_known].tolist(), indexes[is_known].tolist(), strict=True):
            here = slice(self._first[index], self._ends[index])
            for known, place in zip(self._known[here].tolist(), self._at[here].tolist(), strict=True):
                if done[known, at - place] > at:
                    continue
                run = self._follow(hashes, known, place, at)
                done[known, at - place] = run.at + run.end - run.start
                runs.append(run)
        return runs

    def _follow(self, hashes: Array, known: int, place: int, at: int) -> Run:
        """The run around a seed, extended as long as the windows match."""
        windows = self._windows[known]
        back, ahead = min(place, at), min(len(windows) - place, len(hashes) - at)
        left = _count_first((windows[place - back : place] == hashes[at - back : at])[::-1])
        right = _count_first(windows[place : place + ahead] == hashes[at : at + ahead])
        return Run(known, place - left, place + right + SEED_WORDS - 1, at - left)


def _count_first(holds: Array) -> int:
    """How many of the first ones are true."""
    return int(np.append(holds, False).argmin())


class Reading:
    """Several texts as one sequence of word numbers."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = texts
        self._blanked = [blank(text, keeps_length=False) for text in texts]
        self.numbers = _number(_BOUND.join(self._blanked))

    @functools.cached_property
    def _starts(self) -> list[int]:
        """The first word of each text."""
        return [0, *itertools.accumulate(len(data.split()) + 1 for data in self._blanked[:-1])]

    def find_text(self, at: int) -> int:
        """Index of the text that contains the word."""
        return int(np.searchsorted(self._starts, at, side="right")) - 1

    def find_span(self, text: int, start: int, end: int) -> tuple[int, int]:
        """Character offsets in a text of the words from `start` up to `end`."""
        data, first = blank(self._texts[text]), self._starts[text]
        matches = list(_WORDS.finditer(data))[start - first : end - first]
        return tuple(len(data[:byte].decode(errors="replace")) for byte in (matches[0].start(), matches[-1].end()))  # type: ignore[return-value]


def number_words(text: str) -> Array:
    """The words of a text as uint32 numbers: the same word has the same number in every process."""
    return _number(blank(text, keeps_length=False))


def _number(blanked: bytes) -> Array:
    words = blanked.split()
    return np.fromiter(map(zlib.crc32, words), np.uint32, len(words))


def blank(text: str, *, keeps_length: bool = True) -> bytes:
    """The text in UTF-8, with its ASCII part in lower case and a space for each character that is not part of a word.
    It is faster to make if it need not have as many characters as the text (`keeps_length`)."""
    if not text.isascii():
        text = _OTHER_SIGNS.sub(" ", text.replace("→", "\t"))
    data = text.encode("utf-8", "replace")
    if b"\\" in data:
        data = _ESCAPES.sub(b"  ", data)
    if _has_line_numbers(data):
        data = _LINE_NUMBER.sub((lambda match: b" " * len(match[0])) if keeps_length else b" ", data)
    return data.translate(_TABLE)


def _has_line_numbers(data: bytes) -> bool:
    lines = data[:2048].split(b"\n", 24)[:24]
    return len(lines) > 2 and sum(map(bool, map(_LINE_NUMBER.match, lines))) * 2 > len(lines)


def _find_varied(numbers: Array) -> Array:
    """Whether each seed is more than a few repeated words."""
    if len(numbers) < SEED_WORDS:
        return np.empty(0, np.bool_)
    windows = np.sort(np.lib.stride_tricks.sliding_window_view(numbers, SEED_WORDS), axis=1)
    return (np.diff(windows, axis=1) != 0).sum(axis=1) >= _LEAST_VARIED - 1


def _hash_windows(numbers: Array) -> Array:
    if len(numbers) < SEED_WORDS:
        return np.empty(0, np.uint64)
    values = (numbers.astype(np.uint64) + np.uint64(1)) * _FACTOR
    values ^= values >> np.uint64(29)
    hashes = values
    for width in (1, 2, 4):  # windows of this many words become windows of twice as many
        power = np.uint64(pow(int(_FACTOR) | 1, width, 1 << 64))
        hashes = hashes[: len(hashes) - width] * power + hashes[width:]
    return (hashes ^ (hashes >> np.uint64(32))) * _FACTOR
