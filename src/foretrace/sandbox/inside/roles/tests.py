"""The tests' process in the form `calls`: the answer has a separate process, and only function calls reach it."""

from __future__ import annotations

from typing import Any

from foretrace.sandbox.inside.error_report import describe_error
from foretrace.sandbox.inside.roles import test_runner
from foretrace.sandbox.inside.roles.recorder import Recorder
from foretrace.sandbox.inside.wire.calls import AnswerGoneError, BrokenError, Caller, NotPlainError

_MAX_CALLS = 500
"""Most calls that are passed on: tests with more are run in one process."""


def serve(channel: Any, request: dict[str, Any]) -> None:
    """Run the tests on functions of the answer; the first message has their numbers."""
    caller = Caller(channel, _MAX_CALLS)
    test_runner.import_modules(request)
    recorder = Recorder(request, together=False)

    def report(number: int, problem: dict[str, Any] | None) -> None:
        channel.send(["test", number, recorder.take(), problem, []])

    try:
        given = channel.receive()
        answer = {name: caller.decode(value) for name, value in given[1].items()}
        names = test_runner.make_names(request, answer)
        test_runner.run_tests(request, names, recorder, report)
    except NotPlainError as error:
        channel.send(["other", str(error), bool(caller.functions)])
    except AnswerGoneError:
        channel.send(["done", False, False])  # tests that finished before are already reported
    except BrokenError:
        channel.send(["broken"])
    except BaseException as error:
        channel.send(["failed", describe_error(error)])
    else:
        channel.send(["done", bool(caller.functions), bool(caller.exited)])
