"""Judges code against tests, in the form that was planned for them.

A test that was answered rightly stays passed although the candidate's process fails afterwards (it exits, is killed, or
runs out of time): its value was the right one, and the process never held it. The verdict says how the process ended.
A process that breaks the protocol is believed in nothing: all tests that it answered fail.
"""

from __future__ import annotations

import asyncio

import msgspec

from foretrace.core.problem import RunError, TestResult, Verdict
from foretrace.core.trace import Isolation
from foretrace.sandbox.base import Limits
from foretrace.sandbox.forkserver.child_channel import StartChild
from foretrace.sandbox.forkserver.run_result import (
    MAX_SOURCE_CHARS,
    make_protocol_error,
    make_too_large_result,
    read_error,
    run_program,
)
from foretrace.sandbox.inside.wire.values import show_value
from foretrace.sandbox.judging.calls import (
    EXIT_TIMEOUT_S,
    MAX_PROCESSES,
    NOT_RUN,
    ProcessTotals,
    find_ending,
    find_load_ending,
    format_error,
    make_calls,
)
from foretrace.sandbox.judging.compare import same_output
from foretrace.sandbox.judging.plan import JudgePlan
from foretrace.sandbox.judging.relay import relay
from foretrace.sandbox.judging.report import TestReport, make_judge_request


async def judge(start_child: StartChild, plan: JudgePlan, code: str, limits: Limits, isolation: Isolation) -> Verdict:
    """Judge `code` by `plan`. Never raises for what the code does.

    Raises:
        SandboxError: no process can be started.
    """
    form = plan.form
    if len(code) > MAX_SOURCE_CHARS:
        error = make_too_large_result(code, isolation).error
        assert error is not None
        process = ProcessTotals(ending="error", error=error)
        results = TestReport(plan).all_failed(format_error(error))
    else:
        judged = await _compare_literals(start_child, plan, code, limits) if form == "split" else None
        if judged is None:
            form = "judge" if form == "split" else form
            judges = {"judge": relay, "stdin": _programs, "shared": _shared}
            judged = await judges[form](start_child, plan, code, limits)
        results, process = judged
    return Verdict(
        tests=tuple(results),
        integrity=form,
        ending=process.ending,
        error=process.error,
        stdout=process.stdout,
        stderr=process.stderr,
        seconds=process.seconds,
        isolation=isolation,
    )


async def _compare_literals(
    start_child: StartChild, plan: JudgePlan, code: str, limits: Limits
) -> tuple[list[TestResult], ProcessTotals] | None:
    """Compare what the calls give; None where a value is not plain, so that the tests must be run."""
    needs = [plan.entry_point] if plan.entry_point else []
    answers, process = await make_calls(start_child, code, plan.preamble, plan.calls, needs, limits)
    results: list[TestResult] = []
    for name, check in zip(plan.names, plan.asserts, strict=True):
        answer = answers[check.call]
        if answer.error is not None and plan.setup and answer.error.startswith("NameError"):
            return None  # the setup may define what the code lacks
        if answer.error is not None:
            results.append(TestResult(name=name, passed=False, error=answer.error, seconds=answer.seconds))
            continue
        outcome = check.judge(answer.value)
        if outcome is None:
            return None
        results.append(
            TestResult(
                name=name,
                passed=outcome.passed,
                actual=outcome.actual,
                expected=outcome.expected,
                seconds=answer.seconds,
            )
        )
    return results, process


async def _shared(
    start_child: StartChild, plan: JudgePlan, code: str, limits: Limits
) -> tuple[list[TestResult], ProcessTotals]:
    report, process = TestReport(plan), ProcessTotals()
    failed: RunError | None = None
    wrong = False
    async with start_child(
        {**make_judge_request(plan, code, limits), "mode": "shared", "code": code, "preamble": plan.preamble}, limits
    ) as child:
        loaded = await child.receive()
        if isinstance(loaded, list) and len(loaded) == 2 and loaded[0] == "failed":
            failed = read_error(loaded[1])
        wrong = loaded is not None and failed is None and loaded != ["loaded"]
        while not (wrong or failed or report.done) and (frame := await child.receive()) is not None:
            report.take(frame, child.elapsed)
        if wrong:
            child.stop()
        ended = await child.wait(EXIT_TIMEOUT_S)
    if wrong or child.broken:
        process.add(ended, "killed", make_protocol_error())
        return report.all_failed(format_error(make_protocol_error())), process
    if failed is not None:
        process.add(ended, find_load_ending(failed), failed)
        return report.all_failed(format_error(failed)), process
    ending, error = find_ending(ended, report.done, limits)
    process.add(ended, ending, error)
    return report.results(format_error(error) if error else "not run"), process


async def _programs(
    start_child: StartChild, plan: JudgePlan, code: str, limits: Limits
) -> tuple[list[TestResult], ProcessTotals]:
    results: list[TestResult] = []
    process, late = ProcessTotals(), 0
    for name, test in zip(plan.names, plan.tests, strict=True):
        expected = test.stdout or ""
        if late >= MAX_PROCESSES:
            results.append(TestResult(name=name, passed=False, expected=show_value(expected), error=NOT_RUN))
            continue
        # What is expected may be longer than what a run may show.
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
        results.append(
            TestResult(
                name=name,
                passed=same and ran.ok,
                actual=show_value(ran.stdout),
                expected=show_value(expected),
                error=error,
                seconds=ran.seconds,
            )
        )
        process.seconds += ran.seconds
        if process.ending == "ok" and not ran.ok:
            process.ending, process.error = ran.ending, ran.error
            process.stdout, process.stderr = ran.stdout, ran.stderr
    return results, process


async def _compare_output(printed: str, expected: str, tolerance: float | None) -> bool:
    """As `same_output`; long ones are compared in a thread, line after line, so that the loop goes on meanwhile."""
    if len(printed) + len(expected) <= _LONG_OUTPUT or printed == expected:
        return same_output(printed, expected, tolerance)
    return await asyncio.to_thread(same_output, printed, expected, tolerance)


_LONG_OUTPUT = 1 << 17
"""Characters that are compared within a millisecond or two."""
_NOWHERE = Isolation(level=0)
"""Of a run's result only the rest is used; the verdict says how it was isolated."""
