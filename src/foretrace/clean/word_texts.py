"""Texts as hashed words: what is left of a text when only words, numbers and signs of arithmetic count."""

from __future__ import annotations

import hashlib
import re
import zlib
from collections.abc import Iterable
from typing import Any

import msgspec
import numpy as np

MAX_PIECES = 4096
"""Pieces of a text that are compared; its digest is over all of them."""
Pieces = np.ndarray[Any, np.dtype[np.uint32]]

_NUMBER, _STARTS_WORD = 1, 2
_HASH = 0xFFFFFFFC
_LONGEST_KNOWN, _MAX_KNOWN = 40, 1 << 15
"""Characters of the words that are remembered, and how many: texts are made of few, again and again."""
_CJK = r"\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
"""Scripts without spaces, where each sign counts as a word."""
_SIGN = r"[-+*/=<>^%]"
"""Counts in front of a number, a bracket or a variable, and alone; in tags and paths it is punctuation."""
_PIECE = re.compile(
    rf"\d+(?:[.,:]\d+)*|[{_CJK}]|[^\W\d{_CJK}][^\W{_CJK}]*"
    rf"|{_SIGN}(?=[\d(]|[a-z](?![^\W_]))|(?<![^\W\d]){_SIGN}(?=\Z)"
)
_SENTENCE_END = re.compile(r"\n|(?<=[.!?:])\s+")


class WordText(msgspec.Struct, frozen=True):
    """The words of a text, packed. A word is what stands between spaces, such as `src/app.py`; its pieces are `src`,
    `app` and `py`."""

    digest: bytes
    """Of all pieces: texts that differ only in case, space and punctuation have one digest. 16 bytes."""
    n_words: int
    """All words."""
    pieces: bytes
    """The first `MAX_PIECES`, as little-endian uint32: a hash, one bit for numbers, one for the first of a word."""
    ends: bytes
    """Where each sentence ends among them, as little-endian uint32."""

    def read_pieces(self) -> Pieces:
        """Hashes of the pieces; those of numbers are odd."""
        return np.frombuffer(self.pieces, dtype="<u4") & np.uint32(_HASH | _NUMBER)

    def read_starts(self) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Of each piece, whether a word begins with it."""
        return (np.frombuffer(self.pieces, dtype="<u4") & np.uint32(_STARTS_WORD)).astype(np.bool_)

    def read_ends(self) -> Pieces:
        """Where each sentence ends among the pieces."""
        return np.frombuffer(self.ends, dtype="<u4")


def make_word_text(sentences: Iterable[str]) -> WordText:
    """Take sentences apart; those without a word are left out."""
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
    """The pieces of what stands between two spaces, packed; what was read lately is remembered."""

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
    """Lines and sentences: what a template and a text in it are told apart by."""
    return _SENTENCE_END.split(text)


def hash_pieces(pieces: Iterable[str]) -> Pieces:
    """The hashes of some pieces, sorted."""
    return np.unique(np.array([_hash_piece(piece) for piece in pieces], dtype=np.uint32))
