"""Arrays of numpy's: copied with their type and shape, and shared as other containers are.

["nd", type, shape, order, writable, items]                in hexadecimal, or as values where their type is object
["nv", type, shape, strides, offset, writable, array]      a view of an array

A view stays one, so that what is written through it is seen in the array. Where the array that it is of is much larger,
or holds objects, it is sent by itself.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any

from foretrace.sandbox.inside.remote.array_types import check_items, describe_item_type, make_item_type

_SMALL = 1 << 16
"""Bytes of an array that is sent with any view of it; a larger one, if the view has a quarter of it."""
_MAX_ITEMS = 1 << 22
"""Of a view, which may have the same item any number of times."""
_MAX_BYTES = 1 << 26


class ArrayView:
    """What views count as among containers that both sides know: what is shared of one by itself is its shape."""


def is_array_type(kind: type) -> bool:
    """Whether it is numpy's type of arrays, and no class that extends it."""
    return kind.__name__ == "ndarray" and getattr(sys.modules.get("numpy"), "ndarray", None) is kind


def is_plain_array(value: Any) -> bool:
    """Whether the value is an array that can be told."""
    return is_array_type(type(value)) and (value.dtype.str == "|O" or describe_item_type(value.dtype) is not None)


def find_owner(view: Any, may_tell: Callable[[Any], bool]) -> Any:
    """The array of which an array is a view, if it is told as one."""
    owner = view.base
    if owner is None or not is_plain_array(owner) or is_array_type(type(owner.base)) or owner.dtype.hasobject:
        return None
    if owner.nbytes > max(_SMALL, 4 * view.nbytes) or view.size > _MAX_ITEMS or view.nbytes > _MAX_BYTES:
        return None
    if _could_be_none(view.dtype, owner.dtype):
        return None
    return owner if (owner.flags.c_contiguous or owner.flags.f_contiguous) and may_tell(owner) else None


def find_array_base(array: Any, may_tell: Callable[[Any], bool]) -> type:
    """As what an array is known among containers that both sides know."""
    return type(array) if find_owner(array, may_tell) is None else ArrayView


def describe_array(array: Any, walk: Callable[[Any], Any], may_tell: Callable[[Any], bool]) -> list[Any]:
    """The tag of an array. Other values are encoded by `walk`; `may_tell` says whether to tell of what it is a view."""
    owner, writable, shape = find_owner(array, may_tell), array.flags.writeable, list(array.shape)
    kind = describe_item_type(array.dtype)
    if owner is not None:
        offset = _find_address(array) - _find_address(owner)
        return ["nv", kind, shape, list(array.strides), offset, writable, walk(owner)]
    order = "F" if array.flags.f_contiguous and not array.flags.c_contiguous else "C"
    items = array.tobytes(order).hex() if kind is not None else [walk(item) for item in array.flatten(order)]
    return ["nd", kind, shape, order, writable, items]


def _find_address(array: Any) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


def make_array(tagged: list[Any]) -> Any:
    """The array that the other side has described, its objects excepted.

    Raises:
        ValueError: it is none.
    """
    _, kind, shape, order, writable, items = tagged
    numpy: Any = sys.modules.get("numpy")
    if numpy is None or not _is_shape(shape) or order not in ("C", "F"):
        raise ValueError("no array")
    if kind is None:
        if type(items) is not list or len(items) != math.prod(shape):
            raise ValueError("not as many items as an array has")
        return numpy.empty(shape, dtype=object, order=order)
    dtype, content = make_item_type(kind), bytearray.fromhex(items)
    if len(content) != math.prod(shape) * dtype.itemsize:
        raise ValueError("not as many items as an array has")
    made = numpy.ndarray(shape, dtype, content, order=order) if content else numpy.empty(shape, dtype, order)
    check_items(made)
    made = made.copy(order)  # so that its memory is its own
    made.flags.writeable = writable is True
    return made


