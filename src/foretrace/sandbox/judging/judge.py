"""Judges code against tests, in the form that was planned for them.

A test that has passed stays passed if the answer's process fails after its end (it exits, is killed, or runs out of
time). Nothing counts from a process that breaks the protocol. All processes of a verdict together have the time of one
run.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
from collections.abc import Sequence
from typing import Any

import msgspec

from foretrace.core.errors import ProblemError
from foretrace.core.problem import FLAGS, Integrity, RunError, TestResult, Verdict
from foretrace.core.trace import Isolation
from foretrace.sandbox.base import FORMS, Limits
from foretrace.sandbox.forkserver.child_channel import ChildChannel, StartChild, run_program
from foretrace.sandbox.forkserver.run_result import find_size_error, read_error
from foretrace.sandbox.inside.values import Decoder, show_value
from foretrace.sandbox.inside.wire import FrameError, unpack_frame
from foretrace.sandbox.judging.compare import same_output
from foretrace.sandbox.judging.plan import JudgePlan
from foretrace.sandbox.judging.process import EXIT_TIMEOUT_S, NOT_RUN, Judging, find_ending, format_error
from foretrace.sandbox.judging.run_tests import run_apart, run_together
from foretrace.sandbox.judging.test_reading import RANDOM_WORD
from foretrace.sandbox.judging.verify import Judgment, judge_values

_NEEDS_OBJECTS = "needs_objects"
_LONG = 1 << 17
"""Longest text or frame that is compared or decoded in the event loop, which must not be blocked for long."""
_MAX_LATE = 3
"""Runs of one program out of time after which it is not run again."""
_NOWHERE = Isolation(level=0)
"""A placeholder: the isolation is taken from the verdict, not from the run's result."""


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
    judging = Judging(start_child, plan, code, limits)
    form = plan.form
    if error := find_size_error(code):
        judging.ending, judging.error = "error", error
        results = _all_failed(plan, format_error(error))
    elif plan.is_program:
        results = await _run_programs(judging)
    else:
        form, results = await _judge_functions(judging, forms)
    return Verdict(
        tests=tuple(msgspec.structs.replace(result, form=form) for result in results),
        integrity=form,
        flags=tuple(flag for flag in FLAGS if flag in judging.flags),
        ending=judging.ending,
        error=judging.error,
        stdout=judging.stdout,
        stderr=judging.stderr,
        seconds=judging.seconds,
        isolation=isolation,
    )


async def _judge_functions(judging: Judging, forms: Sequence[str]) -> tuple[Integrity, list[TestResult]]:
    """The results, and the form used: the planned one, or `together` if that turns out to be necessary."""
    plan = judging.plan
    form = plan.form
    if form == "calls" and RANDOM_WORD in judging.code and any(RANDOM_WORD in test.code for test in plan.tests):
        form = "together"  # the tests may seed the random numbers of the answer
    if plan.memory.get(_NEEDS_OBJECTS) and "together" in forms:
        form = "together"
    why: str | None = None
    if form == "values":
        if (results := await _compare_values(judging)) is not None:
            return form, results
        why = "a value is not plain data"
    elif form == "calls":
        report = await run_apart(judging)
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
    made = (await run_together(judging, allowed)).results()
    if why is not None and all(result.passed for result in made):
        plan.memory[_NEEDS_OBJECTS] = True
    return "together", made


def _all_failed(plan: JudgePlan, why: str) -> list[TestResult]:
    return [TestResult(name=name, passed=False, error=why) for name in plan.names]


# The form `values`: calls of functions.


class _CallAnswer(msgspec.Struct):
    value: Any = None
    is_plain: bool = True
    """Whether the value is plain data, which can be compared here as Python compares it."""
    error: str | None = NOT_RUN
    """Why there is no value."""
    seconds: float | None = None


