"""Fixtures, for interpreters without pytest: those that tests define, and the ones that nearly all tests use."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import io
import itertools
import os
import types
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from foretrace.sandbox.inside.roles.pytest_names import CASES

_FIXTURE = "__fixture__"
_ABSENT = object()


class _Options(NamedTuple):
    name: str | None
    params: list[Any]
    kept: bool
    """Whether one is made for all tests."""
    autouse: bool


def fixture(
    function: Any = None,
    *,
    scope: str = "function",
    params: Any = None,
    autouse: bool = False,
    name: Any = None,
    **_: Any,
) -> Any:
    """Mark a function as one that makes what tests ask for by its name."""

    def decorate(function: Any) -> Any:
        given = [getattr(param, "values", (param,))[0] for param in params or ()]
        setattr(function, _FIXTURE, _Options(name, given, scope != "function", autouse))
        return function

    return decorate if function is None else decorate(function)


class MonkeyPatch:
    """Replaces things until the test is over."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], Any]] = []

    def setattr(self, target: Any, name: Any, value: Any = _ABSENT, raising: bool = True) -> None:
        """Set an attribute; of a module, it may be named with that in one text."""
        if value is _ABSENT:
            place, _, attribute = target.rpartition(".")
            target, name, value = importlib.import_module(place), attribute, name
        before = getattr(target, name) if raising else getattr(target, name, _ABSENT)
        self._undo.append(lambda: delattr(target, name) if before is _ABSENT else setattr(target, name, before))
        setattr(target, name, value)

    def delattr(self, target: Any, name: str, raising: bool = True) -> None:
        """Delete an attribute."""
        if raising or hasattr(target, name):
            before = getattr(target, name)
            self._undo.append(lambda: setattr(target, name, before))
            delattr(target, name)

    def setitem(self, mapping: Any, key: Any, value: Any) -> None:
        """Set an item."""
        before = mapping.get(key, _ABSENT)
        self._undo.append(lambda: mapping.pop(key, None) if before is _ABSENT else mapping.update({key: before}))
        mapping[key] = value

    def delitem(self, mapping: Any, key: Any, raising: bool = True) -> None:
        """Delete an item."""
        if raising or key in mapping:
            self.setitem(mapping, key, None)
            del mapping[key]

    def setenv(self, name: str, value: str) -> None:
        """Set an environment variable."""
        self.setitem(os.environ, name, str(value))

    def delenv(self, name: str, raising: bool = True) -> None:
        """Delete an environment variable."""
        self.delitem(os.environ, name, raising)

    def chdir(self, path: Any) -> None:
        """Change the working folder."""
        before = Path.cwd()
        self._undo.append(lambda: os.chdir(before))
        os.chdir(path)

    @staticmethod
    def context() -> Any:
        """One whose replacements end with a block."""
        return _patch()

    def undo(self) -> None:
        """Put everything back."""
        while self._undo:
            self._undo.pop()()


class Captured(NamedTuple):
    """What was printed."""

    out: str
    err: str


class _Capture:
    def __init__(self) -> None:
        self._out, self._err = io.StringIO(), io.StringIO()

    def readouterr(self) -> Captured:
        """What was printed since the last time."""
        found = Captured(self._out.getvalue(), self._err.getvalue())
        for stream in (self._out, self._err):
            stream.seek(0)
            stream.truncate()
        return found

    @contextlib.contextmanager
    def capturing(self) -> Generator[_Capture]:
        """Take what is printed."""
        with contextlib.redirect_stdout(self._out), contextlib.redirect_stderr(self._err):
            yield self


@contextlib.contextmanager
def _make_folder() -> Generator[Path]:
    import tempfile

    yield Path(tempfile.mkdtemp())


@contextlib.contextmanager
def _patch() -> Generator[MonkeyPatch]:
    made = MonkeyPatch()
    try:
        yield made
    finally:
        made.undo()


_BUILTIN: dict[str, Callable[[], Any]] = {
    "tmp_path": _make_folder,
    "monkeypatch": _patch,
    "capsys": lambda: _Capture().capturing(),
    "capfd": lambda: _Capture().capturing(),
}


