"""Judging by test code in a second process: its calls of the candidate are relayed, one by one."""

from __future__ import annotations

import contextlib
from typing import Any, Self

import msgspec

from foretrace.core.problem import RunError, TestResult
from foretrace.sandbox.base import Limits
from foretrace.sandbox.forkserver.child_channel import ChildChannel, StartChild
from foretrace.sandbox.forkserver.run_result import PROTOCOL_ERROR_TEXT, make_protocol_error, read_error
from foretrace.sandbox.inside.wire.values import decode
from foretrace.sandbox.judging.calls import (
    EXIT_TIMEOUT_S,
    NOT_RUN,
    ProcessTotals,
    find_ending,
    find_load_ending,
    format_error,
)
from foretrace.sandbox.judging.plan import JudgePlan
from foretrace.sandbox.judging.report import TestReport, make_judge_request

_JUDGE_MEMORY_MB = 512
_JUDGE_CPU_S = 10.0


class CandidateProcess:
    """The candidate's side of a judging: a live process, replaced when it ends."""

    def __init__(self, start_child: StartChild, plan: JudgePlan, code: str, limits: Limits) -> None:
        self.process = ProcessTotals()
        self.failed: RunError | None = None
        """Why the code cannot be loaded."""
        self.broke_protocol = False
        self._start_child, self._plan, self._code, self._limits = start_child, plan, code, limits
        self._child: ChildChannel | None = None
        self._allowed = limits
        self._stack = contextlib.AsyncExitStack()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self._stack.__aexit__(*error)

    @property
    def hopeless(self) -> bool:
        """Whether all tests have failed, whatever comes."""
        return self.broke_protocol or self.failed is not None

    async def start(self) -> bool:
        """Have a process with the code loaded; False when there can be none."""
        allowed = self.process.find_next_limits(self._limits)
        if allowed is None or self.failed or self.broke_protocol or (self.process.count and self._plan.keep):
            return False
        needs = [self._plan.entry_point] if self._plan.entry_point else []
        request: dict[str, Any] = {"mode": "candidate", "code": self._code, "needs": needs, "keep": self._plan.keep}
        self._allowed = allowed
        self._child = await self._stack.enter_async_context(
            self._start_child({**request, "interactive": True}, allowed)
        )
        message = await self._child.receive()
        if message == ["loaded"]:
            return True
        error = None
        if isinstance(message, list) and len(message) == 2 and message[0] == "failed":
            error = read_error(message[1])
        self.broke_protocol = message is not None and error is None
        self.failed = await self._end(error, answered=False) or make_protocol_error()
        return False

    async def relay(self, frame: list[Any]) -> list[Any]:
        """The candidate's answer to a frame of the judge."""
        if self._child is None and not await self.start():
            return ["gone", format_error(self.failed) if self.failed else NOT_RUN]
        assert self._child is not None
        await self._child.send(frame)
        answer = await self._child.receive()
        if answer is not None and not _is_answer(answer, self._plan.keep):
            self.broke_protocol = True
            answer = None
        if answer is not None:
            return answer
        error = await self._end(None, answered=False)
        return ["gone", format_error(error) if error else NOT_RUN]

    async def close(self) -> None:
        """Let the process come to its end, after all is judged."""
        if self._child is None:
            return
        await self._child.send(["bye"])
        await self._end(None)

    async def _end(self, failed: RunError | None, *, answered: bool = True) -> RunError | None:
        """Take the end of the live process into account, and say what was wrong with it."""
        assert self._child is not None
        child, self._child = self._child, None
        if self.broke_protocol:
            child.stop()
        ended = await child.wait(EXIT_TIMEOUT_S)
        await self._stack.aclose()
        if self.broke_protocol or child.broken:
            self.broke_protocol = True
            self.process.add(ended, "killed", make_protocol_error())
            return make_protocol_error()
        if failed is not None:
            self.process.add(ended, find_load_ending(failed), failed)
            return failed
        ending, error = find_ending(ended, answered, self._allowed)
        self.process.add(ended, ending, error)
        return error


def _is_answer(answer: Any, keep: bool) -> bool:
    """Whether a message is an answer to a call, of parts that can be passed on."""
    if not isinstance(answer, list) or not answer:
        return False
    if answer[0] == "raised" and len(answer) == 2:
        error = answer[1]
        bases = error.get("bases", []) if isinstance(error, dict) else None
        return (
            read_error(error) is not None
            and isinstance(error.get("message"), str)
            and isinstance(bases, list)
            and all(isinstance(base, str) for base in bases[:50])
        )
    if answer[0] != "value" or len(answer) != 3:
        return False
    remote = (lambda number, name: None) if keep else None
    try:
        decode(answer[1], remote=remote)
        for key, changed in answer[2] or []:
            if type(key) not in (int, str):
                return False
            decode(changed, remote=remote)
    except (ValueError, TypeError):
        return False
    return True


async def relay(
    start_child: StartChild, plan: JudgePlan, code: str, limits: Limits
) -> tuple[list[TestResult], ProcessTotals]:
    """Judge by the plan's test code."""
    report = TestReport(plan)
    patient = msgspec.structs.replace(
        limits,
        wall_s=2 * limits.wall_s + 1,
        cpu_s=max(limits.cpu_s, _JUDGE_CPU_S),
        memory_mb=max(limits.memory_mb, _JUDGE_MEMORY_MB),
    )
    # The judge first: who holds a candidate never waits for another process, so that judgings cannot block one another.
    async with (
        start_child(make_judge_request(plan), patient) as judge,
        CandidateProcess(start_child, plan, code, limits) as candidate,
    ):
        await candidate.start()
        while not (report.done or candidate.hopeless) and (frame := await judge.receive()) is not None:
            if isinstance(frame, list) and len(frame) == 4 and frame[0] in ("call", "do"):
                await judge.send(await candidate.relay(frame))
            else:
                report.take(frame, judge.elapsed)
        await candidate.close()
        ended = await judge.wait(0 if candidate.hopeless else EXIT_TIMEOUT_S)
    if candidate.broke_protocol:
        return report.all_failed(PROTOCOL_ERROR_TEXT), candidate.process
    if candidate.failed:
        return report.all_failed(format_error(candidate.failed)), candidate.process
    ending, error = find_ending(ended, report.done, patient)
    if error and candidate.process.ending == "ok":
        # The tests failed to run, and not the candidate: the verdict must not read as if all had gone well.
        candidate.process.ending, candidate.process.error = ending, error
    return report.results(
        f"the tests did not come to their end: {format_error(error)}" if error else NOT_RUN
    ), candidate.process
