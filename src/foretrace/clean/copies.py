"""Find texts that are copies of one another: equal except for case and punctuation, or except for a few words.

MinHash signatures propose the pairs that may be copies, which are then compared word by word.
Sentences that many texts share are templates, and do not count.
"""

from __future__ import annotations

import functools
import hashlib
import tempfile
import zlib
from array import array
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from importlib.metadata import version
from typing import Any, NamedTuple

import numpy as np

from foretrace.clean.word_texts import MAX_PIECES, WordText, hash_pieces

LEAST_EQUAL = 5
"""Fewest words that identify a text: two that only say "hello" are not copies."""
_TEMPLATE_TEXTS = 12
"""A sentence found in this many different texts is part of a template, and is not compared."""
_SLOTS, _BANDS, _BAND_SLOTS, _SEED = 256, 64, 4, 1
"""Of a signature: pairs that share half of their words meet in a band in 98 of 100 cases, those that share a tenth in
6 of 1,000."""
_LEAST_ESTIMATE = 0.4
"""Least share of common words, as the signatures estimate it (standard error .03), for a pair to be compared."""
_BAND_NEIGHBORS = 8
"""Most texts of a band that each text is paired with."""
_MAX_COMPARED = 8
"""Most texts that a text is compared with, the most similar first; more only if those have fewer."""
_LEAST_TELLING = 10
"""Fewest remaining pieces for a signature to leave out those of templates."""
_BATCH = 256
"""Texts signed at a time."""
_PAIRS_AT_ONCE = 2048
_CACHED_TEXTS = 64
"""Parsed texts kept in memory during the comparison."""
_COUNTERS = 1 << 24
_COMMON_WORDS = (
    "a about after all also an and any are as at be been but by can could did do does for from get had has have how i "
    "if in into is it its just like me more my no not of on one only or other our out should so some such than that "
    "the their them then there these they this to up use used using was we were what when where which while who will "
    "with would you your"
)
_COMMON_PIECES = hash_pieces(_COMMON_WORDS.split())


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
    if abs(words_a - words_b) > limit:
        return False
    # Pieces missing in the other text are differences in any case: this avoids most alignments, which are slow.
    if max(_count_least_changed(a, b), _count_least_changed(b, a)) > limit:
        return False
    at, inserted, changed_numbers = _find_differences(a, b)
    if len(at) + inserted > limit or _has_dense_window(at):
        return False
    numbers = len({piece for piece in a.pieces if piece & 1})
    return changed_numbers <= words_a // 100 and 3 * changed_numbers <= numbers


def _count_least_changed(text: ComparedText, other: ComparedText) -> int:
    """Words that count as changed in every alignment: those with the first occurrence of a piece that the other text
    does not have."""
    missing = {*text.pieces}.difference(other.pieces)
    firsts = {text.pieces.index(piece) for piece in missing}
    return len({text.words[place] for place in firsts})


def _find_differences(a: ComparedText, b: ComparedText) -> tuple[list[int], int, int]:
    """The words of `a` that count as changed, each once (inserted ones at their place in `a`); how many inserted words
    there are beyond `_MAX_INSERTED`; and how many changed numbers."""
    at: list[int] = []
    inserted = numbers = 0
    met: set[tuple[object, ...]] = set()
    """Replacements already counted: a repeated one is the same name."""
    for start_a, end_a, start_b, end_b in _align(a.pieces, b.pieces):
        replaced = tuple(a.pieces[start_a:end_a]), tuple(b.pieces[start_b:end_b])
        if all(replaced):
            if replaced in met:
                continue
            met.add(replaced)
        in_a, in_b = {*range(start_a, end_a)}, {*range(start_b, end_b)}
        for i, j in zip(range(start_a, end_a), range(start_b, end_b), strict=False):
            pair = a.pieces[i], b.pieces[j]
            if pair in met:
                in_a.remove(i)
                in_b.remove(j)
            else:
                met.add(pair)
                numbers += pair[0] & pair[1] & 1
        words_a, words_b = {a.words[i] for i in in_a}, {b.words[j] for j in in_b}
        start = a.words[min(start_a, len(a.words) - 1)]
        changed = sorted(words_a) + [max(words_a, default=start)] * max(0, len(words_b) - len(words_a))
        if not words_a or not words_b:
            inserted += len(changed[_MAX_INSERTED:])
            del changed[_MAX_INSERTED:]
        at += changed
    return at, inserted, numbers


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


