"""Records the values in asserts while tests run, so that the parent can judge them.

The code of tests calls the recorder with the leaves of each assert (see `judging.rewrite`). The records of check `n`:

    [n, "v", leaves, extended]   plain values of the leaves, from which the parent evaluates the assert; `extended`: a
                                 class of one of them extends its plain type
    [n, "n", holds, actual, expected]  the assert as Python evaluates it, if tests and answer are two processes
    [n, "e", error]              evaluating the leaves raised an exception
    [n, "f"]                     for result `n`, a place was reached that must not be reached

and, if the answer's objects are in this process and one of them decides whether the assert holds:

    [n, "l", answers]            its answer for each row of a line-up of constants; null without a line-up
    [n, "b", holds, others]      its answer, and its answers for other operands
"""

from __future__ import annotations

import base64
import contextlib
import enum
import marshal
import math
import operator
import sys
from importlib.util import MAGIC_NUMBER
from typing import Any

from foretrace.sandbox.inside import pytest_stand_in
from foretrace.sandbox.inside.values import Encoder, NotEncodableError, decode, show_value
from foretrace.sandbox.inside.wire import ANSWER_MODULE, describe_error

_MAX_RECORDS = 50_000
_DECOYS = 6
BYTECODE = MAGIC_NUMBER.hex()
"""Identifies the bytecode version of this Python."""


def same_items(left: Any, right: Any) -> bool:
    """Whether two collections have the same items, in any order."""
    rest = list(right)
    for item in left:
        if item not in rest:
            return False
        rest.remove(item)
    return not rest


NAMES: dict[str, Any] = {
    **{name: getattr(operator, name) for name in ("add", "sub", "mul", "truediv", "floordiv", "mod")},
    "abs": abs,
    "round": round,
    "isclose": math.isclose,
    "approx": pytest_stand_in.approx,
    "same_items": same_items,
}
"""The functions that skeletons call."""


def load_code(part: dict[str, Any]) -> Any:
    """The code of a part of the request, compiled if its bytecode is of another version."""
    if "loaded" in part:
        return part["loaded"]
    if part["bytecode"] == BYTECODE:
        return marshal.loads(base64.b64decode(part["code"]))
    return compile(part["source"], "tests", "exec", dont_inherit=True, optimize=0)


class _PlainEncoder(Encoder):
    """Encodes plain values; objects of classes that extend a plain type are encoded as that type."""

    extended = False

    def other_value(self, value: Any, kind: type, depth: int) -> Any:
        self.extended = True
        if kind.__base__ is tuple and hasattr(kind, "_fields"):
            return self.walk(tuple(tuple.__iter__(value)), depth)
        base = next((base for base in type.mro(kind) if base in _EXTENDED), None)
        if base is not None and (kind.__module__ == ANSWER_MODULE or issubclass(kind, enum.Enum)):
            return self.walk(_EXTENDED[base](value), depth + 1)
        known = self.library_value(value)
        if known is None:
            raise NotEncodableError("an object")
        self.extended = kind.__module__ == "numpy"
        return known


_EXTENDED: dict[type, Any] = {
    int: int.__pos__,
    float: float.__pos__,
    str: str.__str__,
    bytes: lambda v: bytes(memoryview(v)),
    **{kind: lambda v, kind=kind: kind(kind.__iter__(v)) for kind in (tuple, list, set, frozenset)},
    dict: lambda v: dict(dict.items(v)),
}
"""Plain types that a class may extend, and a function that reads the value without calling the class's methods."""


