"""Judges code against tests, in the form that was planned for them.

A test that was answered rightly stays passed although the candidate's process fails afterwards (it exits, is killed, or
runs out of time): its value was the right one, and the process never held it. The verdict says how the process ended.
A process that breaks the protocol is believed in nothing: all tests that it answered fail.
"""

from __future__ import annotations

from foretrace.core.problem import RunError, TestResult, Verdict
from foretrace.core.trace import Isolation
from foretrace.sandbox.base import Limits
from foretrace.sandbox.forkserver.channel import Open
from foretrace.sandbox.forkserver.result import MOST_SOURCE, out_of_turn, read_error, run, too_large
from foretrace.sandbox.inside.wire.values import show
from foretrace.sandbox.judging.calls import (
    LEAVE_S,
    MOST_PROCESSES,
    NOT_RUN,
    Process,
    ask,
    ending_of,
    load_ending,
    text_of,
)
from foretrace.sandbox.judging.compare import same_output
from foretrace.sandbox.judging.evaluate import FailedError
from foretrace.sandbox.judging.plan import Plan
from foretrace.sandbox.judging.relay import relay
from foretrace.sandbox.judging.report import Heard, judge_request


async def judge(open_: Open, plan: Plan, code: str, limits: Limits, isolation: Isolation) -> Verdict:
    """Judge `code` by `plan`. Never raises for what the code does.

    Raises:
        SandboxError: no process can be started.
    """
    if len(code) > MOST_SOURCE:
        error = too_large(code, isolation).error
        assert error is not None
        process = Process(ending="error", error=error)
        results = Heard(plan).all_failed(text_of(error))
    else:
        judges = {"split": _split, "judge": relay, "stdin": _programs, "shared": _shared}
        results, process = await judges[plan.form](open_, plan, code, limits)
    return Verdict(
        tests=tuple(results),
        integrity=plan.form,
        ending=process.ending,
        error=process.error,
        stdout=process.stdout,
        stderr=process.stderr,
        seconds=process.seconds,
        isolation=isolation,
    )


async def _split(open_: Open, plan: Plan, code: str, limits: Limits) -> tuple[list[TestResult], Process]:
    needs = [plan.entry_point] if plan.entry_point else []
    answers, process = await ask(open_, code, plan.calls, needs, limits)

    def take(number: int) -> object:
        error = answers[number].error
        if error is not None:
            raise FailedError(error)
        return answers[number].take()

    results: list[TestResult] = []
    for name, check in zip(plan.names, plan.checks, strict=True):
        spent = [answers[number].seconds for number in check.calls]
        seconds = sum(s for s in spent if s is not None) if any(s is not None for s in spent) else None
        outcome = check.judge(take)
        results.append(
            TestResult(
                name=name,
                passed=outcome.passed,
                actual=outcome.actual,
                expected=outcome.expected,
                error=outcome.error,
                seconds=seconds,
            )
        )
    return results, process


async def _shared(open_: Open, plan: Plan, code: str, limits: Limits) -> tuple[list[TestResult], Process]:
    heard, process = Heard(plan), Process()
    failed: RunError | None = None
    wrong = False
    async with open_({**judge_request(plan), "mode": "shared", "code": code}, limits) as child:
        loaded = await child.receive()
        if isinstance(loaded, list) and len(loaded) == 2 and loaded[0] == "failed":
            failed = read_error(loaded[1])
        wrong = loaded is not None and failed is None and loaded != ["loaded"]
        while not (wrong or failed or heard.done) and (frame := await child.receive()) is not None:
            heard.take(frame, child.elapsed)
        if wrong:
            child.stop()
        ended = await child.finish(LEAVE_S)
    if wrong or child.broken:
        process.add(ended, "killed", out_of_turn())
        return heard.all_failed(text_of(out_of_turn())), process
    if failed is not None:
        process.add(ended, load_ending(failed), failed)
        return heard.all_failed(text_of(failed)), process
    ending, error = ending_of(ended, heard.done, limits)
    process.add(ended, ending, error)
    return heard.results(text_of(error) if error else "not run"), process


async def _programs(open_: Open, plan: Plan, code: str, limits: Limits) -> tuple[list[TestResult], Process]:
    results: list[TestResult] = []
    process, late = Process(), 0
    for name, test in zip(plan.names, plan.tests, strict=True):
        expected = test.stdout or ""
        if late >= MOST_PROCESSES:
            results.append(TestResult(name=name, passed=False, expected=show(expected), error=NOT_RUN))
            continue
        ran = await run(open_, code, test.stdin or "", limits, _NOWHERE)
        late += ran.ending == "timeout"
        same = same_output(ran.stdout, expected, test.tolerance) and not ran.truncated
        error = None
        if not ran.ok:
            error = text_of(ran.error) if ran.error else f"the program left with exit code {ran.exit_code}"
        elif ran.truncated:
            error = f"it printed more than the {limits.stdout_kb} KiB that are kept"
        results.append(
            TestResult(
                name=name,
                passed=same and ran.ok,
                actual=show(ran.stdout),
                expected=show(expected),
                error=error,
                seconds=ran.seconds,
            )
        )
        process.seconds += ran.seconds
        if process.ending == "ok" and not ran.ok:
            process.ending, process.error = ran.ending, ran.error
            process.stdout, process.stderr = ran.stdout, ran.stderr
    return results, process


_NOWHERE = Isolation(level=0)
"""Of a run's result only the rest is used; the verdict says how it was isolated."""
