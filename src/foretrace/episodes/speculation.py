"""Live speculation: who guesses, within which limits guessed calls run early in one run, and the early runs of one
attempt, whose results are used if the model makes these calls.

An act is carried out as a few operations: a program run, a judgment, a block of the session. The result of an early
operation is used only for exactly the same operation, so a trace is the same with and without speculation, except for
times. Programs and judgments run in fresh processes of a separate sandbox. A block runs on a checkpoint of the
attempt's own session. Dropping it undoes all changes but those of files, so only code that changes memory alone may.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from foretrace.actions.taxonomy import ActionType
from foretrace.core.errors import Setting, UsageError
from foretrace.core.files import replace_file
from foretrace.core.predictions import GUESSES_FILE, Prediction, PredictionsHeader, encode_prediction
from foretrace.core.problem import RunResult, Test
from foretrace.core.trace import Isolation
from foretrace.episodes.proposers import Proposer, Situation
from foretrace.episodes.speculation_report import (
    LAUNCHES_FILE,
    REPORT_FILE,
    Launch,
    Row,
    SpeculationReport,
    SpeculationSettings,
    append_lines,
    start_file,
)
from foretrace.sandbox.base import CpuMeter, Sandbox, Session, measure_cpu

MIN_LEVEL = 2
"""Isolation below this lets code change files that outlive its run."""
_HANDED_OVER = ("ok", "error", "exit")
"""Endings that do not depend on the load of the machine. After any other, the operation is run again when needed."""


class AttemptLog(NamedTuple):
    """The guesses for one attempt, and what was started early in it."""

    guesses: list[Prediction]
    launches: list[Launch]


class Speculation:
    """Speculation in one run. The `sandbox` runs early programs and judgments; ideally a separate one, so that the
    attempts' own runs never wait."""

    def __init__(self, proposer: Proposer, sandbox: Sandbox, settings: SpeculationSettings | None = None) -> None:
        self.proposer, self.sandbox = proposer, sandbox
        self.settings = settings or SpeculationSettings()
        self.settings.check()
        self.slots = asyncio.Semaphore(self.settings.width)
        self.rows: dict[ActionType, Row] = {}
        self.refused = self.late = self._tokens = 0
        self._logs: dict[str, AttemptLog] = {}
        """Logs of attempts that are not stored yet, by key."""
        self._folder: Path | None = None
        self._guesses = 0
        self._failed: str | None = None

    def find_row(self, action: ActionType, tool: str) -> Row:
        """The figures of an action type, to which a call of this tool is added."""
        row = self.rows.setdefault(action, Row())
        if tool not in row.tools:
            row.tools = sorted([*row.tools, tool])
        return row

    def begin_attempt(self, key: str) -> AttemptLog:
        """A new log for an attempt; it replaces the log of an earlier try."""
        log = self._logs[key] = AttemptLog([], [])
        return log

    async def propose(self, situation: Situation) -> list[Prediction]:
        """The guesses to run."""
        started, settings = time.perf_counter(), self.settings
        wasted = sum(row.wasted_cpu_s for row in self.rows.values())
        for spent, most in ((wasted, settings.max_wasted), (self._tokens, settings.max_tokens)):
            if most is not None and spent >= most:
                return []
        try:
            found = await self.proposer.propose(situation, settings.top)
        except asyncio.CancelledError:  # the reply has arrived
            self.late += 1
            self._tokens += self.proposer.max_tokens
            raise
        seconds = time.perf_counter() - started
        found = [msgspec.structs.replace(guess, seconds=seconds) for guess in found]
        self._logs[situation.key].guesses.extend(found)
        self._guesses += len(found)
        self._tokens += sum(guess.tokens or 0 for guess in found)
        return [guess for guess in found if settings.threshold is None or (guess.confidence or 0) >= settings.threshold]

    def note_failure(self, error: Exception) -> None:
        """Keep the first failure for the report."""
        self._failed = self._failed or f"{type(error).__name__}: {error}"

    async def start(self, isolation: Isolation) -> None:
        """Start the proposer and the sandbox. A UsageError says that `isolation`, that of the attempts' own code, is
        too weak: what code does would outlive its process."""
        if isolation.level < MIN_LEVEL:
            why = f": needs isolation level {MIN_LEVEL}, and this is level {isolation.level}; leave it out"
            raise UsageError(Setting("speculate", self.proposer.name), why)
        await self.proposer.start()
        await self.sandbox.start()

    def open_files(self, folder: Path, again: Collection[str]) -> None:
        """Begin the files of guesses and launches next to the traces; lines of attempts made `again` are removed."""
        header = PredictionsHeader(predictor=self.proposer.name, k=self.settings.top)
        start_file(folder / GUESSES_FILE, msgspec.json.encode(header) + b"\n", again)
        start_file(folder / LAUNCHES_FILE, b"", again)
        self._folder = folder

    def store_attempt(self, key: str, *, kept: bool) -> None:
        """Write the log of an attempt that has ended, if its trace is kept. It comes before the trace: however the run
        ends, every stored trace has its guesses and launches."""
        log = self._logs.pop(key, None)
        if log is not None and kept and self._folder is not None:
            append_lines(self._folder / GUESSES_FILE, map(encode_prediction, log.guesses))
            append_lines(self._folder / LAUNCHES_FILE, map(msgspec.json.encode, log.launches))

    def make_report(self) -> SpeculationReport:
        judging = self.rows.get(ActionType.FINAL_ANSWER, Row())
        rows = self.rows.values()
        return SpeculationReport(
            predictor=self.proposer.name,
            guesses=self._guesses,
            late=self.late,
            refused=self.refused,
            failed=self._failed,
            tool_s=sum(row.seconds for row in rows) - judging.seconds,
            saved_s=sum(row.saved_s for row in rows) - judging.saved_s,
            judging_saved_s=judging.saved_s,
            wasted_s=sum(row.wasted_s for row in rows),
            wasted_cpu_s=sum(row.wasted_cpu_s for row in rows),
            settings=self.settings,
            rows={action.value: self.rows[action] for action in ActionType if action in self.rows},
        )

    def write_report(self, folder: Path) -> SpeculationReport:
        """Write the figures of this run next to the traces."""
        report = self.make_report()
        replace_file(folder / REPORT_FILE, msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n")
        return report


class Operation(NamedTuple):
    """One thing that a sandbox does for an act; equal operations have equal results."""

    code: str
    tests: tuple[Test, ...] | None = None
    """Tests to judge the code by; `None` runs it."""
    session: Session | None = None
    """The session to run the code in, as a block."""
    at: int = 0
    """State of the session that the block runs on."""
    number: int = 0
    """Number in the block's file name."""


class ReportedCall(NamedTuple):
    """A call as the report counts it."""

    action: ActionType
    tool: str


class CallStart(NamedTuple):
    """When a call began, and what early runs had saved until then."""

    at: float
    used: int
    saved_s: float


@dataclass(eq=False)
class _EarlyRun:
    """One operation that was started early."""

    call: ReportedCall
    operation: Operation
    step: int
    turn_began: float
    task: asyncio.Task[Any] = field(init=False)
    started: float | None = None
    """Time at which it got a slot."""
    seconds: float = 0.0
    cpu: CpuMeter = field(default_factory=CpuMeter)


class EarlyRuns:
    """The early operations of one attempt; without `speculation` there are none."""

    def __init__(self, speculation: Speculation | None = None, key: str = "") -> None:
        self.speculation, self._key = speculation, key
        self._log = None if speculation is None else speculation.begin_attempt(key)
        self._runs: dict[Operation, list[_EarlyRun]] = {}
        self._ending: set[asyncio.Task[None]] = set()
        """Tasks that end dropped early runs."""
        self._session_turn = asyncio.Lock()
        """A session runs one block at a time; a run that waits for its turn has not started."""
        self._used, self._saved_s = 0, 0.0
        """Number of early results used so far, and the seconds they saved."""
        self._step, self._turn_began = 0, 0.0

    def begin_turn(self, step: int) -> None:
        """Note that the attempt now waits for the reply with this index."""
        self._step, self._turn_began = step, time.perf_counter()

    def begin(self, call: ReportedCall, operation: Operation, run: Callable[[], Awaitable[Any]]) -> None:
        """Start an operation of a guessed call as soon as a slot is free."""
        assert self.speculation is not None
        early = _EarlyRun(call, operation, self._step, self._turn_began)
        early.task = asyncio.create_task(self._run(early, run, self.speculation))
        self._runs.setdefault(operation, []).append(early)

    async def _run(self, early: _EarlyRun, run: Callable[[], Awaitable[Any]], speculation: Speculation) -> Any:
        in_turn = contextlib.nullcontext() if early.operation.session is None else self._session_turn
        async with in_turn, speculation.slots:
            speculation.find_row(*early.call).launched += 1
            early.started, early.cpu = time.perf_counter(), measure_cpu()
            try:
                return await run()
            finally:
                early.seconds = time.perf_counter() - early.started

    async def take(self, operation: Operation, run: Callable[[], Awaitable[Any]]) -> Any:
        """The result of an operation: that of its early run if there is one, else of `run`."""
        same = self._runs.get(operation)
        if not same:
            return await run()
        early, asked, result = same.pop(0), time.perf_counter(), None
        if early.started is not None:
            with contextlib.suppress(Exception):  # it is run again, which may fail again
                result = await early.task
        if result is None or result.ending not in _HANDED_OVER:
            await self._drop([early])
            return await run()
        if operation.session is not None and isinstance(result, RunResult):
            operation.session.keep(result, operation.at)
        saved_s = max(0.0, early.seconds - (time.perf_counter() - asked))
        self._used, self._saved_s = self._used + 1, self._saved_s + saved_s
        self._note_end(early, saved_s)
        return result

    def _note_end(self, early: _EarlyRun, saved_s: float | None) -> None:
        """Record the outcome of an early run; `saved_s` is `None` if it was dropped."""
        if self.speculation is None or self._log is None or early.started is None:
            return
        row = self.speculation.find_row(*early.call)
        if saved_s is not None:
            row.used += 1
        else:
            row.wasted_s, row.wasted_cpu_s = row.wasted_s + early.seconds, row.wasted_cpu_s + early.cpu.seconds
        launch = Launch(
            key=self._key,
            step=early.step,
            tool=early.call.tool,
            after_s=round(early.started - early.turn_began, 4),
            seconds=round(early.seconds, 4),
            used=saved_s is not None,
            saved_s=round(saved_s or 0.0, 4),
        )
        self._log.launches.append(launch)

    async def keep_only(self, operations: Iterable[Operation]) -> None:
        """Drop all early runs except those of these operations."""
        wanted = set(operations)
        dropped = [early for operation in self._runs.keys() - wanted for early in self._runs.pop(operation)]
        await self._drop(dropped)

    async def _drop(self, dropped: Sequence[_EarlyRun]) -> None:
        """End early runs, and undo what they did. Only those in the attempt's own session are waited for."""
        for early in dropped:
            early.task.cancel()
        for early in dropped:
            ending = asyncio.create_task(self._end(early))
            self._ending.add(ending)
            ending.add_done_callback(self._ending.discard)
            if early.operation.session is not None:
                await ending

    async def _end(self, early: _EarlyRun) -> None:
        await asyncio.wait([early.task])
        self._note_end(early, None)
        session = early.operation.session
        if session is not None and not early.task.cancelled() and early.task.exception() is None:
            await session.forget(early.task.result(), early.operation.at)

    async def close(self) -> None:
        """Drop all early runs, and wait until they have ended."""
        await self.keep_only(())
        if self._ending:
            await asyncio.wait(self._ending)

    def start_call(self) -> CallStart:
        """Note that a call is now carried out, for `measure` and `count`."""
        return CallStart(time.perf_counter(), self._used, self._saved_s)

    def measure(self, start: CallStart) -> float:
        """Seconds that the call would have taken by now without early runs."""
        return time.perf_counter() - start.at + self._saved_s - start.saved_s

    def count(self, call: ReportedCall, start: CallStart, seconds: float) -> None:
        """Count a call that was carried out in these seconds (see `measure`)."""
        if self.speculation is not None:
            row = self.speculation.find_row(*call)
            row.calls, row.hits = row.calls + 1, row.hits + (self._used > start.used)
            row.seconds, row.saved_s = row.seconds + seconds, row.saved_s + self._saved_s - start.saved_s
