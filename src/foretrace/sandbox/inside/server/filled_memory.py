"""Holes in memory, filled: so that what a child makes lies together, in few pages of its own.

Python cuts memory into blocks of a few sizes, and reuses what was freed. After all that a fork server imports and
rehearses, free blocks are strewn over hundreds of pages. A child would take one here and one there, and each page that
it writes to has to be copied for it. So the fork server takes all of them, and holds them for as long as it lives: what
is made from then on goes to fresh memory, one block beside the other.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

_POOL = 1 << 14
"""Bytes in which blocks of one size lie together."""
_SIZES = range(16, 513, 16)
"""Bytes of a block; what is larger has a place of its own."""
_MAX_BLOCKS = 50_000
"""Blocks of one size that are taken at most."""
_BYTES_HEADER = b"".__sizeof__()


_taken: list[list[Any]] = []


def fill_holes() -> None:
    """Take the free blocks of each size, for good."""
    gc.collect()  # what Python keeps to make tuples and the like of would be used first
    _taken.extend(_take_blocks(size) for size in _SIZES)


def _take_blocks(size: int) -> list[Any]:
    """Objects of a size, until half as many as lie together lie one behind the other."""
    make = _find_maker(size)
    made: list[Any] = [make()]
    in_line = 0
    while in_line < _POOL // size // 2 and len(made) < _MAX_BLOCKS:
        made.append(make())
        in_line = in_line + 1 if id(made[-1]) - id(made[-2]) == size else 0
    return made


def _find_maker(size: int) -> Callable[[], Any]:
    """What makes a new object of this size, to which nothing else refers and which refers to nothing."""
    if size <= _BYTES_HEADER:
        return object if size == object.__sizeof__(object()) else lambda: float("1.5")
    length = size - _BYTES_HEADER
    return lambda: bytes(length)