class Copies(NamedTuple):
    """Which texts are copies; texts are given as indexes into the sequence that was searched."""

    firsts: array[int]
    """For each text, the first that equals it except for case and punctuation, perhaps itself."""
    pairs: array[int]
    """Near copies among those first texts, compared word by word: two indexes per pair, ascending."""
    candidates: int
    """Number of pairs compared."""

    def iterate_clusters(self) -> Iterator[list[int]]:
        """Groups of two or more texts connected by being copies, ascending. The ends of a chain may not be copies."""
        parents = array("q", self.firsts)

        def find(text: int) -> int:
            while parents[text] != text:
                parents[text] = text = parents[parents[text]]
            return text

        for a, b in zip(self.pairs[::2], self.pairs[1::2], strict=True):
            low, high = sorted((find(a), find(b)))
            parents[high] = low
        roots = np.fromiter(map(find, range(len(parents))), dtype=np.int64, count=len(parents))
        order = np.argsort(roots, kind="stable")
        ends = np.flatnonzero(np.diff(roots[order], append=-1)) + 1
        starts = np.concatenate([[0], ends[:-1]]) if len(ends) else ends
        for cluster in np.flatnonzero(ends - starts > 1):
            yield order[starts[cluster] : ends[cluster]].tolist()

    def count_chained(self) -> int:
        """Number of texts that are not copies of the best-connected text of their cluster: how far chains reach."""
        neighbors = Neighbors(self)
        chained = 0
        for cluster in self.iterate_clusters():
            firsts = sorted({self.firsts[text] for text in cluster})
            center = max(firsts, key=lambda first: len(neighbors[first]))
            near = {*neighbors[center].tolist(), center}
            chained += sum(self.firsts[text] not in near for text in cluster)
        return chained


class Neighbors:
    """The near copies of each text that is the first of its kind."""

    def __init__(self, copies: Copies) -> None:
        pairs = np.array(copies.pairs, dtype=np.int64).reshape(-1, 2)
        both = np.concatenate([pairs, pairs[:, ::-1]])
        both = both[np.argsort(both[:, 0], kind="stable")]
        self._texts, self._others = both[:, 0].copy(), both[:, 1].copy()

    def __getitem__(self, text: int) -> np.ndarray[Any, np.dtype[np.int64]]:
        start, end = np.searchsorted(self._texts, [text, text + 1])
        return self._others[start:end]


def find_copies(
    texts: Sequence[WordText | None], *, least_near: int = LEAST_NEAR, has_templates: bool = True
) -> Copies:
    """Find the copies among texts. The result depends only on the texts and their order.

    Args:
        texts: Read one at a time, each several times; `None` is never a copy.
        least_near: Fewest words of a near copy.
        has_templates: Whether sentences that many texts share are left out.
    """
    firsts = _find_equal(texts)
    search = array("q", (p for p, first in enumerate(firsts) if p == first and texts[p] is not None))
    templates = _Templates()
    if has_templates:
        for place in search:
            templates.count(_get(texts, place))
        for place in search:
            templates.learn_pieces(_get(texts, place))
    with tempfile.TemporaryFile() as file:
        finder = _NearFinder(texts, templates, least_near, file)
        finder.sign(search)
        return Copies(firsts, *finder.compare())


def describe_signatures() -> str:
    """Library and version: another one may propose other pairs."""
    import rensa

    return f"rensa {version('rensa')}, R-MinHash {rensa.RMinHash.ALGORITHM_VERSION}"


def _get(texts: Sequence[WordText | None], place: int) -> WordText:
    text = texts[place]
    assert text is not None
    return text


def _find_equal(texts: Sequence[WordText | None]) -> array[int]:
    firsts = array("q", range(len(texts)))
    known: dict[bytes, int] = {}
    for place in range(len(texts)):
        if (text := texts[place]) is not None:
            firsts[place] = known.setdefault(text.digest, place)
    return firsts


