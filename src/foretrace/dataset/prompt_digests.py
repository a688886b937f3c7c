"""Digests of prompts: 8 bytes identify one, and a sorted array of them takes a tenth of the memory of a set."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b, sha256
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foretrace.core.message_columns import MessageColumn
from foretrace.dataset.settings import SPLITS

Digests = NDArray[Any]
"""Distinct digests in ascending order, as big-endian integers."""

MAX_TEXTS = 4096
"""Texts that a cache holds: more than a window of rows does."""


@lru_cache(MAX_TEXTS)
def _digest_text(text: str) -> bytes:
    return sha256(text.encode("utf-8", "surrogatepass")).digest()[:16]


def digest_prompt(prompt: Sequence[tuple[str, str]]) -> bytes:
    """8 bytes that identify a prompt."""
    roles, texts = zip(*prompt, strict=True) if prompt else ((), ())
    return blake2b(_join_initials(roles) + b"".join(map(_digest_text, texts)), digest_size=8).digest()


def digest_prompts(column: Sequence[MessageColumn]) -> list[bytes]:
    """The digest of each row in a column of messages, without building rows."""
    digests: list[bytes] = []
    for chunk in column:
        initials = np.array([role[:1] for role in chunk.roles], "S1")[chunk.role_at].tobytes()
        texts = np.frombuffer(b"".join(map(_digest_text, chunk.texts)), "V16")[chunk.text_at].tobytes()
        for begin, end in itertools.pairwise(chunk.ends):
            digests.append(blake2b(initials[begin:end] + texts[16 * begin : 16 * end], digest_size=8).digest())
    return digests


@lru_cache(maxsize=1024)
def _join_initials(roles: tuple[str, ...]) -> bytes:
    return "".join([role[0] for role in roles]).encode()


def pack_digests(digests: Collection[bytes]) -> Digests:
    return np.frombuffer(b"".join(sorted(digests)), dtype=">u8")


def merge_digests(arrays: Sequence[Digests]) -> Digests:
    """A sorted array of the digests in any of the arrays."""
    return np.unique(np.concatenate(arrays)) if arrays else np.zeros(0, dtype=">u8")


def unpack_digests(digests: Digests) -> list[bytes]:
    """The digests as bytes, in ascending order."""
    return [value.to_bytes(8, "big") for value in digests.tolist()]


def find_shared_prompts(prompts: Mapping[str, Digests]) -> dict[bytes, str]:
    """Prompts found in several splits, and the split that keeps each: the most held-out one."""
    train, validation, test = (prompts[split] for split in SPLITS)
    shared = dict.fromkeys(unpack_digests(np.intersect1d(train, validation)), "validation")
    return shared | dict.fromkeys(unpack_digests(np.intersect1d(np.union1d(train, validation), test)), "test")
