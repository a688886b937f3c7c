"""Judging by test code in a process of its own, which speaks with the code's over a socket that only these two have.

Where there can be none, or the code's process had to be replaced, this process passes messages on, unread.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Any, Self

import msgspec

from foretrace.core.problem import RunError, TestResult
from foretrace.sandbox.base import Limits
from foretrace.sandbox.forkserver.child_channel import ChildChannel, Link, StartChild
from foretrace.sandbox.forkserver.child_exit import ChildExit
from foretrace.sandbox.forkserver.run_result import PROTOCOL_ERROR_TEXT, make_protocol_error, read_error
from foretrace.sandbox.inside.wire.direct_channel import ANSWERS, TURN_SLACK_S
from foretrace.sandbox.inside.wire.frames import FrameError, unpack_frame
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

_JUDGE_MEMORY_MB = 1024
_JUDGE_CPU_S = 20.0
_MAX_REQUEST_KB = 1 << 16
_OVERHEAD = 4.0
"""How much longer than the code itself may compute its process may live: the tests and the relay take their time."""
_REPORTS = (b'["test"', b'["done"')
_RESTART = b'["restart"]'
_BROKEN = b'["broken"]'
_OVER = b'["over",'


async def relay(
    start_child: StartChild, plan: JudgePlan, code: str, limits: Limits
) -> tuple[list[TestResult], ProcessTotals]:
    """Judge by the plan's test code."""
    report = TestReport(plan)
    for_tests = msgspec.structs.replace(
        limits,
        wall_s=(_OVERHEAD + 1) * limits.wall_s + 3,
        cpu_s=max(limits.cpu_s, _JUDGE_CPU_S),
        memory_mb=max(limits.memory_mb, _JUDGE_MEMORY_MB),
        reply_kb=_MAX_REQUEST_KB,
    )
    # The tests first: who holds a candidate never waits for another process, so that judgings cannot block one another.
    async with (
        CandidateProcess(start_child, plan, code, limits) as candidate,
        start_child(make_judge_request(plan, code, limits), for_tests, candidate.link) as tests,
    ):
        await candidate.start(linked=tests.linked)
        candidate.link.close()
        if tests.linked and not candidate.is_hopeless:
            await tests.send(["ready", candidate.left_s if candidate.linked else None])
        while not (report.done or candidate.is_hopeless) and (frame := await tests.receive_bytes()) is not None:
            if frame.startswith(_REPORTS):
                report.take(_read(frame), tests.elapsed)
            elif frame.startswith(_OVER):
                reply = await candidate.end_direct_talk(_read(frame))
                if reply is not None:
                    await tests.send(reply)
            elif frame == _BROKEN:
                await candidate.refuse()
            else:
                await tests.send(await candidate.ask(frame))
        await candidate.close()
        ended = await tests.wait(0 if candidate.is_hopeless else EXIT_TIMEOUT_S)
    process = candidate.process
    if candidate.broke_protocol:
        return report.all_failed(PROTOCOL_ERROR_TEXT), process
    if candidate.failed:
        return report.all_failed(format_error(candidate.failed)), process
    ending, error = find_ending(ended, report.done, for_tests)
    if error and process.ending == "ok":
        # The tests failed to run, and not the candidate: the verdict must not read as if all had gone well.
        process.ending, process.error = ending, error
    why = f"the tests did not come to their end: {format_error(error)}" if error else NOT_RUN
    return report.results(why), process


