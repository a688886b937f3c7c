"""Judges code against tests, in the form that was planned for them.

A test that has passed stays passed if the answer's process fails after its end (it exits, is killed, or runs out of
time). Nothing counts from a process that breaks the protocol. All tests of functions together have the time of one run.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import json
import secrets
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from foretrace.core.errors import ProblemError
from foretrace.core.problem import FLAGS, Ending, Integrity, RunError, TestResult, Verdict
from foretrace.core.trace import Isolation
from foretrace.sandbox.base import FORMS, Limits
from foretrace.sandbox.forkserver.child_channel import ChildChannel, StartChild, run_program
from foretrace.sandbox.forkserver.run_result import (
    PROTOCOL_ERROR,
    ChildExit,
    find_size_error,
    make_exit_error,
    read_error,
)
from foretrace.sandbox.inside.values import Decoder, encode, show_value
from foretrace.sandbox.inside.wire import FrameError, unpack_frame
from foretrace.sandbox.judging.compare import same_output
from foretrace.sandbox.judging.plan import MAX_CONSTANT, JudgePlan
from foretrace.sandbox.judging.rewrite import make_line_up
from foretrace.sandbox.judging.test_reading import RANDOM_WORD
from foretrace.sandbox.judging.verify import NO_DECOYS, NOT_RUN, TestReport, format_error, judge_values, refuse

_EXIT_TIMEOUT_S = 1.0
"""Seconds that a process gets to exit on its own once it has nothing left to do."""
_LONG = 1 << 17
"""Longest text or frame that is compared or decoded in the event loop, which must not be blocked for long."""
_MAX_LATE = 3
"""Runs of one program out of time after which it is not run again."""
_QUESTIONS = (b'["call",', b'["value",', b'["raised",')
"""Messages of the tests for the answer."""
_REPLIES = (*_QUESTIONS, b'["other",')
"""Messages of the answer for the tests; `other` ends the conversation."""
_HEAD_START_S = 0.5
"""Seconds that the tests may take beyond the answer's limit, to report what it did before it was too late."""
_TESTS_CPU_S = 0.5
"""CPU seconds of the tests in a separate process; those that take longer are run in one process with the answer."""
_NOWHERE = Isolation(level=0)
"""A placeholder: the isolation is taken from the verdict, not from the run's result."""


class _Judging(msgspec.Struct):
    """A verdict in the making: what is judged, and the totals of its processes so far."""

    start_child: StartChild
    plan: JudgePlan
    code: str
    limits: Limits
    """Limits of all processes of the verdict together."""
    ending: Ending = "ok"
    error: RunError | None = None
    stdout: str = ""
    stderr: str = ""
    seconds: float = 0.0
    cpu_s: float = 0.0
    flags: set[str] = set()

    def find_next_limits(self) -> Limits | None:
        """What is left of the limits for the next process; None if it is too little."""
        limits = self.limits
        wall_s = limits.wall_s - self.seconds
        # CPU time is limited in whole seconds.
        cpu_s = float(round(limits.cpu_s - self.cpu_s)) if self.cpu_s else limits.cpu_s
        if wall_s < limits.wall_s / 10 or cpu_s <= 0:
            return None
        return replace(limits, wall_s=wall_s, cpu_s=cpu_s)

    def add(self, ended: ChildExit, ending: Ending, error: RunError | None, *, beside: bool = False) -> None:
        """Add the exit of one process, which may have run `beside` the one before; the first ending other than `ok` is
        kept."""
        self.seconds += 0.0 if beside else ended.seconds
        self.cpu_s += ended.cpu_s or 0.0
        self.stdout = (self.stdout + ended.stdout)[: 1 << 20]
        self.stderr = (self.stderr + ended.stderr)[: 1 << 20]
        if self.ending == "ok":
            self.ending = ending
            self.error = error
        if ending == "exit":
            self.flags.add("exited")
        if error is not None and error == PROTOCOL_ERROR:
            self.flags.add("tampered")

    def add_unusable(self, ended: ChildExit, broken: object, failed: RunError | None) -> str | None:
        """Add a process that broke the protocol or could not load the code, and return why all its tests fail; None for
        any other, which is not added."""
        if broken:
            self.add(ended, "killed", PROTOCOL_ERROR)
            return PROTOCOL_ERROR.message
        if failed is not None:
            ending: dict[str, Ending] = {"MemoryError": "memory", "SystemExit": "exit"}
            self.add(ended, ending.get(failed.kind, "error"), failed)
            return format_error(failed)
        return None

    def add_exit(self, ended: ChildExit, whole: bool, limits: Limits) -> RunError | None:
        """Add a process that should have answered and then exited, and return why it failed; `whole`: it gave all its
        answers."""
        ending, error = ended.ending, None
        if ending not in ("ok", "exit"):
            error = make_exit_error(ended, limits)
            if ending == "timeout":
                error = replace(error, message=f"{error.message}, the limit of all tests together")
        elif not whole or ending == "exit" or ended.exit_code:
            ending, message = "exit", f"the code left the process with exit code {ended.exit_code or 0}"
            error = RunError(kind="Exit", message=message)
        self.add(ended, ending, error)
        return error


