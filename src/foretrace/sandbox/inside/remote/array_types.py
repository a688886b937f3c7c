"""Numpy's types, and its numbers and other single values, told to the other process.

["nt", type]             a `dtype`: its name, or ["V", size, [[name, type, offset], ...]] where it has fields
["ng", type, item]       a single value, such as a float64 or a datetime64
"""

from __future__ import annotations

import re
import sys
from typing import Any

_PLAIN_ITEMS = re.compile(r"[<>|=]([biufc]\d{1,2}|[SU]\d{1,9}|[mM]8(\[\d{0,9}[a-zA-Z]{1,2}\])?)")
"""Names of types without objects or fields."""
_WHOLE = {"U": ("u4", sys.maxunicode), "b": ("u1", 1)}
"""Of items that not all bytes make: the numbers that they are made of, and the largest one."""
_MAX_FIELDS = 200
_MAX_DEPTH = 8


def is_numpy_class(kind: Any) -> bool:
    """Whether it is one of numpy's classes of arrays, of single values or of types, which both sides have."""
    numpy: Any = sys.modules.get("numpy")
    module, name = getattr(kind, "__module__", None), getattr(kind, "__name__", None)
    if numpy is None or module != "numpy" or type(name) is not str or not isinstance(kind, type):
        return False
    if getattr(numpy, name, None) is not kind:
        return False
    return kind in (numpy.ndarray, numpy.dtype) or numpy.generic in kind.__mro__


def describe_item_type(dtype: Any, depth: int = 0) -> Any:
    """A type of items, as JSON; None where it is told otherwise."""
    if _PLAIN_ITEMS.fullmatch(dtype.str):
        return dtype.str
    fields = dtype.fields
    if not fields or len(fields) > _MAX_FIELDS or depth > _MAX_DEPTH or dtype.type.__name__ != "void":
        return None
    described = [[name, describe_item_type(fields[name][0], depth + 1), fields[name][1]] for name in dtype.names]
    return None if any(part[1] is None for part in described) else ["V", dtype.itemsize, described]


def make_item_type(described: Any, depth: int = 0) -> Any:
    """The type of items that the other side has described.

    Raises:
        ValueError: it is none.
    """
    numpy: Any = sys.modules.get("numpy")
    if type(described) is str and numpy is not None and _PLAIN_ITEMS.fullmatch(described):
        return numpy.dtype(described)
    if type(described) is not list or len(described) != 3 or numpy is None or depth > _MAX_DEPTH:
        raise ValueError("no type of items")
    _, size, fields = described
    if type(fields) is not list or len(fields) > _MAX_FIELDS or type(size) is not int:
        raise ValueError("no type of items")
    names, kinds, offsets = zip(*fields, strict=True)
    if not all(type(name) is str for name in names) or not all(type(offset) is int for offset in offsets):
        raise ValueError("no type of items")
    formats = [make_item_type(kind, depth + 1) for kind in kinds]
    return numpy.dtype({"names": [*names], "formats": formats, "offsets": [*offsets], "itemsize": size})


def check_items(array: Any) -> None:
    """Refuse an array made of bytes that no item has.

    Raises:
        ValueError: a character beyond Unicode, or a truth value other than 0 and 1.
    """
    dtype: Any = array.dtype
    for name in dtype.names or ():
        check_items(array[name])
    whole, largest = _WHOLE.get(dtype.kind, ("", 0))
    if whole and dtype.itemsize:
        numbers = array.reshape(-1).copy().view(dtype.str[0].replace("|", "=") + whole)
        if (numbers > largest).any():
            raise ValueError("an array of items that are none")


def describe_numpy_value(value: Any) -> list[Any] | None:
    """The tag of a single value or a type of numpy's; None for all else."""
    numpy: Any = sys.modules.get("numpy")
    generic, dtype = getattr(numpy, "generic", None), getattr(numpy, "dtype", None)
    if not (type(generic) is type and isinstance(dtype, type)):
        return None
    kind = type(value)
    if generic in kind.__mro__ and is_numpy_class(kind):
        described = describe_item_type(value.dtype)
        return None if described is None else ["ng", described, value.tobytes()[: value.dtype.itemsize].hex()]
    if dtype in kind.__mro__ and (value.str == "|O" or describe_item_type(value) is not None):
        return ["nt", describe_item_type(value)]
    return None


def read_numpy_value(tagged: list[Any]) -> Any:
    """The single value or the type that the other side has described.

    Raises:
        ValueError: it is none.
    """
    numpy: Any = sys.modules.get("numpy")
    if tagged[0] == "nt":
        return numpy.dtype(object) if tagged[1] is None else make_item_type(tagged[1])
    _, described, item = tagged
    dtype, content = make_item_type(described), bytearray.fromhex(item)
    if len(content) != dtype.itemsize:
        raise ValueError("no single value")
    made = numpy.ndarray((), dtype, content) if content else numpy.zeros((), dtype)
    check_items(made)
    return made[()]


def make_like(value: Any, item: Any) -> Any:
    """A single value of the same type made of another item; the item itself where there is none."""
    numpy: Any = sys.modules.get("numpy")
    try:
        return numpy.asarray(item).astype(value.dtype)[()]
    except (TypeError, ValueError, OverflowError):
        return item


def as_truth(value: Any) -> Any:
    """A truth value of numpy's as one of Python's, also in answers to several questions. Who doubts what an object says
    need not know of both."""
    if type(value) is tuple:
        return tuple(map(as_truth, value))
    is_truth = type(value).__name__ in ("bool", "bool_") and is_numpy_class(type(value))
    return bool(value) if is_truth else value