class Recorder:
    """Called by rewritten tests as `__check__`.

    Args:
        request: `skeletons` (code of a tuple of pairs of functions), `facts` (for each check: whether constants are
            hidden, whether it tests membership, whether it is `<` or `>` of two leaves) and `constants` (those that may
            be known here); in a second run also `line_ups`: rows of constants for the checks to repeat.
        together: whether the answer's objects are in this process.
    """

    def __init__(self, request: dict[str, Any], *, together: bool) -> None:
        self._together = together
        self._request = request
        self._facts = request["facts"]
        self._line_ups = {n: [[decode(c) for c in row] for row in rows] for n, rows in request.get("line_ups", ())}
        self._skeletons: Any = None
        self._limit = self._left = request["reply_kb"] * 1024
        self._records: dict[bytes, list[Any]] = {}
        self.strangers: list[type] = []
        """Classes of leaves that are not plain."""

    def take(self) -> list[list[Any]]:
        """The records since the last call, without repetitions."""
        records, self._records = list(self._records.values()), {}
        return records

    def _note(self, *record: Any) -> bool:
        """Keep a record; false if it is too large."""
        key = marshal.dumps(record)
        if key not in self._records:
            if len(key) > self._left:
                return False
            if len(self._records) >= _MAX_RECORDS:
                raise OverflowError("the asserts compare more than can be passed on")
            self._left -= len(key)
            self._records[key] = list(record)
        return True

    def __call__(self, n: int, *leaves: Any, variants: tuple[int, tuple[Any, ...]] = (0, ())) -> None:
        """Record the leaves of an assert. `variants`: number of a leaf, and functions that evaluate it with other
        constants."""
        if not self._together:
            holds, sides = self._skeleton(n)
            passed = bool(holds(*leaves))
            self._note(n, "n", passed, *map(show_value, sides(*leaves)))
            return
        hides, members, strict = self._facts[n]
        if members:
            leaves = tuple(map(_list_iterator, leaves))
        encoded = [self._encode(leaf) for leaf in leaves]
        plain = [one is not None for one in encoded]
        if not all(plain) and len(self.strangers) < _MAX_RECORDS:
            self.strangers += [type(leaf) for leaf, known in zip(leaves, plain, strict=True) if not known]
        is_plain = all(plain) and n not in self._line_ups
        if is_plain and self._note(n, "v", [one[0] for one in encoded], any(one[1] for one in encoded)):
            return
        if hides:
            rows = self._line_ups.get(n)
            self._note(n, "l", rows and [_try(self._skeleton(n)[0], *leaves, *row) for row in rows])
        else:
            self._ask_objects(n, leaves, encoded, strict, variants)

    def _ask_objects(self, n: int, leaves: tuple[Any, ...], encoded: list[Any], strict: bool, variants: Any) -> None:
        from random import Random  # imported late, since it registers a fork hook (see `server_process`)

        holds, random = self._skeleton(n)[0], Random()
        said = _try(holds, *leaves)
        if len(leaves) == 1:  # a truth value that changes is not accepted
            self._note(n, "b", said if said == _try(holds, *leaves) == _try(holds, *leaves) else None, [])
            return

        def ask(place: int, other: Any) -> bool | None:
            return _try(holds, *leaves[:place], other, *leaves[place + 1 :])

        others: list[Any] = []
        for place in range(len(leaves)):
            for _ in range(_DECOYS if encoded[place] is not None else 0):
                try:
                    others.append(ask(place, vary(decode(encoded[place][0]), random)))
                except (NoDecoyError, ValueError):
                    break
        is_sure = bool(others) or all(type(leaf).__module__ != ANSWER_MODULE for leaf in leaves)
        if strict:
            others += [_try(holds, leaves[1], leaves[0]), _try(holds, leaves[0], leaves[0])]
        for variant in () if is_sure else variants[1]:  # last, since this may change the objects
            with contextlib.suppress(Exception):
                others.insert(0, ask(variants[0], variant()))
        self._note(n, "b", said, others)

    def raised(self, n: int) -> None:
        """Record that evaluating the leaves raised the exception that is being handled."""
        error = sys.exc_info()[1]
        assert error is not None
        if not isinstance(error, (Exception, SystemExit, KeyboardInterrupt, GeneratorExit)):
            raise error  # the sandbox's own, such as `NotPlainError`
        self._note(n, "e", describe_error(error))

    def fail(self, result: int) -> None:
        self._note(result, "f")

    def mock(self, target: Any, name: str, *args: Any, **named: Any) -> None:
        """Call an assert method of a mock, or fail if the answer has replaced the mock."""
        mock = sys.modules.get("unittest.mock")
        if mock is not None and isinstance(target, mock.NonCallableMock):
            getattr(mock.NonCallableMock, name)(target, *args, **named)
        elif mock is not None and type(target).__module__ in (ANSWER_MODULE, "types"):
            raise AssertionError("the code has put something in the place of a mock")
        else:
            getattr(target, name)(*args, **named)

    def _skeleton(self, n: int) -> Any:
        """Two functions of the leaves: whether the assert holds, and what it compares."""
        if self._skeletons is None:
            space = {**NAMES}
            exec(load_code(self._request["skeletons"]), space)
            self._skeletons = space["skeletons"]
        functions, values = self._skeletons[n], [decode(constant) for constant in self._request["constants"][n]]
        if not values:
            return functions
        return [lambda *leaves, function=function: function(*leaves, *values) for function in functions]

    def _encode(self, value: Any) -> Any:
        encoder = _PlainEncoder(self._limit)
        try:
            return encoder.walk(value, 0), encoder.extended
        except Exception:
            return None