async def judge(
    start_child: StartChild,
    plan: JudgePlan,
    code: str,
    limits: Limits,
    isolation: Isolation,
    forms: Sequence[str] = FORMS,
) -> Verdict:
    """Judge `code` by `plan`. Never raises because of what the code does.

    Args:
        forms: the forms of judging that may be used.

    Raises:
        SandboxError: no process can be started.
        ProblemError: the tests need a form that is not in `forms`.
    """
    if plan.form not in forms:
        raise ProblemError(f"these tests need the form {plan.form}, and only {', '.join(forms)} may decide")
    judging = _Judging(start_child, plan, code, limits)
    form = plan.form
    if error := find_size_error(code):
        judging.ending, judging.error = "error", error
        results = _all_failed(plan, format_error(error))
    elif plan.is_program:
        results = await _run_programs(judging)
    else:
        form, results = await _judge_functions(judging, forms)
    return Verdict(
        tests=tuple(replace(result, form=form) for result in results),
        integrity=form,
        flags=tuple(flag for flag in FLAGS if flag in judging.flags),
        ending=judging.ending,
        error=judging.error,
        stdout=judging.stdout,
        stderr=judging.stderr,
        seconds=judging.seconds,
        isolation=isolation,
    )


async def _judge_functions(judging: _Judging, forms: Sequence[str]) -> tuple[Integrity, list[TestResult]]:
    """The results, and the form used: the planned one, or `together` if that turns out to be necessary."""
    plan = judging.plan
    form = plan.form
    if form == "calls" and RANDOM_WORD in judging.code and any(RANDOM_WORD in test.code for test in plan.tests):
        form = "together"  # the tests may seed the random numbers of the answer
    if plan.needs_objects and "together" in forms:
        form = "together"
    why: str | None = None
    if form == "values":
        if (results := await _compare_values(judging)) is not None:
            return form, results
        why = "a value is not plain data"
    elif form == "calls":
        report = await _run_apart(judging)
        if (why := report.needs_objects) is None:
            return form, report.results()
    if why is not None:
        if "together" not in forms:
            return form, _all_failed(plan, f"not decided: {why}, which only the form together can judge")
        judging.ending, judging.error = "ok", None
        judging.flags.clear()
    allowed = judging.find_next_limits()
    if allowed is None:
        return "together", _all_failed(plan, f"no time was left: {why}, so that the tests had to be run again")
    made = (await _run_together(judging, allowed)).results()
    if why is not None and all(result.passed for result in made):
        plan.needs_objects = True
    return "together", made


def _all_failed(plan: JudgePlan, why: str) -> list[TestResult]:
    return [replace(refuse(why), name=name) for name in plan.names]


# The form `values`: calls of functions.


class _CallAnswer(msgspec.Struct):
    value: Any = None
    is_plain: bool = True
    """Whether the value is plain data, which can be compared here as Python compares it."""
    error: str | None = None
    """Why there is no value."""
    seconds: float | None = None