def fill_array(made: Any, tagged: list[Any], walk: Callable[[Any], Any]) -> None:
    """Put the objects into an array of objects."""
    if made.dtype.hasobject:
        items = iter([walk(item) for item in tagged[-1]])
        for place in range(made.size):
            indices = [*_find_indices(place, made.shape if tagged[3] == "C" else made.shape[::-1])]
            made[tuple(indices if tagged[3] == "C" else indices[::-1])] = next(items)
        made.flags.writeable = tagged[4] is True


def _find_indices(place: int, shape: tuple[int, ...]) -> list[int]:
    indices: list[int] = []
    for size in reversed(shape):
        place, index = divmod(place, size)
        indices.append(index)
    return indices[::-1]


def make_view(tagged: list[Any], owner: Any) -> Any:
    """The view of an array that the other side has described.

    Raises:
        ValueError: it is none, or goes beyond the array.
    """
    _, kind, shape, strides, offset, writable, _ = tagged
    if not is_array_type(type(owner)) or owner.dtype.hasobject or not _is_shape(shape):
        raise ValueError("no view of an array")
    if type(strides) is not list or not all(type(step) is int for step in (*strides, offset)):
        raise ValueError("no view of an array")
    dtype = make_item_type(kind)
    if math.prod(shape) > _MAX_ITEMS or math.prod(shape) * dtype.itemsize > _MAX_BYTES:
        raise ValueError("a view with too many items")
    if _could_be_none(dtype, owner.dtype) or not _is_within(shape, strides, offset, dtype.itemsize, owner.nbytes):
        raise ValueError("a view of what is none")
    memory = owner if owner.flags.c_contiguous else owner.T
    if not memory.flags.c_contiguous:
        raise ValueError("a view of a view")
    made = type(owner)(tuple(shape), dtype, memory, offset, tuple(strides))
    made.flags.writeable = writable is True and owner.flags.writeable
    return made


def _could_be_none(dtype: Any, of: Any) -> bool:
    """Whether a view as items of a type may hold what is no item, once its array changes (see `check_items`)."""
    return dtype.kind in "bUV" and bool(dtype != of)


def _is_within(shape: list[int], strides: list[int], offset: int, size: int, available: int) -> bool:
    """Whether all items of a view lie in its array: numpy's own sums go round where they are too large."""
    if len(shape) != len(strides):
        return False
    reached = [(items - 1) * step for items, step in zip(shape, strides, strict=True)] if 0 not in shape else []
    last = offset + sum(step for step in reached if step > 0) + (size if 0 not in shape else 0)
    return offset + sum(step for step in reached if step < 0) >= 0 and last <= available


def _is_shape(shape: Any) -> bool:
    return type(shape) is list and all(type(size) is int and size >= 0 for size in shape)


def set_array(made: Any, other: Any, items: bool) -> None:
    """Give an array the shape of another one, and its items too.

    Raises:
        ValueError: they are of other sizes.
    """
    if made.dtype != other.dtype or made.size != other.size:
        raise ValueError("an array that has changed its size")
    if made.shape != other.shape:
        made.shape = other.shape
    if items:
        before, made.flags.writeable = made.flags.writeable, True
        made[...] = other
        made.flags.writeable = before


def list_items(array: Any) -> list[Any] | bytes:
    """Type, shape and items of an array: what is not the same before and after a change."""
    start = describe_shape(array)
    return [sys.intern(start), *array.flat] if array.dtype.hasobject else start.encode() + bytes(array.tobytes())


def describe_shape(array: Any) -> str:
    """Type and size of an array, and its shape."""
    return f"{array.dtype.str} {array.size} {array.shape} "


def has_other_size(array: Any, known: list[Any] | bytes) -> bool:
    """Whether an array is not of the type and size that it had: numpy has given it other memory, under its views.

    Args:
        known: as `list_items`, or only what begins it.
    """
    before = (known if isinstance(known, bytes) else known[0].encode()).split()
    return before[:2] != describe_shape(array).encode().split()[:2]
