"""Arrays of numpy's whose items are plain: copied with their type and shape, and shared as other containers are.

["nd", type, shape, bytes]     the items in hexadecimal, in the order of rows
"""

from __future__ import annotations

import re
import sys
from typing import Any

_PLAIN_ITEMS = re.compile(r"[<>|=]([biufc]\d{1,2}|[SU]\d{1,9}|[mM]8(\[\d{0,9}[a-zA-Z]{1,2}\])?)")
"""Names of types without objects or fields."""

_WHOLE = {"U": ("u4", sys.maxunicode), "b": ("u1", 1)}
"""Of items that not all bytes make: the numbers that they are made of, and the largest one."""


def is_array_type(kind: type) -> bool:
    """Whether it is numpy's type of arrays, and no class that extends it."""
    return kind.__name__ == "ndarray" and getattr(sys.modules.get("numpy"), "ndarray", None) is kind


def is_plain_array(value: Any) -> bool:
    """Whether the value is an array that can be told."""
    return is_array_type(type(value)) and _PLAIN_ITEMS.fullmatch(value.dtype.str) is not None


def describe_array(array: Any) -> list[Any]:
    """The tag of an array."""
    return ["nd", array.dtype.str, list(array.shape), array.tobytes().hex()]


def make_array(tagged: list[Any]) -> Any:
    """The array that the other side has described.

    Raises:
        ValueError: it is none.
    """
    _, name, shape, items = tagged
    numpy = sys.modules.get("numpy")
    if numpy is None or type(name) is not str or not _PLAIN_ITEMS.fullmatch(name):
        raise ValueError("no array of plain items")
    if type(shape) is not list or not all(type(size) is int and size >= 0 for size in shape):
        raise ValueError("no shape of an array")
    made = numpy.frombuffer(bytearray.fromhex(items), dtype=numpy.dtype(name))
    whole, largest = _WHOLE.get(made.dtype.kind, ("", 0))
    if whole and (made.view(made.dtype.str[0].replace("|", "=") + whole) > largest).any():
        raise ValueError("an array of items that are none")
    return made.reshape(shape)


def list_items(array: Any) -> bytes:
    """Type, shape and items of an array: what is not the same before and after a change."""
    return f"{array.dtype.str} {array.shape} ".encode() + bytes(array.tobytes())