async def _compare_values(judging: _Judging) -> list[TestResult] | None:
    """Compare the values of the calls; None if one is not plain, so that the tests must be run."""
    answers, plan = await _make_calls(judging), judging.plan
    results: list[TestResult] = []
    for name, check in zip(plan.names, plan.checks, strict=True):
        given = list(itertools.islice(answers, len(check.leaves)))
        seconds = sum(answer.seconds or 0.0 for answer in given) if given[0].seconds is not None else None
        error = next((answer.error for answer in given if answer.error is not None), None)
        if error is None and not all(answer.is_plain for answer in given):
            return None
        made = refuse(error) if error else judge_values(check, [answer.value for answer in given])
        results.append(replace(made, name=name, seconds=seconds))
    return results


async def _make_calls(judging: _Judging) -> Iterator[_CallAnswer]:
    """Make all calls. Answers count even if the process fails after them, since only their values are compared; but if
    it breaks the protocol, none counts."""
    calls = judging.plan.calls
    request = {"mode": "answer", "code": judging.code, "calls": calls, **judging.plan.asked}
    answers: list[_CallAnswer] = []
    failed: RunError | None = None
    async with judging.start_child(request, judging.limits) as child:
        match await child.receive():
            case ["loaded"]:
                before = child.elapsed
                while len(answers) < len(calls) and (body := await child.receive_bytes()) is not None:
                    answer = await asyncio.to_thread(_read_answer, body) if len(body) > _LONG else _read_answer(body)
                    if answer is None:
                        child.broken = "an invalid answer"
                        break
                    answer.seconds, before = child.elapsed - before, child.elapsed
                    answers.append(answer)
            case ["failed", error] if failed := read_error(error):
                pass
            case None:
                pass
            case _:
                child.broken = "the process spoke out of turn"
        ended = await child.wait(_EXIT_TIMEOUT_S)
    if why := judging.add_unusable(ended, child.broken, failed):
        return itertools.repeat(_CallAnswer(error=why))
    error = judging.add_exit(ended, len(answers) == len(calls), judging.limits)
    if error is not None:
        answers.append(_CallAnswer(error=format_error(error), seconds=ended.seconds))
    return itertools.chain(answers, itertools.repeat(_CallAnswer(error=NOT_RUN)))


def _read_answer(body: bytes) -> _CallAnswer | None:
    """Parse the message of the answer's process about a call; None if it is invalid."""
    decoder = Decoder()
    with contextlib.suppress(FrameError, ValueError):
        match unpack_frame(body):
            case ["raised", said] if error := read_error(said):
                return _CallAnswer(error=format_error(error))
            case ["value", tagged, None]:
                return _CallAnswer(value=decoder.decode(tagged), is_plain=decoder.is_plain)
            case _:
                pass
    return None


# The form `values`: programs.