class _Templates:
    """In how many texts each sentence appears, up to 255; a fixed 16 MiB for any number of texts."""

    def __init__(self) -> None:
        self._counters = np.zeros(_COUNTERS, dtype=np.uint8)
        self.pieces = _COMMON_PIECES
        """Pieces of templates, and common ones: they do not propose pairs."""

    def count(self, text: WordText) -> None:
        slots = np.unique(self._find_slots(text))
        self._counters[slots] = np.minimum(self._counters[slots], 254) + 1

    def _find_slots(self, text: WordText) -> np.ndarray[Any, Any]:
        pieces = text.read_pieces().tobytes()
        ends = text.read_ends().tolist()
        starts = [0, *ends[:-1]]
        slots = [zlib.crc32(pieces[4 * a : 4 * b]) % _COUNTERS for a, b in zip(starts, ends, strict=True)]
        return np.array(slots, dtype=np.int64)

    def learn_pieces(self, text: WordText) -> None:
        """Note the pieces of its template sentences: a copy that rewords a template has them too."""
        new = np.setdiff1d(text.read_pieces()[~self.find_own(text)], self.pieces)
        if len(new):
            self.pieces = np.union1d(self.pieces, new)

    def find_own(self, text: WordText) -> np.ndarray[Any, np.dtype[np.bool_]]:
        own = self._counters[self._find_slots(text)] < _TEMPLATE_TEXTS
        return np.repeat(own, np.diff(text.read_ends(), prepend=0))


class _NearFinder:
    """Signatures on disk, and the pairs they propose."""

    def __init__(self, texts: Sequence[WordText | None], templates: _Templates, least_near: int, file: Any) -> None:
        self._texts, self._templates, self._least_near, self._file = texts, templates, least_near, file
        self._places = array("q")
        """The index in `texts` of each signature."""
        self._short: dict[bytes, int] = {}
        self._short_pairs = array("q")
        """Texts with little outside of templates: only those in which that part is equal are copies."""

    def sign(self, places: Sequence[int]) -> None:
        from rensa import RMinHash

        for start in range(0, len(places), _BATCH):
            sets: list[np.ndarray[Any, Any]] = []
            for place in places[start : start + _BATCH]:
                text = _get(self._texts, place)
                pieces, n_words = text.read_pieces(), text.n_words
                kept = self._templates.find_own(text)
                if not kept.all():
                    pieces, n_words = pieces[kept], int(text.read_starts()[kept].sum())
                if n_words >= self._least_near:
                    telling = np.setdiff1d(pieces, self._templates.pieces)
                    if len(telling) < _LEAST_TELLING:
                        telling = np.setdiff1d(pieces, _COMMON_PIECES)
                    sets.append(telling.astype(np.uint64))
                    self._places.append(place)
                elif LEAST_EQUAL <= n_words < text.n_words:
                    own = hashlib.blake2b(pieces.tobytes(), digest_size=16).digest()
                    if (first := self._short.setdefault(own, place)) != place:
                        self._short_pairs.extend((first, place))
            offsets = np.cumsum([0, *map(len, sets)], dtype=np.uint64)
            if sets:
                flat = np.concatenate(sets)
                matrix = RMinHash.digest_matrix_from_flat_token_hashes(flat, offsets, _SLOTS, _SEED)
                self._file.write(np.array(matrix.to_rows(), dtype=np.uint32).tobytes())

    def compare(self) -> tuple[array[int], int]:
        """The pairs that are near copies, and the number of pairs compared."""
        self._file.flush()
        found = array("q", self._short_pairs)
        compared = 0
        if len(self._places) > 1:
            signatures = np.memmap(self._file, np.uint32, "r", shape=(len(self._places), _SLOTS))
            read = functools.lru_cache(maxsize=_CACHED_TEXTS)(self._read)
            for x, y in _pair_by_signature(signatures):
                compared += 1
                a, b = self._places[x], self._places[y]
                # Whole, or without templates: the same text may appear in two of them.
                if self._may_be_near(a, b) and any(map(is_near_copy, read(a), read(b))):
                    found.extend((a, b))
        pairs = np.array(found, dtype=np.int64).reshape(-1, 2)
        return array("q", pairs[np.lexsort((pairs[:, 1], pairs[:, 0]))].tobytes()), compared

    def _may_be_near(self, *pair: int) -> bool:
        """Whether the numbers of words allow it, where the texts are longer than the pieces that are compared."""
        texts = [_get(self._texts, place) for place in pair]
        least, most = sorted(text.n_words for text in texts)
        return max(len(text.pieces) for text in texts) < 4 * MAX_PIECES or most - least <= allow_differences(most)

    def _read(self, place: int) -> list[ComparedText]:
        """The text as a whole, and without templates."""
        text = _get(self._texts, place)
        kept = self._templates.find_own(text)
        pieces, words = text.read_pieces(), np.cumsum(text.read_starts())
        whole = ComparedText(pieces.tolist(), words.tolist())
        return [whole, whole if kept.all() else ComparedText(pieces[kept].tolist(), words[kept].tolist())]


