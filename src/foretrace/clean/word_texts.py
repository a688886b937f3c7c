"""Texts as hashed words: only words, numbers and arithmetic signs count."""

from __future__ import annotations

import hashlib
import re
import zlib
from collections.abc import Iterable
from typing import Any

import msgspec
import numpy as np

MAX_PIECES = 4096
"""Most pieces of a text that are compared; the digest covers all of them."""
Pieces = np.ndarray[Any, np.dtype[np.uint32]]

_NUMBER, _STARTS_WORD = 1, 2
_HASH = 0xFFFFFFFC
_LONGEST_KNOWN, _MAX_KNOWN = 40, 1 << 15
"""Most characters of a cached word, and most cached words: texts repeat few words."""
_CJK = r"\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
"""Scripts without spaces, in which each character counts as a word."""
_SIGN = r"[-+*/=<>^%]"
"""Counts before a number, a bracket or a variable, and by itself; in tags and paths it is punctuation."""
_PIECE = re.compile(
    rf"\d+(?:[.,:]\d+)*|[{_CJK}]|[^\W\d{_CJK}][^\W{_CJK}]*"
    rf"|{_SIGN}(?=[\d(]|[a-z](?![^\W_]))|(?<![^\W\d]){_SIGN}(?=\Z)"
)
_SENTENCE_END = re.compile(r"\n|(?<=[.!?:])\s+")


class WordText(msgspec.Struct, frozen=True):
    """The words of a text, packed. Words are separated by spaces, such as `src/app.py`; its pieces are `src`, `app` and
    `py`."""

    digest: bytes
    """Of all pieces, 16 bytes: texts that differ only in case, space and punctuation have the same digest."""
    n_words: int
    """Number of words."""
    pieces: bytes
    """The first `MAX_PIECES`, as little-endian uint32: a hash, a bit for numbers, and one for the start of a word."""
    ends: bytes
    """Where each sentence ends among the pieces, as little-endian uint32."""

    def read_pieces(self) -> Pieces:
        """The hashes of the pieces; those of numbers are odd."""
        return np.frombuffer(self.pieces, dtype="<u4") & np.uint32(_HASH | _NUMBER)

    def read_starts(self) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Whether each piece begins a word."""
        return (np.frombuffer(self.pieces, dtype="<u4") & np.uint32(_STARTS_WORD)).astype(np.bool_)

    def read_ends(self) -> Pieces:
        """Where each sentence ends among the pieces."""
        return np.frombuffer(self.ends, dtype="<u4")


def make_word_text(sentences: Iterable[str]) -> WordText:
    """Make the hashed words of sentences; those without a word are left out."""
    by_sentence: list[bytes] = []
    ends: list[int] = []
    end = 0
    for sentence in sentences:
        if of_sentence := b"".join(map(_read_word, sentence.lower().split())):
            by_sentence.append(of_sentence)
            end += len(of_sentence) // 4
            ends.append(end)
    packed = np.frombuffer(b"".join(by_sentence), dtype="<u4")
    kept = np.minimum(np.array(ends, dtype="<u4"), MAX_PIECES)
    kept = kept[: np.searchsorted(kept, MAX_PIECES) + 1]
    digest = hashlib.blake2b((packed & np.uint32(_HASH | _NUMBER)).tobytes(), digest_size=16).digest()
    n_words = int(np.count_nonzero(packed & np.uint32(_STARTS_WORD)))
    return WordText(digest, n_words, packed[:MAX_PIECES].tobytes(), kept.tobytes())


class _Words(dict[str, bytes]):
    """The packed pieces of a word; recent ones are cached."""

    def __missing__(self, word: str) -> bytes:
        pieces: list[bytes] = []
        first = _STARTS_WORD
        for piece in _PIECE.findall(word):
            pieces.append((_hash_piece(piece) | first).to_bytes(4, "little"))
            first = _STARTS_WORD if piece >= "\u3040" else 0
        packed = b"".join(pieces)
        if len(word) <= _LONGEST_KNOWN:
            if len(self) >= _MAX_KNOWN:
                self.clear()
            self[word] = packed
        return packed


_read_word = _Words().__getitem__


def _hash_piece(piece: str) -> int:
    return zlib.crc32(piece.encode("utf-8", "surrogatepass")) & _HASH | piece[0].isdigit()


def split_sentences(text: str) -> list[str]:
    """Lines and sentences, by which a template is told from the text filled into it."""
    return _SENTENCE_END.split(text)


def hash_pieces(pieces: Iterable[str]) -> Pieces:
    """The hashes of some pieces, sorted."""
    return np.unique(np.array([_hash_piece(piece) for piece in pieces], dtype=np.uint32))
