"""The form `values`: has the calls of an answer made, in as few processes as possible, and returns their outcomes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec

from foretrace.core.problem import Ending, RunError
from foretrace.sandbox.base import Limits
from foretrace.sandbox.forkserver.child_channel import ChildChannel, StartChild
from foretrace.sandbox.forkserver.run_result import (
    PROTOCOL_ERROR_TEXT,
    ChildExit,
    make_exit_error,
    make_protocol_error,
    read_error,
)
from foretrace.sandbox.inside.wire.frames import FrameError, unpack_frame
from foretrace.sandbox.inside.wire.values import Decoder

EXIT_TIMEOUT_S = 1.0
"""Seconds that a process gets to exit on its own once it has nothing left to do."""
MAX_PROCESSES = 3
"""Most processes for one verdict, one after another, within the limits of one run."""
NOT_RUN = "not run"


class CallAnswer(msgspec.Struct):
    """The outcome of one call."""

    value: Any = None
    is_plain: bool = True
    """Whether the value is plain data, which can be compared here as Python compares it."""
    error: str | None = NOT_RUN
    """Why there is no value."""
    seconds: float | None = None


class ProcessTotals(msgspec.Struct):
    """Totals of all processes of a verdict."""

    ending: Ending = "ok"
    error: RunError | None = None
    stdout: str = ""
    stderr: str = ""
    seconds: float = 0.0
    cpu_s: float = 0.0
    count: int = 0
    flags: set[str] = set()

    def find_next_limits(self, limits: Limits) -> Limits | None:
        """What is left of a verdict's limits for its next process; None if it is too little."""
        wall_s = limits.wall_s - self.seconds
        # CPU time is limited in whole seconds.
        cpu_s = limits.cpu_s if not self.count else float(round(limits.cpu_s - self.cpu_s))
        if self.count >= MAX_PROCESSES or wall_s < limits.wall_s / 10 or cpu_s <= 0:
            return None
        return msgspec.structs.replace(limits, wall_s=wall_s, cpu_s=cpu_s)

    def add(self, ended: ChildExit, ending: Ending, error: RunError | None, *, beside: bool = False) -> None:
        """Add the exit of one process; the first ending other than `ok` is kept.

        Args:
            beside: whether it ran at the same time as the one before.
        """
        self.count += not beside
        self.seconds += 0.0 if beside else ended.seconds
        self.cpu_s += ended.cpu_s or 0.0
        self.stdout = (self.stdout + ended.stdout)[: 1 << 20]
        self.stderr = (self.stderr + ended.stderr)[: 1 << 20]
        if self.ending == "ok":
            self.ending = ending
            self.error = error
        if ending == "exit":
            self.flags.add("exited")
        if error is not None and error.kind == "OutOfTurn":
            self.flags.add("tampered")


def find_ending(ended: ChildExit, whole: bool, limits: Limits) -> tuple[Ending, RunError | None]:
    """The ending of a process that should have answered and then exited.

    Args:
        whole: whether it gave all its answers.
    """
    if ended.ending not in ("ok", "exit"):
        return ended.ending, make_exit_error(ended, limits)
    if whole and ended.ending == "ok" and not ended.exit_code:
        return "ok", None
    return "exit", RunError(kind="Exit", message=f"the code left the process with exit code {ended.exit_code or 0}")


def find_load_ending(error: RunError) -> Ending:
    """The ending of code that could not be loaded."""
    return {"MemoryError": "memory", "SystemExit": "exit"}.get(error.kind, "error")  # type: ignore[return-value]


def format_error(error: RunError) -> str:
    """An error in one line."""
    return f"{error.kind}: {error.message}"[:500] if error.message else error.kind


def read_answer(message: Any) -> CallAnswer | None:
    """Parse the message of the answer's process about a call; None if it is invalid."""
    if not isinstance(message, list):
        return None
    if message[0:1] == ["raised"] and len(message) == 2:
        error = read_error(message[1])
        return None if error is None else CallAnswer(error=format_error(error))
    if message[0:1] == ["value"] and len(message) == 3 and message[2] is None:
        decoder = Decoder()
        try:
            value = decoder.decode(message[1])
        except ValueError:
            return None
        return CallAnswer(value=value, is_plain=decoder.is_plain, error=None)
    return None


async def make_calls(
    start_child: StartChild, request: dict[str, Any], calls: Sequence[Any], limits: Limits, process: ProcessTotals
) -> list[CallAnswer]:
    """Make all calls. If one ends the process, the calls after it are made in a fresh process while there is time.

    Answers count even if the process fails after them, since only their values are compared. If a process breaks the
    protocol, none of its answers counts, and no other process is started.

    Args:
        request: what the answer's process gets besides the calls.
    """
    answers = [CallAnswer() for _ in calls]
    position = 0
    while position < len(calls) or not process.count:
        allowed = process.find_next_limits(limits)
        if allowed is None:
            break
        async with start_child({**request, "mode": "answer", "calls": calls[position:]}, allowed) as child:
            got, failed, wrong = await _receive_answers(child, len(calls) - position)
            if wrong:
                child.stop()
            ended = await child.wait(EXIT_TIMEOUT_S)
        if wrong or child.broken:
            process.add(ended, "killed", make_protocol_error())
            for answer in answers[position:]:
                answer.error = PROTOCOL_ERROR_TEXT
            break
        if failed is not None:
            process.add(ended, find_load_ending(failed), failed)
            for answer in answers[position:]:
                answer.error = format_error(failed)
            break
        ending, error = find_ending(ended, got is not None and len(got) == len(calls) - position, allowed)
        process.add(ended, ending, error)
        if got is None:  # the code was not even loaded
            for answer in answers[position:]:
                answer.error = format_error(error) if error else NOT_RUN
            break
        answers[position : position + len(got)] = got
        position += len(got)
        if position < len(calls) and error is not None:
            answers[position] = CallAnswer(error=format_error(error), seconds=ended.seconds)
            position += 1
            if ending == "lost":
                break
    return answers


async def _receive_answers(child: ChildChannel, count: int) -> tuple[list[CallAnswer] | None, RunError | None, bool]:
    """The answers of one process (None: it ended before the code was loaded), why the code could not be loaded, and
    whether the process broke the protocol."""
    message = await child.receive()
    if message is None:
        return None, None, False
    if isinstance(message, list) and len(message) == 2 and message[0] == "failed":
        error = read_error(message[1])
        return None, error, error is None
    if message != ["loaded"]:
        return None, None, True
    answers: list[CallAnswer] = []
    before = child.elapsed
    while len(answers) < count and (body := await child.receive_bytes()) is not None:
        if len(body) > _LONG:  # so that the event loop is not blocked
            answer = await asyncio.to_thread(_read_body, body)
        else:
            answer = _read_body(body)
        if answer is None:
            return answers, None, True
        answer.seconds, before = child.elapsed - before, child.elapsed
        answers.append(answer)
    return answers, None, False


def _read_body(body: bytes) -> CallAnswer | None:
    try:
        return read_answer(unpack_frame(body))
    except FrameError:
        return None


_LONG = 1 << 18