async def _compare_values(judging: Judging) -> list[TestResult] | None:
    """Compare the values of the calls; None if one is not plain, so that the tests must be run."""
    answers, plan = await _make_calls(judging), judging.plan
    results: list[TestResult] = []
    left = iter(answers)
    for name, check in zip(plan.names, plan.checks, strict=True):
        given = list(itertools.islice(left, len(check.leaves)))
        seconds = sum(answer.seconds or 0.0 for answer in given) if given[0].seconds is not None else None
        errors = [answer.error for answer in given if answer.error is not None]
        if not errors and not all(answer.is_plain for answer in given):
            return None
        values = [answer.value for answer in given]
        made = Judgment(False, errors[0]) if errors else judge_values(check, values)
        results.append(made.make_result(name, seconds))
    return results


async def _make_calls(judging: Judging) -> list[_CallAnswer]:
    """Make all calls. Answers count even if the process fails after them, since only their values are compared; but if
    it breaks the protocol, none counts."""
    plan = judging.plan
    asked = {"preamble": plan.preamble, "setup_parts": plan.setup_parts, "entry_point": plan.entry_point}
    request = {"mode": "values", "code": judging.code, "calls": plan.calls, **asked}
    async with judging.start_child(request, judging.limits) as child:
        got, failed = await _receive_answers(child, len(plan.calls))
        ended = await child.wait(EXIT_TIMEOUT_S)
    missing = len(plan.calls) - len(got)
    why = judging.add_unusable(ended, child.broken, failed)
    if why is not None:
        return [_CallAnswer(error=why) for _ in plan.calls]
    ending, error = find_ending(ended, not missing, judging.limits)
    judging.add(ended, ending, error)
    if missing and error is not None:
        got.append(_CallAnswer(error=format_error(error), seconds=ended.seconds))
    return got + [_CallAnswer() for _ in plan.calls[len(got) :]]


async def _receive_answers(child: ChildChannel, count: int) -> tuple[list[_CallAnswer], RunError | None]:
    """The answers of the process, and why the code could not be loaded."""
    answers: list[_CallAnswer] = []
    match await child.receive():
        case ["loaded"]:
            pass
        case ["failed", error] if described := read_error(error):
            return answers, described
        case other:
            if other is not None:
                child.broken = "the process spoke out of turn"
            return answers, None
    before = child.elapsed
    while len(answers) < count and (body := await child.receive_bytes()) is not None:
        answer = await asyncio.to_thread(_read_answer, body) if len(body) > _LONG else _read_answer(body)
        if answer is None:
            child.broken = "an invalid answer"
            break
        answer.seconds, before = child.elapsed - before, child.elapsed
        answers.append(answer)
    return answers, None


def _read_answer(body: bytes) -> _CallAnswer | None:
    """Parse the message of the answer's process about a call; None if it is invalid."""
    decoder = Decoder()
    try:
        match unpack_frame(body):
            case ["raised", said] if error := read_error(said):
                return _CallAnswer(error=format_error(error))
            case ["value", tagged, None]:
                return _CallAnswer(value=decoder.decode(tagged), is_plain=decoder.is_plain, error=None)
            case _:
                pass
    except (FrameError, ValueError):
        pass
    return None


# The form `values`: programs.


async def _run_programs(judging: Judging) -> list[TestResult]:
    results: list[TestResult] = []
    plan, limits, late = judging.plan, judging.limits, 0
    for name, test in zip(plan.names, plan.tests, strict=True):
        expected = test.stdout or ""
        if late >= _MAX_LATE:
            results.append(TestResult(name=name, passed=False, expected=show_value(expected), error=NOT_RUN))
            continue
        # The expected output may be longer than the output kept of a run.
        room = min(len(expected.encode("utf-8", "replace")) // 512 + limits.stdout_kb, limits.output_mb * 1024)
        longer = msgspec.structs.replace(limits, stdout_kb=max(room, limits.stdout_kb))
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
        made = Judgment(same and ran.ok, error, show_value(ran.stdout), show_value(expected))
        results.append(made.make_result(name, ran.seconds))
        judging.seconds += ran.seconds
        if judging.ending == "ok" and not ran.ok:
            judging.ending, judging.error = ran.ending, ran.error
            judging.stdout, judging.stderr = ran.stdout, ran.stderr
    return results