def _list_iterator(value: Any) -> Any:
    # Membership in a builtin iterator is tested more than once.
    is_iterator = hasattr(type(value), "__next__") and type(value).__module__ in ("builtins", "itertools")
    return list(value) if is_iterator else value


def _try(function: Any, *args: Any) -> bool | None:
    try:
        return bool(function(*args))
    except Exception:
        return None


# Plain values that are similar to a given one, but not equal to it.

_DIGITS, _LETTERS = "0123456789", "abcdefghijklmnopqrstuvwxyz"


class NoDecoyError(Exception):
    """No similar value is known."""


def vary(value: Any, random: Any) -> Any:
    """Another value of the same type, near the given one; raises NoDecoyError."""
    kind = type(value)
    if kind is bool:
        return not value
    if value is None:
        return random.choice([0, "", "none", False, []])
    if kind is float:
        return value + random.choice([-1, 1]) * random.choice([0.75, 1.0, 2.5, 10.0, 100.0]) * max(1.0, abs(value))
    if kind in (int, complex):
        return value + random.choice([-1, 1]) * random.choice([1, 2, 3, 7, 10, 100])
    if kind is str:
        if not value:
            return str(random.choice("abcxyz"))
        at = random.randrange(len(value))
        other = random.choice([c for c in (_DIGITS if value[at].isdigit() else _LETTERS) if c != value[at].lower()])
        return value[:at] + other + value[at + (random.random() < 0.7) :]
    if kind in (bytes, bytearray):
        return value + bytes([random.randrange(97, 122)])
    if kind in (list, tuple):
        items = list(value)
        if items and random.random() < 0.8:
            at = random.randrange(len(items))
            return kind([*items[:at], vary(items[at], random), *items[at + 1 :]])
        return kind([*items, vary(items[-1], random) if items else random.randrange(100)])
    if kind in (set, frozenset):
        items = list(value)
        for _ in range(20):
            with contextlib.suppress(TypeError):  # a list that stands for None
                other = vary(random.choice(items), random) if items else random.randrange(1000)
                if other not in value:
                    return kind([*items, other])
        return kind(items[1:])  # there may be no other, as for {True, False}
    if kind is dict:
        key = random.choice(list(value)) if value else random.randrange(100)
        return {**value, key: vary(value[key], random) if value else 1}
    if kind is range:
        return range(value.start, value.stop + value.step * 2, value.step)
    if kind.__name__ in ("Decimal", "Fraction"):
        return value + random.choice([1, 2, -3])
    if kind.__name__ in ("date", "datetime", "timedelta"):
        from datetime import timedelta

        return value + timedelta(days=random.choice([1, -1, 40]))
    raise NoDecoyError
