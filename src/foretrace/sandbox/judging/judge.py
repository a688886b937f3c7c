"""Judges code against tests, in the form that was planned for them.

A test with a right answer stays passed if the answer's process fails afterwards (it exits, is killed, or runs out of
time), since the value was right. Nothing counts from a process that breaks the protocol. All processes of a verdict
together have the time of one run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from foretrace.core.errors import ProblemError
from foretrace.core.problem import FLAGS, Integrity, TestResult, Verdict
from foretrace.core.trace import Isolation
from foretrace.sandbox.base import FORMS, Limits
from foretrace.sandbox.forkserver.child_channel import StartChild, run_program
from foretrace.sandbox.forkserver.run_result import MAX_SOURCE_CHARS, make_too_large_result
from foretrace.sandbox.inside.wire.values import show_value
from foretrace.sandbox.judging.calls import MAX_PROCESSES, NOT_RUN, ProcessTotals, format_error, make_calls
from foretrace.sandbox.judging.compare import same_output
from foretrace.sandbox.judging.plan import JudgePlan
from foretrace.sandbox.judging.run_tests import run_apart, run_together
from foretrace.sandbox.judging.test_reading import RANDOM_WORD
from foretrace.sandbox.judging.verify import Judgement, judge_values

_NEEDS_OBJECTS = "needs_objects"


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
    process = ProcessTotals()
    form = plan.form
    if len(code) > MAX_SOURCE_CHARS:
        process.ending, process.error = "error", make_too_large_result(code, isolation).error
        assert process.error is not None
        results = _all_failed(plan, format_error(process.error))
    elif plan.is_program:
        results = await _run_programs(start_child, plan, code, limits, process)
    else:
        form, results = await _judge_functions(start_child, plan, code, limits, process, forms)
    return Verdict(
        tests=tuple(msgspec.structs.replace(result, form=form) for result in results),
        integrity=form,
        flags=tuple(flag for flag in FLAGS if flag in process.flags),
        ending=process.ending,
        error=process.error,
        stdout=process.stdout,
        stderr=process.stderr,
        seconds=process.seconds,
        isolation=isolation,
    )


async def _judge_functions(
    start_child: StartChild,
    plan: JudgePlan,
    code: str,
    limits: Limits,
    process: ProcessTotals,
    forms: Sequence[str],
) -> tuple[Integrity, list[TestResult]]:
    """The results, and the form used: the planned one, or `together` if that turns out to be necessary."""
    form = plan.form
    if form == "calls" and RANDOM_WORD in code and any(RANDOM_WORD in test.code for test in plan.tests):
        form = "together"  # the tests may seed the random numbers of the answer
    if plan.memory.get(_NEEDS_OBJECTS) and "together" in forms:
        form = "together"
    falls_back, why = False, ""
    if form == "values":
        results = await _compare_values(start_child, plan, code, limits, process)
        if results is not None:
            return form, results
        why = "a value is not plain data"
    elif form == "calls":
        outcome = await run_apart(start_child, plan, code, limits, process)
        if outcome.needs_objects is None:
            return form, outcome.results()
        why = outcome.needs_objects
    if form != "together":
        falls_back = True
        if "together" not in forms:
            return form, _all_failed(plan, f"not decided: {why}, which only the form together can judge")
        process.ending, process.error = "ok", None
        process.flags.clear()
    allowed = process.find_next_limits(limits)
    if allowed is None:
        return "together", _all_failed(plan, f"no time was left: {why}, so that the tests had to be run again")
    made = (await run_together(start_child, plan, code, allowed, process)).results()
    if falls_back and all(result.passed for result in made):
        plan.memory[_NEEDS_OBJECTS] = True
    return "together", made


def _all_failed(plan: JudgePlan, why: str) -> list[TestResult]:
    return [TestResult(name=name, passed=False, error=why) for name in plan.names]


async def _compare_values(
    start_child: StartChild, plan: JudgePlan, code: str, limits: Limits, process: ProcessTotals
) -> list[TestResult] | None:
    """Compare the values of the calls; None if one is not plain, so that the tests must be run."""
    request = {"code": code, "preamble": plan.preamble, "setup_parts": plan.setup_parts}
    answers = await make_calls(start_child, {**request, "entry_point": plan.entry_point}, plan.calls, limits, process)
    results: list[TestResult] = []
    for name, literal in zip(plan.names, plan.literal, strict=True):
        given = [answers[number] for number in literal.calls]
        seconds = sum(answer.seconds or 0.0 for answer in given) if given[0].seconds is not None else None
        errors = [answer.error for answer in given if answer.error is not None]
        if errors:
            results.append(Judgement(False, errors[0]).make_result(name, seconds, "values"))
            continue
        if not all(answer.is_plain for answer in given):
            return None
        made = judge_values(literal.check, [answer.value for answer in given])
        results.append(made.make_result(name, seconds, "values"))
    return results


async def _run_programs(
    start_child: StartChild, plan: JudgePlan, code: str, limits: Limits, process: ProcessTotals
) -> list[TestResult]:
    results: list[TestResult] = []
    late = 0
    for name, test in zip(plan.names, plan.tests, strict=True):
        expected = test.stdout or ""
        if late >= MAX_PROCESSES:
            results.append(TestResult(name=name, passed=False, expected=show_value(expected), error=NOT_RUN))
            continue
        # The expected output may be longer than the output kept of a run.
        room = min(len(expected.encode("utf-8", "replace")) // 512 + limits.stdout_kb, limits.output_mb * 1024)
        longer = msgspec.structs.replace(limits, stdout_kb=max(room, limits.stdout_kb))
        ran = await run_program(start_child, code, test.stdin or "", longer, _NOWHERE)
        late += ran.ending == "timeout"
        same = not ran.truncated and await _compare_output(ran.stdout, expected, test.tolerance)
        error = None
        if not ran.ok:
            error = format_error(ran.error) if ran.error else f"the program left with exit code {ran.exit_code}"
        elif ran.truncated:
            error = f"it printed more than the {limits.stdout_kb} KiB that are kept"
        made = Judgement(same and ran.ok, error, show_value(ran.stdout), show_value(expected))
        results.append(made.make_result(name, ran.seconds, "values"))
        process.seconds += ran.seconds
        if process.ending == "ok" and not ran.ok:
            process.ending, process.error = ran.ending, ran.error
            process.stdout, process.stderr = ran.stdout, ran.stderr
    return results


async def _compare_output(printed: str, expected: str, tolerance: float | None) -> bool:
    """Like `same_output`; long outputs are compared in a thread, so that the event loop is not blocked."""
    if len(printed) + len(expected) <= _LONG_OUTPUT or printed == expected:
        return same_output(printed, expected, tolerance)
    return await asyncio.to_thread(same_output, printed, expected, tolerance)


_LONG_OUTPUT = 1 << 17
"""Characters that can be compared in a millisecond or two."""
_NOWHERE = Isolation(level=0)
"""A placeholder: the isolation is taken from the verdict, not from the run's result."""
