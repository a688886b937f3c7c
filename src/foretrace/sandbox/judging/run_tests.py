"""Judges by running the tests: in a separate process (`calls`), or in the answer's process (`together`)."""

from __future__ import annotations

import json
import secrets
from typing import Any

import msgspec

from foretrace.core.problem import RunError
from foretrace.sandbox.base import Limits
from foretrace.sandbox.forkserver.child_channel import ChildChannel
from foretrace.sandbox.forkserver.run_result import read_error
from foretrace.sandbox.inside.values import encode
from foretrace.sandbox.inside.wire import FrameError, unpack_frame
from foretrace.sandbox.judging.process import EXIT_TIMEOUT_S, NOT_RUN, Judging, find_ending, format_error
from foretrace.sandbox.judging.rewrite import make_line_up
from foretrace.sandbox.judging.test_code import MAX_CONSTANT, prepare, show_constants
from foretrace.sandbox.judging.verify import TestReport

_QUESTIONS = (b'["call",', b'["value",', b'["raised",')
"""Messages of the tests for the answer."""
_REPLIES = (*_QUESTIONS, b'["other",')
"""Messages of the answer for the tests; `other` ends the conversation."""
_HEAD_START_S = 0.5
"""Seconds that the tests may take beyond the answer's limit, to report what it did before it was too late."""
_TESTS_CPU_S = 0.5
"""CPU seconds of the tests in a separate process; those that take longer are run in one process with the answer."""


async def run_apart(judging: Judging) -> TestReport:
    """Run the tests in a separate process, and forward their calls of the answer's functions."""
    limits, prepared = judging.limits, prepare(judging.plan)
    report = TestReport(judging.plan, {})
    request = {**prepared.request, "mode": "tests"}
    request["constants"] = show_constants(prepared, all_of_them=True)
    asked = {key: prepared.request[key] for key in ("preamble", "setup_parts", "entry_point", "names")}
    own = {**asked, "mode": "answer", "code": judging.code}
    longer = msgspec.structs.replace(limits, wall_s=limits.wall_s + _HEAD_START_S, cpu_s=_TESTS_CPU_S)
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
        answer_exit, tests_exit = await answer.wait(EXIT_TIMEOUT_S), await tests.wait(EXIT_TIMEOUT_S)
    failed = said[1] if said[0] == "failed_to_load" else None
    report.failed = judging.add_unusable(answer_exit, said[0] == "broken" or answer.broken, failed)
    if report.failed is not None:
        return report
    if said[0] == "gone":
        ending, error = find_ending(answer_exit, False, limits)
        judging.add(answer_exit, ending, error)
        judging.add(tests_exit, "ok", None, beside=True)
        report.why = format_error(error) if error else NOT_RUN
        return report
    ending, error = "ok", None
    match said:
        case ["other", why]:
            report.needs_objects = why
        case ["failed", problem]:
            if described := read_error(problem):
                report.why = f"the setup of the tests failed: {format_error(described)}"
        case _:
            ending, error = find_ending(tests_exit, said[0] == "done", longer)
            report.why = _explain_unfinished(error)
    judging.add(tests_exit, ending, error)
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


async def run_together(judging: Judging, limits: Limits) -> TestReport:
    """Run the tests in the answer's process. If its objects decide asserts, run them again with decoy constants."""
    report = await _run_once(judging, limits, {})
    if not report.unsure or not any(result.passed for result in report.results()):
        return report
    line_ups: dict[int, tuple[list[list[Any]], int]] = {}
    for number in report.unsure:
        check = prepare(judging.plan).checks[number]
        made = make_line_up(check.constants, check.tolerances)
        if made is None:
            report.failed = "an object of the answer was compared with a value that has no decoys"
            return report
        line_ups[number] = made
    allowed = judging.find_next_limits()
    if allowed is None:
        report.failed = "no time was left to ask the code's objects twice"
        return report
    return await _run_once(judging, allowed, line_ups)


async def _run_once(judging: Judging, limits: Limits, line_ups: dict[int, tuple[list[list[Any]], int]]) -> TestReport:
    """Run the tests; for some checks, the constants are one row of a line-up, and only the parent knows which."""
    prepared = prepare(judging.plan)
    report = TestReport(judging.plan, {number: place for number, (_, place) in line_ups.items()})
    token = secrets.token_hex(8)
    request = {**prepared.request, "mode": "together", "code": judging.code, "token": token}
    request["constants"] = show_constants(prepared, all_of_them=False)
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
                case ["test", number, records, problem, [*flags], str(said)] if said == token:
                    if not report.take(number, records, problem, child.elapsed - before):
                        child.broken = "an invalid report"
                    before, seen = child.elapsed, seen + flags
                case ["done", str(agreeable), [*flags], str(said)] if said == token:
                    done, seen = True, seen + flags
                case _:
                    child.broken = "the process spoke out of turn"
        ended = await child.wait(EXIT_TIMEOUT_S)
    report.failed = judging.add_unusable(ended, child.broken, failed)
    if report.failed is None:
        ending, error = find_ending(ended, done, limits)
        judging.add(ended, ending, error)
        report.why = _explain_unfinished(error)
        report.failed = _find_cheat(report, agreeable, seen, judging) or (report.why if ending == "exit" else None)
    return report


def _find_cheat(report: TestReport, agreeable: str, seen: list[Any], judging: Judging) -> str | None:
    """What the answer did to cheat, so that all tests fail; None if it did not."""
    failed = None
    for kind, what in (pair for pair in seen if isinstance(pair, list) and len(pair) == 2):
        judging.flags.add("peeked" if kind == "peeked" else "tampered")
        failed = f"the code {'looked at' if kind == 'peeked' else 'changed'} {what}"[:300]
    if agreeable:
        failed = f"an object of the answer's class {agreeable} says that it equals what it cannot know"[:300]
    if agreeable or report.same_for_others:
        judging.flags.add("same_for_others")
    return failed
