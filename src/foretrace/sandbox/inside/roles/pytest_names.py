"""What tests use of pytest, for interpreters without it: `raises`, `approx`, `fail`, `skip`, `parametrize`."""

from __future__ import annotations

import importlib
import math
import re
import types
from typing import Any

CASES = "__cases__"
"""Attribute of a parametrised function: its calls' keyword arguments."""


def make_module() -> types.ModuleType:
    """A module that serves as `pytest`."""
    module = types.ModuleType("pytest")
    vars(module).update(raises=raises, approx=approx, fail=fail, skip=fail, xfail=fail, exit=fail)
    vars(module).update(mark=Marks(), param=Param, main=lambda *_, **__: 0)  # the tests are run afterwards
    vars(module).update(importorskip=lambda name, *_, **__: importlib.import_module(name))
    return module


def fail(reason: str = "", **_: Any) -> None:
    """Fail the test."""
    raise AssertionError(reason)


class Param:
    """Values of one case, with what else is said of it."""

    def __init__(self, *values: Any, marks: Any = (), **_: Any) -> None:
        self.values = values
        for mark in marks if isinstance(marks, (list, tuple)) else [marks]:
            mark(self)


class Marks:
    """`pytest.mark`: all but those that give a test its cases, or leave it out, leave it as it is."""

    def __getattr__(self, name: str) -> Any:
        if name in _MARKS:
            return _MARKS[name]

        def mark(*args: Any, **named: Any) -> Any:
            alone = len(args) == 1 and not named and isinstance(args[0], (types.FunctionType, type))
            return args[0] if alone else lambda function: function

        return mark


def leave_out(condition: Any = True, *_: Any, **__: Any) -> Any:
    """Give a test no case where the condition holds; also as a decorator without one."""
    if callable(condition) or isinstance(condition, Param):
        setattr(condition, CASES, [])
        return condition
    return leave_out if condition is True else lambda function: function


def parametrize(argnames: Any, argvalues: Any, *_: Any, **__: Any) -> Any:
    """Call the function once for each of the values."""
    texts = argnames.split(",") if isinstance(argnames, str) else argnames
    listed = [name for text in texts if (name := text.strip())]
    values, is_one = list(argvalues), isinstance(argnames, str) and len(listed) == 1

    def decorate(function: Any) -> Any:
        asked = [v for v in values if getattr(v, CASES, True) or not isinstance(v, Param)]
        given = [v.values if isinstance(v, Param) else (v,) if is_one else v for v in asked]
        rows = [dict(zip(listed, row, strict=True)) for row in given]
        setattr(function, CASES, [{**case, **row} for row in rows for case in getattr(function, CASES, [{}])])
        return function

    return decorate


_MARKS: dict[str, Any] = {
    "parametrize": parametrize,
    "skipif": leave_out,
    "xfail": leave_out,
    "skip": lambda *args, **_: leave_out(*filter(callable, args)),
}


class ExceptionInfo:
    """What was raised in a block of `raises`."""

    value: Any = None
    type: Any = None

    @property
    def typename(self) -> str:
        """Name of the exception's class."""
        return str(self.type.__name__)

    def match(self, pattern: str) -> bool:
        """Whether the exception's text matches; an AssertionError where it does not."""
        assert re.search(pattern, str(self.value)), f"{pattern!r} does not match {str(self.value)!r}"
        return True


class raises:  # noqa: N801 - pytest's name
    """A block, or a call, that must raise one of some exceptions."""

    _expected: Any
    _match: str | None
    _info: ExceptionInfo

    def __new__(cls, expected: Any, *call: Any, match: str | None = None, **named: Any) -> Any:
        """The block; of a call, what it raised."""
        made = super().__new__(cls)
        made._expected, made._match, made._info = expected, match, ExceptionInfo()
        if not call:
            return made
        with made as info:
            call[0](*call[1:], **named)
        return info

    def __enter__(self) -> ExceptionInfo:
        return self._info

    def __exit__(self, kind: Any, error: Any, trace: Any) -> bool:
        if error is None:
            raise AssertionError(f"DID NOT RAISE {self._expected!r}")
        if not isinstance(error, self._expected):
            return False
        self._info.value, self._info.type = error, kind
        if self._match is not None:
            self._info.match(self._match)
        return True


class approx:  # noqa: N801 - pytest's name
    """A number, or numbers in a list, tuple or dict, that are equal within a tolerance."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, expected: Any, rel: float | None = None, abs: float | None = None, nan_ok: bool = False) -> None:
        self._expected, self._nan_ok = expected, nan_ok
        self._relative = (1e-6 if abs is None else 0.0) if rel is None else rel
        self._absolute = 1e-12 if abs is None else abs

    def __eq__(self, actual: object) -> bool:
        return self._is_near(actual, self._expected)

    def _is_near(self, actual: Any, expected: Any) -> bool:
        if any(type(value).__module__ == "numpy" for value in (actual, expected)):
            actual, expected = (getattr(value, "tolist", lambda v=value: v)() for value in (actual, expected))
        if isinstance(expected, dict):
            same = isinstance(actual, dict) and actual.keys() == expected.keys()
            return same and all(self._is_near(actual[key], value) for key, value in expected.items())
        if isinstance(expected, (list, tuple)):
            same = isinstance(actual, (list, tuple)) and len(actual) == len(expected)
            return same and all(map(self._is_near, actual, expected))
        try:
            if actual == expected:
                return True
            if math.isnan(actual) and math.isnan(expected):
                return self._nan_ok
            limit = max(self._absolute, self._relative * abs(expected))
            return math.isfinite(abs(expected)) and bool(abs(actual - expected) <= limit)
        except (TypeError, OverflowError):
            return False

    def __repr__(self) -> str:
        return f"approx({self._expected!r})"
