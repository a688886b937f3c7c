"""A replacement for pytest, which a jail does not have: `raises`, `approx`, `parametrize`, and fixtures."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import io
import math
import os
import re
import sys
import types
from collections.abc import Callable, Generator
from typing import Any, NamedTuple

CASES = "__cases__"
"""Attribute of a parametrized function: the keyword arguments of its calls."""
_FIXTURE = "__fixture__"
_ABSENT = object()


def make_module() -> types.ModuleType:
    module = types.ModuleType("pytest")
    vars(module).update(
        **dict.fromkeys(("fail", "skip", "xfail", "exit"), fail),
        raises=raises,
        approx=approx,
        fixture=fixture,
        MonkeyPatch=MonkeyPatch,
        mark=_Marks(),
        param=_Param,
        main=lambda *_, **__: 0,  # the tests are run afterwards
        importorskip=lambda name, *_, **__: importlib.import_module(name),
    )
    return module


def fail(reason: str = "", **_: Any) -> None:
    raise AssertionError(reason)


class _Param:
    """Values of one case, with its marks."""

    def __init__(self, *values: Any, marks: Any = (), **_: Any) -> None:
        self.values = values
        for mark in marks if isinstance(marks, (list, tuple)) else [marks]:
            mark(self)


class _Marks:
    """`pytest.mark`: marks have no effect, except those for parameters and for skipping."""

    def __getattr__(self, name: str) -> Any:
        def mark(*args: Any, **named: Any) -> Any:
            alone = len(args) == 1 and not named and isinstance(args[0], (types.FunctionType, type))
            return args[0] if alone else lambda function: function

        return _MARKS.get(name, mark)


def leave_out(condition: Any = True, *_: Any, **__: Any) -> Any:
    """Give a test no cases if the condition holds; also usable as a decorator without one."""
    if callable(condition) or isinstance(condition, _Param):
        setattr(condition, CASES, [])
        return condition
    return leave_out if condition is True else lambda function: function


def parametrize(argnames: Any, argvalues: Any, *_: Any, **__: Any) -> Any:
    """Call the function once for each value."""
    texts = argnames.split(",") if isinstance(argnames, str) else argnames
    listed = [name for text in texts if (name := text.strip())]
    values, is_one = list(argvalues), isinstance(argnames, str) and len(listed) == 1

    def decorate(function: Any) -> Any:
        asked = [v for v in values if getattr(v, CASES, True) or not isinstance(v, _Param)]
        given = [v.values if isinstance(v, _Param) else (v,) if is_one else v for v in asked]
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


class _Raises:
    """A block that must raise one of the given exceptions; afterwards has what was raised."""

    value: Any = None
    type: Any = None
    typename = property(lambda self: str(self.type.__name__))

    def __init__(self, expected: Any, match: str | None) -> None:
        self._expected, self._match = expected, match

    def match(self, pattern: str) -> bool:
        """True if the exception's text matches; raises AssertionError if not."""
        assert re.search(pattern, str(self.value)), f"{pattern!r} does not match {str(self.value)!r}"
        return True

    def __enter__(self) -> _Raises:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> bool:
        if error is None:
            raise AssertionError(f"DID NOT RAISE {self._expected!r}")
        if not isinstance(error, self._expected):
            return False
        self.value, self.type = error, kind
        return self._match is None or self.match(self._match)


def raises(expected: Any, *call: Any, match: str | None = None, **named: Any) -> _Raises:
    """A block or a call that must raise one of the given exceptions."""
    block = _Raises(expected, match)
    if call:
        with block:
            call[0](*call[1:], **named)
    return block


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


class MonkeyPatch:
    """Replaces attributes, items and variables until the test ends."""

    def __init__(self) -> None:
        self._undo = contextlib.ExitStack()
        self.undo = self._undo.close

    def setattr(self, target: Any, name: Any, value: Any = _ABSENT, raising: bool = True) -> None:
        if value is _ABSENT:
            place, _, attribute = target.rpartition(".")
            target, name, value = importlib.import_module(place), attribute, name
        before = getattr(target, name) if raising else getattr(target, name, _ABSENT)
        self._undo.callback(lambda: delattr(target, name) if before is _ABSENT else setattr(target, name, before))
        setattr(target, name, value)

    def delattr(self, target: Any, name: str, raising: bool = True) -> None:
        if raising or hasattr(target, name):
            self.setattr(target, name, None)
            delattr(target, name)

    def setitem(self, mapping: Any, key: Any, value: Any) -> None:
        before = mapping.get(key, _ABSENT)
        self._undo.callback(lambda: mapping.pop(key, None) if before is _ABSENT else mapping.update({key: before}))
        mapping[key] = value

    def delitem(self, mapping: Any, key: Any, raising: bool = True) -> None:
        if raising or key in mapping:
            self.setitem(mapping, key, mapping[key])
            del mapping[key]

    def setenv(self, name: str, value: str) -> None:
        self.setitem(os.environ, name, str(value))

    def delenv(self, name: str, raising: bool = True) -> None:
        self.delitem(os.environ, name, raising)

    def chdir(self, path: Any) -> None:
        self._undo.callback(os.chdir, os.getcwd())
        os.chdir(path)

    @staticmethod
    @contextlib.contextmanager
    def context() -> Generator[MonkeyPatch]:
        made = MonkeyPatch()
        with made._undo:
            yield made