def _hash_band(signatures: np.ndarray[Any, Any], band: int) -> np.ndarray[Any, np.dtype[np.uint64]]:
    """One key per row, the same for rows that share the band."""
    keys = np.zeros(len(signatures), dtype=np.uint64)
    for slot in range(band * _BAND_SLOTS, (band + 1) * _BAND_SLOTS):
        keys = (keys ^ signatures[:, slot]) * np.uint64(0x9E3779B97F4A7C15)
        keys ^= keys >> np.uint64(29)
    return keys


def _pair_by_signature(signatures: np.ndarray[Any, Any]) -> Iterator[tuple[int, int]]:
    """Pairs of rows that share a band and are similar by estimate, ascending, each once. Only pairs in which one row is
    among the nearest of the other, so that in a large family each text is compared with a few."""
    count = len(signatures)
    found = np.empty(0, dtype=np.int64)
    equal = np.empty(0, dtype=np.int16)
    """Number of equal slots of each found pair."""
    keys = [_hash_band(signatures, 0)]
    for band in range(_BANDS):
        keys = [keys[-1], _hash_band(signatures, (band + 1) % _BANDS)]
        for new in _cut(np.setdiff1d(_pair_by_band(*keys), found)):
            alike, slots = _choose_alike(signatures, new)
            found, equal = np.concatenate([found, alike]), np.concatenate([equal, slots])
            if len(found) > 2 * _MAX_COMPARED * count:
                nearest = _find_nearest(found, equal, count)
                found, equal = found[nearest], equal[nearest]
    for part in _cut(np.sort(found[_find_nearest(found, equal, count)])):
        yield from zip(*(side.tolist() for side in np.divmod(part, count)), strict=True)


def _pair_by_band(keys: np.ndarray[Any, Any], next_keys: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Pairs of rows with the same key; each row with a few, preferably ones that share the next band too."""
    count = len(keys)
    order = np.lexsort((np.arange(count), next_keys, keys))
    sorted_keys = keys[order]
    pairs = [np.empty(0, dtype=np.int64)]
    for distance in range(1, min(_BAND_NEIGHBORS, count - 1) + 1):
        same = np.flatnonzero(sorted_keys[distance:] == sorted_keys[:-distance])
        if not len(same):
            break
        low = np.minimum(order[same], order[same + distance])
        high = np.maximum(order[same], order[same + distance])
        pairs.append(low * count + high)
    return np.concatenate(pairs)


def _find_nearest(pairs: np.ndarray[Any, Any], equal: np.ndarray[Any, Any], count: int) -> np.ndarray[Any, Any]:
    """Indexes of the pairs in which one row is among the nearest of the other."""
    nearest_first = np.lexsort((pairs, -equal))
    rows = np.concatenate(np.divmod(pairs[nearest_first], count))
    places = np.tile(np.arange(len(pairs)), 2)
    by_row = np.lexsort((places, rows))
    begins = np.flatnonzero(np.diff(rows[by_row], prepend=-1))
    ranks = np.arange(len(rows)) - np.repeat(begins, np.diff(begins, append=len(rows)))
    return np.unique(nearest_first[places[by_row[ranks < _MAX_COMPARED]]])


def _cut(pairs: np.ndarray[Any, Any]) -> list[np.ndarray[Any, Any]]:
    return [pairs[start : start + _PAIRS_AT_ONCE] for start in range(0, len(pairs), _PAIRS_AT_ONCE)]


def _choose_alike(
    signatures: np.ndarray[Any, Any], pairs: np.ndarray[Any, Any]
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """The pairs that are similar by their share of equal slots, which estimates the share of common words, and the
    numbers of those slots."""
    rows, others = np.divmod(pairs, len(signatures))
    equal = (signatures[rows] == signatures[others]).sum(axis=1, dtype=np.int16)
    chosen = equal >= _LEAST_ESTIMATE * _SLOTS
    return pairs[chosen], equal[chosen]
