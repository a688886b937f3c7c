"""Digests of prompts: 8 bytes identify one, and a sorted array of them takes a tenth of the memory of a set."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foretrace.dataset.settings import SPLITS

Digests = NDArray[Any]
"""Distinct digests in ascending order, as big-endian integers: 8 bytes each, where a set takes about 100."""

_MAX_TEXTS = 4096
"""Texts whose digests are remembered: more than a window of rows holds."""
_text_digests: dict[str, bytes] = {}


def digest_prompt(prompt: Sequence[tuple[str, str]]) -> bytes:
    """8 bytes that identify a prompt."""
    roles = "".join([role[0] for role, _ in prompt]).encode()
    try:
        texts = b"".join([_text_digests[text] for _, text in prompt])
    except KeyError:
        _digest_texts([text for _, text in prompt if text not in _text_digests], prompt)
        texts = b"".join([_text_digests[text] for _, text in prompt])
    return blake2b(roles + texts, digest_size=8).digest()


def _digest_texts(new: list[str], prompt: Sequence[tuple[str, str]]) -> None:
    if len(_text_digests) >= _MAX_TEXTS:
        _text_digests.clear()
        new = [text for _, text in prompt]
    for text in new:
        _text_digests[text] = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def pack_digests(digests: Collection[bytes]) -> Digests:
    """The digests as a sorted array."""
    return np.frombuffer(b"".join(sorted(digests)), dtype=">u8")


def merge_digests(arrays: Sequence[Digests]) -> Digests:
    """One sorted array of the digests in any of the arrays."""
    return np.unique(np.concatenate(arrays)) if arrays else np.zeros(0, dtype=">u8")


def unpack_digests(digests: Digests) -> list[bytes]:
    """The digests as bytes, in ascending order."""
    return [value.to_bytes(8, "big") for value in digests.tolist()]


def find_shared_prompts(prompts: Mapping[str, Digests]) -> dict[bytes, str]:
    """Prompts that stand in several splits, and the split that keeps each: the most held-out one."""
    train, validation, test = (prompts[split] for split in SPLITS)
    shared = dict.fromkeys(unpack_digests(np.intersect1d(train, validation)), "validation")
    return shared | dict.fromkeys(unpack_digests(np.intersect1d(np.union1d(train, validation), test)), "test")