class FixtureRunner:
    """Runs test functions with what they ask for.

    Args:
        names: what the test's code defines.
        call: calls a test.
    """

    def __init__(self, names: dict[str, Any], call: Callable[[Any], None]) -> None:
        self.names = names
        self._fixtures = dict(_find_fixtures(names))
        self._call = call
        self.kept: dict[str, Any] = {}
        """What was made for all tests, by name."""
        self.until_end = contextlib.ExitStack()

    def close(self) -> None:
        """End what was made for all tests."""
        self.until_end.close()

    def can_run(self, function: Any) -> bool:
        """Whether all is known that a function asks for."""
        given = {name for case in getattr(function, CASES, ()) for name in case}
        return all(name in given or name in self._fixtures or name in _BUILTIN for name in _list_asked(function))

    def run(self, function: Any, owner: Any = None) -> None:
        """Run a test, or a method of a class of tests, for each of its cases and of the parameters of its fixtures."""
        fixtures = {**self._fixtures, **dict(_find_fixtures(vars(owner) if owner else {}))}
        every = [{**own, **more} for own in getattr(owner, CASES, [{}]) for more in getattr(function, CASES, [{}])]
        for case in every:
            # Those with parameters have their turns in the order in which they are asked for.
            needed = _find_needed([*_list_asked(function), *_find_autouse(fixtures)], fixtures)
            several = [name for name in needed if name not in case and getattr(fixtures[name], _FIXTURE).params]
            for chosen in itertools.product(*(getattr(fixtures[name], _FIXTURE).params for name in several)):
                _Run(self, fixtures, dict(zip(several, chosen, strict=True))).run(function, case, owner)

    def finish(self, test: Any) -> None:
        """Call a test that has all that it asks for."""
        self._call(test)


class _Run:
    """One run of one test."""

    def __init__(self, runner: FixtureRunner, fixtures: dict[str, Any], chosen: dict[str, Any]) -> None:
        self._runner, self._fixtures, self._chosen = runner, fixtures, chosen
        self._made: dict[str, Any] = {}
        self._case: Any = None

    def run(self, function: Any, given: dict[str, Any], owner: Any) -> None:
        """Run it."""
        with contextlib.ExitStack() as stack:
            if owner is not None:
                self._case = owner()
                _call_with_nothing(getattr(self._case, "setup_method", None))
                stack.callback(_call_with_nothing, getattr(self._case, "teardown_method", None))
                function = function.__get__(self._case, owner)
            else:
                _call_with_nothing(self._runner.names.get("setup_function"))
                stack.callback(_call_with_nothing, self._runner.names.get("teardown_function"))
            for name in _find_autouse(self._fixtures):
                self._get(name, stack)
            asked = {name: given[name] if name in given else self._get(name, stack) for name in _list_asked(function)}
            self._runner.finish(lambda: function(**asked))

    def _get(self, name: str, stack: contextlib.ExitStack) -> Any:
        made = self._runner.kept if name in self._runner.kept else self._made
        if name not in made:
            if name not in self._fixtures:
                if name not in _BUILTIN:
                    raise LookupError(f"a test asks for {name!r}, which is no fixture that is known here")
                made[name] = stack.enter_context(_BUILTIN[name]())
                return made[name]
            function = self._fixtures[name]
            options = getattr(function, _FIXTURE)
            if options.kept and name not in self._chosen:
                made, stack = self._runner.kept, self._runner.until_end
            made[name] = self._make(name, function, stack)
        return made[name]

    def _make(self, name: str, function: Any, stack: contextlib.ExitStack) -> Any:
        asked = [key for key in inspect.signature(function).parameters if key != "self"]
        request = types.SimpleNamespace(param=self._chosen.get(name), addfinalizer=stack.callback)
        named = {key: request if key == "request" else self._get(key, stack) for key in asked}
        bound = types.MethodType(function, self._case) if "self" in inspect.signature(function).parameters else function
        if inspect.isgeneratorfunction(function):
            return stack.enter_context(contextlib.contextmanager(bound)(**named))
        return bound(**named)


def _find_fixtures(names: Any) -> Iterator[tuple[str, Any]]:
    for key, value in names.items():
        if type(getattr(value, _FIXTURE, None)) is _Options:  # what the code says of its functions is of another type
            yield getattr(value, _FIXTURE).name or key, value


def _find_autouse(fixtures: dict[str, Any]) -> list[str]:
    return [name for name, function in fixtures.items() if getattr(function, _FIXTURE).autouse]


def _find_needed(names: list[str], fixtures: dict[str, Any]) -> list[str]:
    """The fixtures that are asked for, also by other fixtures."""
    needed: list[str] = []
    for name in names:
        if name in fixtures and name not in needed:
            needed.append(name)
            names.extend(inspect.signature(fixtures[name]).parameters)
    return needed


def _list_asked(function: Any) -> list[str]:
    """Names of the parameters that must be given to a test."""
    parameters = inspect.signature(function).parameters.values()
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [p.name for p in parameters if p.name != "self" and p.default is p.empty and p.kind not in variadic]


def _call_with_nothing(function: Any) -> None:
    """Call what sets up for a test, if it is there, which may take the test's function or method."""
    if function is not None:
        function(*[None] * len(inspect.signature(function).parameters))