class CandidateProcess:
    """The code's side of a judging: a live process, which is replaced when it ends and the tests go on.

    Its time counts only while it is its turn: neither the tests' own work nor the relay is the code's.
    """

    def __init__(self, start_child: StartChild, plan: JudgePlan, code: str, limits: Limits) -> None:
        self.process = ProcessTotals()
        self.failed: RunError | None = None
        """Why the code cannot be loaded."""
        self.broke_protocol = False
        needs = [plan.entry_point] if plan.entry_point else []
        self._request = {"mode": "candidate", "code": code, "preamble": plan.preamble, "needs": needs}
        self._start_child, self._limits = start_child, limits
        self._allowed = limits
        self._child: ChildChannel | None = None
        self.left_s = limits.wall_s
        """Seconds that the live process may still compute."""
        self.link = Link()
        """What connects the first process with the tests."""
        self.linked = False
        """Whether the live process speaks with the tests without this one."""
        self._exit: asyncio.Task[ChildExit] | None = None
        """Waits for the end of such a process, and takes in meanwhile what it prints."""
        self._stack = contextlib.AsyncExitStack()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: Any) -> None:
        self.link.close()
        if self._exit is not None:
            self._exit.cancel()
        await self._stack.__aexit__(*error)

    @property
    def is_hopeless(self) -> bool:
        """Whether all tests have failed, whatever comes."""
        return self.broke_protocol or self.failed is not None

    async def start(self, *, linked: bool = False) -> bool:
        """Have a process with the code loaded; False when there can be none.

        Args:
            linked: whether the tests have an end of the link, so that the process is to have the other one.
        """
        allowed = self.process.find_next_limits(self._limits)
        if allowed is None or self.is_hopeless:
            return False
        self._allowed, self.left_s = allowed, allowed.wall_s
        patient = msgspec.structs.replace(allowed, wall_s=_OVERHEAD * allowed.wall_s + 2)
        self._child = await self._stack.enter_async_context(
            self._start_child({**self._request, "interactive": True}, patient, self.link if linked else None)
        )
        self.linked = self._child.linked
        frame = await self._listen()
        message = None if frame is None else _read(frame)
        if message == ["loaded"]:
            if self.linked:
                self._exit = asyncio.create_task(_watch(self._child))
            return True
        error = None
        if isinstance(message, list) and len(message) == 2 and message[0] == "failed":
            error = read_error(message[1])
        self.broke_protocol = frame is not None and error is None
        self.failed = await self._end(error, answered=False) or make_protocol_error()
        return False

    async def ask(self, frame: bytes) -> Any:
        """The code's answer to a request of the tests."""
        if frame == _RESTART:
            started = self._child is not None or await self.start()
            return ["restarted"] if started else ["gone", format_error(self.failed) if self.failed else NOT_RUN]
        if self._child is None:
            return ["gone", NOT_RUN]
        await self._child.send(frame)
        answer = await self._listen()
        if answer is not None and answer.startswith(ANSWERS):
            return answer
        self.broke_protocol = answer is not None
        error = await self._end(None, answered=False)
        return ["gone", format_error(error) if error else NOT_RUN]

    async def end_direct_talk(self, message: Any) -> list[Any] | None:
        """Take over where the tests do not speak with the code any more (see `direct_channel`); return what to tell
        them, None for nothing."""
        _, why, left_s = message
        self.left_s = min(self.left_s, left_s)
        if why == "done" or self._child is None:
            return None if why == "done" else ["gone", NOT_RUN]
        if why != "ended":
            self._child.stop()
        error = await self._end(None, answered=False, flooded=why == "flooded")
        return ["gone", format_error(error) if error else NOT_RUN]

    async def refuse(self) -> None:
        """Believe the code in nothing: the tests could not read what it sent."""
        self.broke_protocol = True
        if self._child is not None:
            await self._end(None)

    async def close(self) -> None:
        """Let the process come to its end, after all is judged."""
        if self._child is not None:
            if not self.linked:  # else it notices that the tests have ended
                await self._child.send(["bye"])
            await self._end(None)

    async def _listen(self) -> bytes | None:
        """What the code says next; None when it has ended, or its time is over."""
        assert self._child is not None
        began = time.monotonic()
        timer = self._child.stop_after(max(0.0, self.left_s) + TURN_SLACK_S)
        try:
            return await self._child.receive_bytes()
        finally:
            timer.cancel()
            self.left_s -= max(0.0, time.monotonic() - began - TURN_SLACK_S)

    async def _end(self, failed: RunError | None, *, answered: bool = True, flooded: bool = False) -> RunError | None:
        """Take the end of the live process into account, and say what was wrong with it."""
        assert self._child is not None
        child, self._child = self._child, None
        if self.broke_protocol:
            child.stop()
        ended = await self._wait_for_exit(child)
        await self._stack.aclose()
        used_s = max(0.0, self._allowed.wall_s - self.left_s)
        ended = msgspec.structs.replace(ended, seconds=used_s, ending="output" if flooded else ended.ending)
        if self.broke_protocol or child.broken:
            self.broke_protocol = True
            self.process.add(ended, "killed", make_protocol_error())
            return make_protocol_error()
        if failed is not None:
            self.process.add(ended, find_load_ending(failed), failed)
            return failed
        if self.left_s <= 0:
            late = msgspec.structs.replace(ended, ending="timeout")
            ending, error = find_ending(late, answered, self._allowed)
        else:
            ending, error = find_ending(ended, answered, self._allowed)
        self.process.add(ended, ending, error)
        return error

    async def _wait_for_exit(self, child: ChildChannel) -> ChildExit:
        if self._exit is None:
            return await child.wait(EXIT_TIMEOUT_S)
        task, self._exit = self._exit, None
        timer = child.stop_after(EXIT_TIMEOUT_S)
        try:
            return await task
        finally:
            timer.cancel()


async def _watch(child: ChildChannel) -> ChildExit:
    """Wait for the end of a process that has nothing more to say to this one; one that speaks all the same is ended."""
    if await child.receive_bytes() is not None:
        child.broken = "the process spoke out of turn"
    return await child.wait()


def _read(frame: bytes) -> Any:
    try:
        return unpack_frame(frame)
    except FrameError:
        return None