async def _run_programs(judging: _Judging) -> list[TestResult]:
    results: list[TestResult] = []
    plan, limits, late = judging.plan, judging.limits, 0
    for name, test in zip(plan.names, plan.tests, strict=True):
        expected = test.stdout or ""
        if late >= _MAX_LATE:
            results.append(TestResult(name=name, passed=False, expected=show_value(expected), error=NOT_RUN))
            continue
        # The expected output may be longer than the output kept of a run.
        room = min(len(expected.encode("utf-8", "replace")) // 512 + limits.stdout_kb, limits.output_mb * 1024)
        longer = replace(limits, stdout_kb=max(room, limits.stdout_kb))
        ran = await run_program(judging.start_child, judging.code, test.stdin or "", longer, _NOWHERE)
        late += ran.ending == "timeout"
        is_long = len(ran.stdout) + len(expected) > _LONG
        compare = functools.partial(same_output, ran.stdout, expected, test.tolerance)
        same = not ran.truncated and (await asyncio.to_thread(compare) if is_long else compare())
        error = None
        if not ran.ok:
            error = format_error(ran.error) if ran.error else f"the program left with exit code {ran.exit_code}"
        elif ran.truncated:
            error = f"it printed more than the {limits.stdout_kb} KiB that are kept"
        result = TestResult(name=name, passed=same and ran.ok, error=error, seconds=ran.seconds)
        results.append(replace(result, actual=show_value(ran.stdout), expected=show_value(expected)))
        judging.seconds += ran.seconds
        if judging.ending == "ok" and not ran.ok:
            judging.ending, judging.error = ran.ending, ran.error
            judging.stdout, judging.stderr = ran.stdout, ran.stderr
    return results


# The forms `calls` and `together`: the tests are run.


async def _run_apart(judging: _Judging) -> TestReport:
    """Run the tests in a separate process, and forward their calls of the answer's functions."""
    limits, plan = judging.limits, judging.plan
    report = TestReport(plan, {})
    request = {**plan.code.request, "mode": "tests", "constants": plan.code.show_constants(all_of_them=True)}
    own = {**plan.asked, "mode": "answer", "code": judging.code}
    longer = replace(limits, wall_s=limits.wall_s + _HEAD_START_S, cpu_s=_TESTS_CPU_S)
    # The answer first: then the tests also get a server, and neither waits for one while its time runs.
    async with judging.start_child(own, limits) as answer, judging.start_child(request, longer) as tests:
        said = await _forward_calls(tests, answer, report)
        if said[0] == "done":
            # It ends by itself, so that everything it said is read: more than it was asked makes it unusable.
            await answer.send(b'["bye"]')
        else:
            answer.stop()
        if said[0] in ("other", "failed_to_load", "gone", "broken", None):
            tests.stop()
        answer_exit, tests_exit = await answer.wait(_EXIT_TIMEOUT_S), await tests.wait(_EXIT_TIMEOUT_S)
    failed = said[1] if said[0] == "failed_to_load" else None
    report.failed = judging.add_unusable(answer_exit, said[0] == "broken" or answer.broken, failed)
    if report.failed is not None:
        return report
    if said[0] == "gone":
        error = judging.add_exit(answer_exit, False, limits)
        judging.add(tests_exit, "ok", None, beside=True)
        report.why = format_error(error) if error else NOT_RUN
        return report
    if said[0] not in ("other", "failed"):
        report.why = _explain_unfinished(judging.add_exit(tests_exit, said[0] == "done", longer))
    else:
        judging.add(tests_exit, "ok", None)
        if said[0] == "other":
            report.needs_objects = said[1]
        elif described := read_error(said[1]):
            report.why = f"the setup of the tests failed: {format_error(described)}"
    judging.add(answer_exit, "ok", None, beside=True)
    ran_out = tests_exit.ending == "timeout" and (tests_exit.cpu_s or 0.0) >= _TESTS_CPU_S * 0.9
    if report.needs_objects is None and ran_out:
        report.needs_objects = f"the tests compute for more than {_TESTS_CPU_S:g} s"
    if said[0] == "done":
        _, gave_functions, exited = said
        if exited:
            judging.flags.add("exited")
        if gave_functions and not all(result.passed for result in report.results()):
            report.needs_objects = "functions of the tests were handed over"  # which the answer may have inspected
    return report


def _explain_unfinished(error: RunError | None) -> str:
    return f"the tests did not come to their end: {format_error(error)}" if error else NOT_RUN


async def _forward_calls(tests: ChildChannel, answer: ChildChannel, report: TestReport) -> list[Any]:
    """Forward messages between tests and answer, which take turns, until the tests are done or a process has ended.

    Returns:
        The last message of the tests: `["done", whether functions were handed over, whether the answer exited]`,
        `["failed", error]`, `["other", why one process is needed]` (also of the answer), `[None]` if they said nothing;
        or `["failed_to_load", error]`, `["gone"]` or `["broken"]` of the answer.
    """
    match await answer.receive():
        case ["loaded", {**names}]:
            await tests.send(json.dumps(["loaded", names]).encode("ascii"))
        case ["failed", error] if described := read_error(error):
            return ["failed_to_load", described]
        case ["other", str(why)]:
            return ["other", why]
        case None:
            return ["gone"]
        case _:
            return ["broken"]
    before, gone = 0.0, False
    while (frame := await tests.receive_bytes()) is not None:
        if frame.startswith(_QUESTIONS):
            reply = None
            if not gone:
                await answer.send(frame)
                reply = await answer.receive_bytes()
            gone = reply is None
            if reply is not None and not reply.startswith(_REPLIES):
                return ["broken"]
            await tests.send(reply or b'["gone"]')
            continue
        try:
            message = unpack_frame(frame)
        except FrameError:
            return ["broken"]
        if message[0] != "test":
            if gone and message[0] not in ("other", "broken"):
                return ["gone"]
            return message[:2] if message[0] == "other" else list(message)
        report.take(message[1], message[2], message[3], tests.elapsed - before, answer_gone=gone)
        before = tests.elapsed
    return ["gone"] if gone else [None]


async def _run_together(judging: _Judging, limits: Limits) -> TestReport:
    """Run the tests in the answer's process. If its objects decide asserts, run them again with decoy constants."""
    report = await _run_once(judging, limits, {})
    if not report.unsure or not any(result.passed for result in report.results()):
        return report
    line_ups: dict[int, tuple[list[list[Any]], int]] = {}
    for number in report.unsure:
        check = judging.plan.code.checks[number]
        made = make_line_up(check.constants, check.tolerances)
        if made is None:
            report.failed = NO_DECOYS
            return report
        line_ups[number] = made
    allowed = judging.find_next_limits()
    if allowed is None:
        report.failed = "no time was left to ask the code's objects twice"
        return report
    return await _run_once(judging, allowed, line_ups)


async def _run_once(judging: _Judging, limits: Limits, line_ups: dict[int, tuple[list[list[Any]], int]]) -> TestReport:
    """Run the tests; for some checks, the constants are one row of a line-up, and only the parent knows which."""
    tests = judging.plan.code
    report = TestReport(judging.plan, {number: place for number, (_, place) in line_ups.items()})
    token = secrets.token_hex(8)
    request = {**tests.request, "mode": "together", "code": judging.code, "token": token}
    request["constants"] = tests.show_constants(all_of_them=False)
    request["line_ups"] = [
        [n, [[encode(c, MAX_CONSTANT) for c in row] for row in rows]] for n, (rows, _) in line_ups.items()
    ]
    failed: RunError | None = None
    agreeable, done, seen = "", False, list[Any]()
    async with judging.start_child(request, limits) as child:
        before = 0.0
        while not done and failed is None and child.broken is None and (message := await child.receive()) is not None:
            match message:
                case ["loaded"] if not before:
                    before = child.elapsed
                case ["failed", error] if read_error(error):
                    failed = read_error(error)
                case ["test", number, records, failures, [*flags], str(said)] if said == token:
                    if not report.take(number, records, failures, child.elapsed - before):
                        child.broken = "an invalid report"
                    before, seen = child.elapsed, seen + flags
                case ["done", str(agreeable), [*flags], str(said)] if said == token:
                    done, seen = True, seen + flags
                case _:
                    child.broken = "the process spoke out of turn"
        ended = await child.wait(_EXIT_TIMEOUT_S)
    report.failed = judging.add_unusable(ended, child.broken, failed)
    if report.failed is None:
        error = judging.add_exit(ended, done, limits)
        report.why = _explain_unfinished(error)
        left = report.why if error is not None and error.kind == "Exit" else None
        report.failed = _find_cheat(report, agreeable, seen, judging) or left
    return report


def _find_cheat(report: TestReport, agreeable: str, seen: list[Any], judging: _Judging) -> str | None:
    """What the answer did to cheat, so that all tests fail; None if it did not."""
    failed = None
    for kind, what in (pair for pair in seen if isinstance(pair, list) and len(pair) == 2):
        judging.flags.add("peeked" if kind == "peeked" else "tampered")
        failed = f"the code {'looked at' if kind == 'peeked' else 'changed'} {what}"[:300]
    if agreeable:
        failed = f"an object of the code's class {agreeable} says that it equals whatever it is compared with"[:300]
    if agreeable or report.same_for_others:
        judging.flags.add("same_for_others")
    return failed
