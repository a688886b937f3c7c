"""What the evaluator of tests may do in one step: functions and operators over plain values, each with bounded work."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable
from typing import Any

from foretrace.sandbox.judging.compare import Approx, equal

MAX_ITEMS = 1_000_000
"""Items (or characters) that one step may make."""
_MAX_BITS = 1 << 16
"""Bits of an int that one step may make."""


class TooMuchError(Exception):
    pass


_FEW = 100
_MAX_DIVISION_BITS = 1 << 17
"""Bits of a number that is divided: the work grows with their square."""


def items(value: Any) -> list[Any]:
    """The items of a plain value or iterator, unless there are too many."""
    if hasattr(type(value), "__len__") and len(value) > MAX_ITEMS:
        raise TooMuchError("too many items")
    return list(value)


def members(value: Any) -> list[Any]:
    """The items, if they can be members of a set at a fair price: not where many were made to share a hash."""
    seen: dict[int, int] = {}
    found = items(value)
    for item in found if len(found) > _FEW else ():
        seen[hash(item)] = seen.get(hash(item), 0) + 1
        if seen[hash(item)] > _FEW and isinstance(item, int):
            raise TooMuchError("too many members of one hash")
    return found


def _total(values: Any, start: Any = 0) -> Any:
    if type(start) not in (int, float):
        raise TypeError("sum() is known here for numbers only")
    return sum(items(values), start)


def _rounded(number: Any, ndigits: Any = None) -> Any:
    if ndigits is not None and abs(ndigits) > 400:
        raise TooMuchError("too many digits")
    return round(number, ndigits)


def _largest(*values: Any, **options: Any) -> Any:
    return max(items(values[0]), **options) if len(values) == 1 else max(*values)


def _smallest(*values: Any, **options: Any) -> Any:
    return min(items(values[0]), **options) if len(values) == 1 else min(*values)


def _is_close(a: Any, b: Any, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> bool:
    if not all(isinstance(value, (int, float, complex)) for value in (a, b)):
        raise TypeError("numbers are needed")
    return a == b or (math.isfinite(abs(a - b)) and abs(a - b) <= atol + rtol * abs(b))


def _all_close(a: Any, b: Any, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> bool:
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        if len(a) != len(b):
            raise ValueError("the shapes differ")
        return all(_all_close(x, y, rtol, atol) for x, y in zip(a, b, strict=True))
    return _is_close(a, b, rtol, atol)


def _approx(expected: Any, rel: float | None = None, abs: float | None = None, nan_ok: bool = False) -> Approx:
    return Approx(expected, rel, abs)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "abs": abs,
    "bool": bool,
    "chr": chr,
    "complex": complex,
    "float": float,
    "int": int,
    "isinstance": isinstance,
    "len": len,
    "ord": ord,
    "range": range,
    "repr": repr,
    "str": str,
    "type": type,
    "slice": slice,
    "round": _rounded,
    "sum": _total,
    "max": _largest,
    "min": _smallest,
    "all": lambda values: all(items(values)),
    "any": lambda values: any(items(values)),
    "bytes": lambda *values: bytes(*(items(values[0]),) if values and not isinstance(values[0], str) else values),
    "dict": lambda *values, **named: dict(*(_pairs(value) for value in values), **named),
    "enumerate": lambda values, start=0: list(enumerate(items(values), start)),
    "frozenset": lambda *values: frozenset(*map(members, values)),
    "list": lambda *values: list(*map(items, values)),
    "reversed": lambda values: items(values)[::-1],
    "set": lambda *values: set(*map(members, values)),
    "sorted": lambda values, reverse=False: sorted(items(values), reverse=reverse),
    "tuple": lambda *values: tuple(*map(items, values)),
    "zip": lambda *values: list(zip(*map(items, values), strict=False)),
}
"""The built-in functions that a test may call."""
KEYWORDS = {
    "round": {"ndigits"},
    "sorted": {"reverse"},
    "max": {"default"},
    "min": {"default"},
    "int": {"base"},
    "enumerate": {"start"},
    "sum": {"start"},
    "isclose": {"rel_tol", "abs_tol", "rtol", "atol"},
    "allclose": {"rtol", "atol"},
    "approx": {"rel", "abs"},
    "dict": None,
}
"""Keywords that a function takes; None takes any."""
TYPES = {
    kind.__name__: kind for kind in (bool, int, float, complex, str, bytes, list, tuple, set, frozenset, dict, range)
}
_MATH = (
    "pi e tau inf nan isclose fabs sqrt floor ceil trunc isnan isinf isfinite log log2 log10 exp sin cos tan degrees "
    "radians"
)
_METHODS = (
    "lower upper title capitalize swapcase strip lstrip rstrip split splitlines startswith endswith count index find "
    "isdigit isalpha isalnum isupper islower isspace keys values items get copy union intersection difference issubset "
    "issuperset is_integer bit_length"
)
MODULES: dict[str, dict[str, Any]] = {
    "math": {
        **{name: getattr(math, name) for name in _MATH.split()},
    },
    "numpy": {"isclose": _is_close, "allclose": _all_close, "pi": math.pi, "inf": math.inf, "nan": math.nan},
    "pytest": {"approx": _approx},
}
"""What a test may use of modules."""
METHODS = frozenset(_METHODS.split())
"""Methods of plain values that a test may call: none changes the value, and none makes a much larger one."""


def _pairs(value: Any) -> Any:
    return value if type(value) is dict else items(value)


def _repeat_checked(a: Any, b: Any) -> Any:
    for value, times in ((a, b), (b, a)):
        if isinstance(value, (str, bytes, bytearray, list, tuple)) and isinstance(times, int):
            if len(value) * times > MAX_ITEMS:
                raise TooMuchError("too many items")
            return value * times
    if type(a) is int and type(b) is int and a.bit_length() + b.bit_length() > _MAX_BITS:
        raise TooMuchError("too large a number")
    return a * b


def _power_checked(a: Any, b: Any) -> Any:
    if isinstance(a, int) and isinstance(b, int) and b > 0 and a.bit_length() * b > _MAX_BITS:
        raise TooMuchError("too large a number")
    return a**b


def _divide_checked(a: Any, b: Any) -> Any:
    _bounded_division(a, b)
    return a // b


def _bounded_division(a: Any, b: Any) -> None:
    if isinstance(a, int) and isinstance(b, int) and a.bit_length() > _MAX_DIVISION_BITS:
        raise TooMuchError("too large a number")


def _shift_checked(a: Any, b: Any) -> Any:
    if isinstance(b, int) and b > _MAX_BITS:
        raise TooMuchError("too large a number")
    return a << b


def _add_checked(a: Any, b: Any) -> Any:
    if hasattr(type(a), "__len__") and hasattr(type(b), "__len__") and len(a) + len(b) > MAX_ITEMS:
        raise TooMuchError("too many items")
    return a + b


def _modulo_checked(a: Any, b: Any) -> Any:
    _bounded_division(a, b)
    if isinstance(a, (str, bytes, bytearray)):
        raise TooMuchError("a format")
    return a % b


BINARY: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: _add_checked,
    ast.Sub: operator.sub,
    ast.Mult: _repeat_checked,
    ast.Pow: _power_checked,
    ast.Div: operator.truediv,
    ast.FloorDiv: _divide_checked,
    ast.Mod: _modulo_checked,
    ast.LShift: _shift_checked,
    ast.RShift: operator.rshift,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
}
UNARY: dict[type, Callable[[Any], Any]] = {
    ast.Not: operator.not_,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Invert: operator.invert,
}


def _contains(item: Any, container: Any) -> bool:
    if isinstance(container, (list, tuple)):
        return any(equal(member, item) for member in container)
    if isinstance(container, range) and type(item) not in (int, bool):
        return item in items(container)
    if not isinstance(container, (str, bytes, bytearray, set, frozenset, dict, range)):
        raise TypeError("nothing can be in it")
    return item in container


COMPARE: dict[type, Callable[[Any, Any], bool]] = {
    ast.Eq: equal,
    ast.NotEq: lambda a, b: not equal(a, b),
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
    ast.In: _contains,
    ast.NotIn: lambda item, container: not _contains(item, container),
}
