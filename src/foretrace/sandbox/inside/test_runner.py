"""Runs rewritten test code: statements, `check`, test functions, and test classes of unittest and pytest."""

from __future__ import annotations

import builtins
import contextlib
import importlib
import importlib.util
import sys
import types
from collections.abc import Callable
from typing import Any

from foretrace.sandbox.inside import pytest_stand_in
from foretrace.sandbox.inside.calls import AnswerGoneError, BrokenError, Caller, NotPlainError
from foretrace.sandbox.inside.pytest_stand_in import FixtureRunner
from foretrace.sandbox.inside.recorder import Recorder, load_code
from foretrace.sandbox.inside.wire import describe_error


def prepare(request: dict[str, Any]) -> None:
    """Unpack the tests' code, and import what it imports. This must be done before any code of the answer is loaded: it
    could replace what unpacks the code, `marshal` for example."""
    for part in (request["helpers"], request["setup"], request["skeletons"], *request["tests"]):
        with contextlib.suppress(SyntaxError, ValueError, RecursionError, MemoryError):  # raised when it is run
            part["loaded"] = load_code(part)
    for name in request["modules"]:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    if request["uses_pytest"] and importlib.util.find_spec("pytest") is None:
        sys.modules["pytest"] = pytest_stand_in.make_module()


def make_names(request: dict[str, Any], answer: dict[str, Any]) -> dict[str, Any]:
    """The names that tests can use besides their own: those of the setup, the prompt's helpers and the answer."""
    entry_point = request["entry_point"]
    names: dict[str, Any] = {}
    for name, part in (("prompt", request["helpers"]), ("setup", request["setup"])):
        module = types.ModuleType(name)
        space = module.__dict__
        if part["source"]:
            sys.modules[name] = module
            space.update({key: answer[key] for key in part["lacks"] if key in answer})
            exec(load_code(part), space)
        names.update({key: value for key, value in space.items() if not key.startswith("__")})
    for name in request["names"]:
        if name in answer and (name == entry_point or name not in names):
            names[name] = answer[name]
    if entry_point in answer:
        names[entry_point] = names["candidate"] = answer[entry_point]
    return names


def run_tests(
    request: dict[str, Any], names: dict[str, Any], recorder: Any, report: Callable[[int, list[dict[str, Any]]], None]
) -> None:
    """Run the tests of a request one after another, and report for each its number and what was raised. Such an error
    has the name of the `test` function or class that raised it, or that was not run."""
    earlier: dict[str, Any] = {}
    entry_point = request["entry_point"]
    for number, test in enumerate(request["tests"]):
        failures, defined = list[dict[str, Any]](), dict[str, Any]()
        try:
            _run_test(test, f"test_{number}.py", {**names, **earlier, "__check__": recorder}, defined, failures)
        except BaseException as error:
            failures.append(describe_error(error))
            if not isinstance(error, _OF_TESTS):
                report(number, failures)
                raise  # the sandbox's own, such as `NotPlainError`: stop here
        report(number, failures[:_MAX_FAILURES])
        earlier.update({key: value for key, value in defined.items() if key not in (entry_point, "candidate")})


_MAX_FAILURES = 200
_OF_TESTS = (Exception, SystemExit, KeyboardInterrupt, GeneratorExit)
"""What tests and answers raise."""


def _run_test(
    test: dict[str, Any], file: str, names: dict[str, Any], defined: dict[str, Any], failures: list[dict[str, Any]]
) -> None:
    """Run one test, and add what its code defines to `defined`, and what its functions and classes raise to `failures`.
    Raises what its statements raise."""
    module = types.ModuleType("__main__")  # as `python test.py` would run it
    space = module.__dict__
    space.update(names, __builtins__=builtins, __file__=file)
    before = dict(space)
    sys.modules["__main__"] = module
    sys.argv = [file]
    exec(load_code(test), space)
    defined.update({k: v for k, v in space.items() if before.get(k) is not v and not k.startswith("__")})

    def attempt(name: str, work: Callable[..., None], *args: Any) -> None:
        try:
            work(*args)
        except _OF_TESTS as error:
            described = describe_error(error)
            message = f"in {name}: {described['message']}".removesuffix(": ")
            failures.append({"kind": described["kind"], "message": message, "test": name})

    if test["check"]:
        if "candidate" not in space:
            raise NameError("the entry point is not defined")
        space[test["check"]](space["candidate"])
    runner = FixtureRunner(defined, _call)
    for name in test["functions"]:
        attempt(name, runner.run, defined.get(name))
    for name in test["classes"]:
        attempt(name, _run_class, defined.get(name), runner, test["may_skip"], attempt)
    runner.close()


def _run_class(kind: Any, runner: FixtureRunner, may_skip: bool, attempt: Callable[..., None]) -> None:
    if not isinstance(kind, type):
        raise AssertionError("it was not run")
    unittest = sys.modules.get("unittest")
    if unittest is None or not issubclass(kind, unittest.TestCase):
        _run_plain_class(kind, runner, attempt)
        return
    result = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(kind).run(result)
    for test, text in (*result.failures, *result.errors):
        attempt(test.id().removeprefix("__main__."), _fail, text.strip().splitlines()[-1])
    if result.unexpectedSuccesses:
        raise AssertionError(f"{result.unexpectedSuccesses[0]}: it was expected to fail")
    if result.skipped and not may_skip:
        raise AssertionError("a test was skipped")


def _fail(text: str) -> None:
    raise AssertionError(text.removeprefix("AssertionError: "))


def _call(function: Any) -> None:
    """Call a test; if it is a coroutine function, run the coroutine."""
    result = function()
    if isinstance(result, types.CoroutineType):
        import asyncio

        asyncio.run(result)


def _run_plain_class(kind: type, runner: FixtureRunner, attempt: Callable[..., None]) -> None:
    """Run the tests of a class without unittest, including inherited tests and nested classes."""
    found = {key: value for base in reversed(kind.__mro__) for key, value in vars(base).items()}
    if "setup_class" in found:
        kind.setup_class()  # type: ignore[attr-defined]
    for name, value in found.items():
        if name.startswith("test"):
            attempt(f"{kind.__name__}.{name}", runner.run, value, kind)
        elif name.startswith("Test") and isinstance(value, type):
            _run_plain_class(value, runner, attempt)
    if "teardown_class" in found:
        kind.teardown_class()  # type: ignore[attr-defined]


# The form `calls`: the answer has a separate process, and only function calls reach it.

_MAX_CALLS = 500
"""Most calls that are passed on: tests with more are run in one process."""


def serve(channel: Any, request: dict[str, Any]) -> None:
    """Run the tests on functions of the answer; the first message has their numbers."""
    caller = Caller(channel, _MAX_CALLS)
    prepare(request)
    recorder = Recorder(request, together=False)

    def report(number: int, failures: list[dict[str, Any]]) -> None:
        if caller.not_plain is not None:
            raise caller.not_plain
        channel.send(["test", number, recorder.take(), failures, []])

    try:
        given = channel.receive()
        answer = {name: caller.decode(value) for name, value in given[1].items()}
        names = make_names(request, answer)
        run_tests(request, names, recorder, report)
    except NotPlainError as error:
        channel.send(["other", str(error), bool(caller.functions)])
    except AnswerGoneError:
        channel.send(["done", False, False])  # tests that finished before are already reported
    except BrokenError:
        channel.send(["broken"])
    except BaseException as error:
        channel.send(["failed", describe_error(error)])
    else:
        channel.send(["done", bool(caller.functions), caller.exited])
