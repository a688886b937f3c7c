"""Short stable digests: the same text gives the same value in every process and on every machine."""

from __future__ import annotations

import hashlib


def digest(*parts: str, size: int = 8) -> str:
    """blake2b over the parts (unambiguous: each is length-prefixed), as `2 * size` hex digits."""
    return _compute_blake2b(parts, size).hex()


def hash_fraction(*parts: str) -> float:
    """A number in [0, 1) from the parts. Every "random" choice in foretrace is made with it."""
    return int.from_bytes(_compute_blake2b(parts, 7), "big") / (1 << 56)


def _compute_blake2b(parts: tuple[str, ...], size: int) -> bytes:
    state = hashlib.blake2b(digest_size=size)
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        state.update(len(data).to_bytes(8, "big"))
        state.update(data)
    return state.digest()