class _Printed(NamedTuple):
    out: str
    err: str


@contextlib.contextmanager
def _capture() -> Generator[Any]:
    """`capsys`: captures what is printed while a test runs."""
    streams = io.StringIO(), io.StringIO()

    def readouterr() -> _Printed:
        texts = [stream.getvalue() for stream in streams]
        for stream in streams:
            stream.seek(0)
            stream.truncate()
        return _Printed(*texts)

    with contextlib.redirect_stdout(streams[0]), contextlib.redirect_stderr(streams[1]):
        yield types.SimpleNamespace(readouterr=readouterr)


@contextlib.contextmanager
def _make_folder() -> Generator[Any]:
    import pathlib
    import tempfile  # imported late: it imports random, which registers a fork hook

    yield pathlib.Path(tempfile.mkdtemp())


BUILTIN_FIXTURES: dict[str, Callable[[], Any]] = {
    "tmp_path": _make_folder,
    "monkeypatch": MonkeyPatch.context,
    "capsys": _capture,
    "capfd": _capture,
}
"""The context manager that makes each fixture, by name."""


class _Options(NamedTuple):
    kept: bool
    """Whether one value is shared by all tests."""
    autouse: bool


def fixture(function: Any = None, *, scope: str = "function", autouse: bool = False) -> Any:
    """Mark a function as a fixture: it makes the value for test parameters of its name."""

    def decorate(function: Any) -> Any:
        setattr(function, _FIXTURE, _Options(scope != "function", autouse))
        return function

    return decorate if function is None else decorate(function)


class FixtureRunner:
    """Runs test functions with the fixtures among the `names` that the test's code defines."""

    def __init__(self, names: dict[str, Any], call: Callable[[Any], None]) -> None:
        self._names, self._call = names, call
        self._fixtures = _find_fixtures(names)
        self._kept: dict[str, Any] = {}
        self._until_end = contextlib.ExitStack()
        self.close = self._until_end.close
        """Tears down the fixtures shared by all tests."""

    def run(self, function: Any, owner: Any = None) -> None:
        """Run a test function, or a method of a test class, for each of its cases."""
        if not callable(function) or (owner is not None and type(function) not in (types.FunctionType, staticmethod)):
            raise AssertionError("it was not run")
        fixtures = {**self._fixtures, **_find_fixtures(vars(owner) if owner else {})}
        for case in [{**own, **more} for own in getattr(owner, CASES, [{}]) for more in getattr(function, CASES, [{}])]:
            self._run_case(function, owner, case, fixtures)

    def _run_case(self, function: Any, owner: Any, case: dict[str, Any], fixtures: dict[str, Any]) -> None:
        instance = owner() if owner is not None else None
        kind, find = ("function", self._names.get)
        if owner is not None:
            kind, find = ("method", lambda name: getattr(instance, name, None))
        made: dict[str, Any] = {}
        with contextlib.ExitStack() as stack:
            _call_with_nothing(find(f"setup_{kind}"))
            stack.callback(_call_with_nothing, find(f"teardown_{kind}"))

            def get(name: str) -> Any:
                keeps = name in fixtures and getattr(fixtures[name], _FIXTURE).kept
                known, until = (self._kept, self._until_end) if keeps else (made, stack)
                if name not in known:
                    known[name] = _make(fixtures.get(name), name, instance, get, until)
                return known[name]

            for name, maker in fixtures.items():
                if getattr(maker, _FIXTURE).autouse:
                    get(name)
            asked = {name: case[name] if name in case else get(name) for name in _list_asked(function)}
            bound = function if owner is None else function.__get__(instance, owner)
            self._call(lambda: bound(**asked))


def _make(function: Any, name: str, instance: Any, get: Any, until: contextlib.ExitStack) -> Any:
    if function is None:
        if name not in BUILTIN_FIXTURES:
            raise LookupError(f"a test asks for {name!r}, which is not a known fixture")
        return until.enter_context(BUILTIN_FIXTURES[name]())
    parameters = inspect.signature(function).parameters
    bound = types.MethodType(function, instance) if "self" in parameters else function
    named = {key: get(key) for key in parameters if key != "self"}
    if inspect.isgeneratorfunction(function):
        return until.enter_context(contextlib.contextmanager(bound)(**named))
    return bound(**named)


def _find_fixtures(names: Any) -> dict[str, Any]:
    # If the code itself sets this attribute, it has another type.
    return {key: value for key, value in names.items() if type(getattr(value, _FIXTURE, None)) is _Options}


def _list_asked(function: Any) -> list[str]:
    """Names of the parameters that a test needs, except the first ones, which `mock.patch` provides."""
    parameters = inspect.signature(function).parameters.values()
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    asked = [p.name for p in parameters if p.name != "self" and p.default is p.empty and p.kind not in variadic]
    mock = sys.modules.get("unittest.mock")
    patches = [patch for patch in getattr(function, "patchings", ()) if patch.attribute_name is None]
    return asked[sum(patch.new is mock.DEFAULT for patch in patches) if mock else 0 :]


def _call_with_nothing(function: Any) -> None:
    """Call a setup or teardown function if it exists, with None if it takes an argument."""
    if function is not None:
        function(*[None] * len(inspect.signature(function).parameters))
