"""When an answer counts as equal to what a test asks for: values, and the printed output of programs."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from foretrace.sandbox.inside.wire.stdlib_values import is_stdlib_value
from foretrace.sandbox.inside.wire.values import MAX_DEPTH, IteratorItems, OpaqueValue

_NUMBERS = frozenset({bool, int, float, complex})
_SETS = frozenset({set, frozenset})
_SIMPLE = frozenset({str, bytes, bytearray, range, type(None), type(...)})
_MAX_DEPTH = MAX_DEPTH + 50
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|[-+]?(?:inf|infinity|nan)", re.IGNORECASE)
_LINE_END = re.compile(r"\r\n|\n|\r")
_MAX_TOKEN_CHARS = 400
"""Characters of a token that may be read as a number."""


class Tolerance(NamedTuple):
    """How far two numbers may be apart: `|a - b| <= max(absolute, relative * |expected|)`."""

    absolute: float = 0.0
    relative: float = 0.0


class Approx:
    """What `pytest.approx(value)` stands for: a value that is equal within a tolerance."""

    __slots__ = ("tolerance", "value")

    def __init__(self, value: Any, relative: float | None = None, absolute: float | None = None) -> None:
        self.value = value
        if relative is None:
            relative = 1e-6 if absolute is None else 0.0
        self.tolerance = Tolerance(1e-12 if absolute is None else absolute, relative)


def equal(actual: Any, expected: Any, tolerance: Tolerance | None = None) -> bool:
    """Whether two plain values are equal, as Python's `==` means it, since `==` is what authors of tests wrote.

    - `True == 1 == 1.0 == (1+0j)`, also inside containers and as keys; `"1" != 1`.
    - A list is no tuple; a set equals a frozenset, and bytes a bytearray, of the same contents; dicts are equal in any
      order; ranges are equal as sequences.
    - Decimals, fractions, dates, times and UUIDs are compared as Python does; a named tuple is a tuple.
    - NaN equals nothing, also inside containers: values are never taken as equal for being the same object. So it is
      with opaque values, iterators, and all that is no builtin value.
    - Numbers may differ only where the test says so: by `tolerance`, or within an `Approx`.

    The work is bounded by the size of the smaller value; what is nested too deep is not equal.
    """
    return _equal(actual, expected, tolerance, 0)


def _equal(a: Any, b: Any, tolerance: Tolerance | None, depth: int) -> bool:
    if depth > _MAX_DEPTH:
        return False
    kind, other = type(a), type(b)
    if other is Approx:
        return _equal(a, b.value, b.tolerance, depth + 1)
    if kind is Approx:
        return _equal(b, a.value, a.tolerance, depth + 1)
    if kind in _NUMBERS and other in _NUMBERS:
        return a == b or (tolerance is not None and close(a, b, tolerance))
    if kind in _SIMPLE and other in _SIMPLE:
        return _simple(a, b)
    if (kind is list and other is list) or (kind is tuple and other is tuple):
        return len(a) == len(b) and all(_equal(x, y, tolerance, depth + 1) for x, y in zip(a, b, strict=True))
    if kind in _SETS and other in _SETS:
        return len(a) == len(b) and a == b and not any(_unequal_to_itself(item, depth + 1) for item in a)
    if kind is dict and other is dict:
        return (
            len(a) == len(b)
            and all(key in b and _equal(value, b[key], tolerance, depth + 1) for key, value in a.items())
            and not any(_unequal_to_itself(key, depth + 1) for key in a)
        )
    if is_stdlib_value(a) and (is_stdlib_value(b) or other in _NUMBERS):
        return bool(a == b)
    if is_stdlib_value(b) and kind in _NUMBERS:
        return bool(a == b)
    return kind is type and other is type and a is b


def _simple(a: Any, b: Any) -> bool:
    bytes_like = (bytes, bytearray)
    if type(a) is type(b) or (type(a) in bytes_like and type(b) in bytes_like):
        return bool(a == b)
    return False


def _unequal_to_itself(member: Any, depth: int) -> bool:
    """Whether NaN or an opaque value is in it; sets and dicts would find these by identity."""
    if depth > _MAX_DEPTH:
        return True
    kind = type(member)
    if kind is tuple or kind is frozenset:
        return any(_unequal_to_itself(item, depth + 1) for item in member)
    return kind is OpaqueValue or kind is IteratorItems or (kind in (float, complex) and member != member)


def close(actual: Any, expected: Any, tolerance: Tolerance) -> bool:
    """Whether two numbers are equal within a tolerance; infinities and NaN are close to nothing but their equals."""
    try:
        if actual == expected:
            return True
        difference = abs(actual - expected)
        return difference <= max(tolerance.absolute, tolerance.relative * abs(expected)) and math.isfinite(difference)
    except (OverflowError, TypeError):
        return False


def same_output(printed: str, expected: str, tolerance: float | None = None) -> bool:
    """Whether a program printed what it should.

    Line ends are all alike (`\\n`, `\\r\\n`, `\\r`); blanks at the end of a line and blank lines at the end of the
    output do not count; all else does. With a tolerance, the words of each line are compared one by one, and two
    numbers are equal when they differ by at most `tolerance`, or by that share of the expected one.
    """
    if printed == expected:
        return True
    within = None if tolerance is None else Tolerance(tolerance, tolerance)
    for ours, theirs in itertools.zip_longest(_lines(printed), _lines(expected), fillvalue=""):
        if ours != theirs and (within is None or not _same_line(ours, theirs, within)):
            return False
    return True


def _lines(text: str) -> Iterator[str]:
    """The lines without blanks at their ends, one at a time: a long output is not copied."""
    at = 0
    while at <= len(text):
        end = _LINE_END.search(text, at)
        yield text[at : end.start() if end else len(text)].rstrip()
        at = end.end() if end else len(text) + 1


def _same_line(ours: str, theirs: str, tolerance: Tolerance) -> bool:
    a, b = ours.split(), theirs.split()
    return len(a) == len(b) and all(_same_token(x, y, tolerance) for x, y in zip(a, b, strict=True))


def _same_token(ours: str, theirs: str, tolerance: Tolerance) -> bool:
    if ours == theirs:
        return True
    if max(len(ours), len(theirs)) > _MAX_TOKEN_CHARS or not (_NUMBER.fullmatch(ours) and _NUMBER.fullmatch(theirs)):
        return False
    return close(float(ours), float(theirs), tolerance)
