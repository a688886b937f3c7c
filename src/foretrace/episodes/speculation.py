"""Live speculation: what the model will probably ask for is run while it writes, and handed over if it does ask.

An act is carried out as a few operations: a program that is run, a judgement, a block of the session. An operation that
was begun early is handed over only for exactly the same operation, so that a trace is the same with and without
speculation, clocks apart. Programs and judgements run in fresh processes of a sandbox of their own; a block runs on a
checkpoint of the attempt's own session, which undoes all but files, so only code that changes nothing but memory may.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

import msgspec

from foretrace.actions.label_steps import classify_lone_call
from foretrace.actions.taxonomy import Effect
from foretrace.core.entry_points import read_entry_point
from foretrace.core.errors import ForetraceError, Setting, UsageError
from foretrace.core.files import replace_file
from foretrace.core.predictions import (
    PredictedCall,
    Prediction,
    PredictionsHeader,
    read_predictions,
    write_predictions,
)
from foretrace.core.problem import RunResult, Test, Verdict
from foretrace.core.python_source import try_parse
from foretrace.core.report import Report
from foretrace.core.trace import Isolation, Message, ToolCall, ToolSpec
from foretrace.episodes.transcript import TOOL_NAMES
from foretrace.protocols.base import Act, Handling, Result
from foretrace.sandbox.base import Sandbox, Session

REPORT_FILE, GUESSES_FILE, LAUNCHES_FILE = "speculation.json", "guesses.jsonl", "launches.jsonl"
"""Beside the manifest of the traces: what speculation gave, what was guessed, as `replay` reads it, and what was begun
early, as `view` draws it."""
JUDGING = "final judging"
"""Name in a report of the judging at the end of an attempt, which is not a call of the model."""
MIN_LEVEL = 2
"""Isolation below this lets code change files that outlive its run."""
_HANDED_OVER = ("ok", "error", "exit")
"""Endings that say nothing of the load of the machine. What ended otherwise is run again when it is asked for."""


class SpeculationSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How much is run early."""

    width: int = 2
    """Operations that run early at one time."""
    top: int = 2
    """Guesses at each reply that are run."""
    threshold: float | None = None
    """Confidence that a guess needs; one without is then not run."""
    max_wasted: float | None = None
    """Seconds run for nothing after which no more is run early."""
    max_tokens: int | None = None
    """Tokens of guesses after which no more is guessed."""

    def check(self) -> None:
        """Refuse what cannot be served.

        Raises:
            UsageError: names the setting.
        """
        for name in ("width", "top"):
            if getattr(self, name) < 1:
                raise UsageError(Setting(f"speculate_{name}", getattr(self, name)), ": choose 1 or more")


class Situation(NamedTuple):
    """An attempt before a reply of the model, as a proposer sees it."""

    key: str
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...]
    handlings: frozenset[Handling]
    """Of the protocol's acts."""
    entry_point: str | None
    """What the answer must define."""
    code: str
    """The answer so far."""
    last: Result | None
    """Of the last act."""


class Proposer(Protocol):
    """Guesses at the next calls of a model."""

    name: str

    async def propose(self, situation: Situation, k: int) -> Sequence[Prediction]:
        """At most `k` guesses, the likeliest first; cancelled when the reply is there."""
        ...


@runtime_checkable
class Startable(Protocol):
    """A proposer that must be started."""

    async def start(self) -> None:
        """Make sure that it can be asked.

        Raises:
            ModelError: its server cannot be reached.
        """
        ...


class NextTests:
    """Guesses that the model lets its answer be tested as soon as it is whole, and hands it in once it passes."""

    name = "tests"

    async def propose(self, situation: Situation, k: int) -> Sequence[Prediction]:
        """The tests and the final judging, where the protocol has a way to ask for them (see `Proposer.propose`)."""
        last, calls = situation.last, list[tuple[str, str]]()
        if last is None or last.broken or not _is_whole(situation.code, situation.entry_point):
            return ()
        if "check" in situation.handlings and last.act.handling in ("block", "append"):
            calls = [("verifier", "run_tests"), ("final_answer", "submit")]
        elif last.act.handling == "test" and not last.failed:
            calls = [("final_answer", "submit")]
        step = len(situation.messages)
        return [
            Prediction(key=situation.key, step=step, rank=rank, action=action, calls=(PredictedCall(tool),))
            for rank, (action, tool) in enumerate(calls[:k], 1)
        ]


def _is_whole(code: str, entry_point: str | None) -> bool:
    """Whether code parses, and defines what an answer must."""
    tree, wanted = try_parse(code), None if entry_point is None else read_entry_point(entry_point)
    return tree is not None and (
        wanted is None or any(getattr(node, "name", None) == wanted.name for node in tree.body)
    )


class RecordedGuesses:
    """Guesses that stand in a file of predictions.

    Args:
        rows: By key of the attempt and index of the message, the best first.
    """

    def __init__(self, name: str, rows: Mapping[tuple[str, int], Sequence[Prediction]]) -> None:
        self.name, self._rows = name, rows

    async def propose(self, situation: Situation, k: int) -> Sequence[Prediction]:
        """See `Proposer.propose`."""
        return self._rows.get((situation.key, len(situation.messages)), ())[:k]


class Operation(NamedTuple):
    """One thing that a sandbox does for an act; equal operations have equal results."""

    code: str
    tests: tuple[Test, ...] | None = None
    """Judge by these; `None` runs the code."""
    session: Session | None = None
    """Run it as a block of this session."""
    at: int = 0
    """State of the session that the block is run on."""
    number: int = 0
    """In the file's name of the block."""


class Row(msgspec.Struct):
    """What was done for the calls of one tool."""

    calls: int = 0
    hits: int = 0
    """Calls for which something was handed over that had been begun early."""
    seconds: float = 0.0
    """That the calls would have taken."""
    saved_s: float = 0.0
    launched: int = 0
    """Operations that were begun early for a guess at this tool."""
    used: int = 0
    """Of those, the ones that were handed over."""
    wasted_s: float = 0.0
    """Seconds that the others ran."""


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """One operation that was begun early."""

    key: str
    """Of the trace."""
    step: int
    """Index of the message that the model was writing."""
    tool: str
    after_s: float
    """Seconds of that reply before it began."""
    seconds: float
    """That it ran."""
    used: bool
    saved_s: float = 0.0


class SpeculationReport(Report, msgspec.Struct, frozen=True, kw_only=True):
    """What speculation gave in one run."""

    predictor: str
    guesses: int
    late: int
    """Replies that were there before the guesses at them."""
    refused: int
    """Guessed calls that could not be run early: they cannot be read, the protocol has no such call, or their effect is
    not known or not undone by dropping a fork."""
    failed: str | None
    """The first failure of the predictor, or of what began its guesses, in words."""
    tokens: int
    """That the predictor wrote, where it says so; for a late guess of a model, the most that it can have written."""
    guess_s: float
    """Mean seconds of the predictor for one reply."""
    tool_s: float
    """Seconds that the calls of the model would have taken, without the final judging."""
    saved_s: float
    """Of these."""
    judging_saved_s: float
    wasted_s: float
    settings: SpeculationSettings
    rows: dict[str, Row]

    @property
    def share(self) -> float | None:
        """Share of the tools' seconds that is saved; `None` where there are none."""
        return self.saved_s / self.tool_s if self.tool_s else None


class Speculation:
    """Speculation in one run: who guesses, where operations run early, and what became of them.

    Args:
        sandbox: For programs and judgements; best one of its own, so that the attempts' own runs never wait.
        max_answer: Tokens that are counted for a guess that comes too late: the most that it can have taken.
    """

    def __init__(
        self, proposer: Proposer, sandbox: Sandbox, settings: SpeculationSettings | None = None, max_answer: int = 0
    ) -> None:
        self.proposer, self.sandbox, self._max_answer = proposer, sandbox, max_answer
        self.settings = settings or SpeculationSettings()
        self.settings.check()
        self.slots = asyncio.Semaphore(self.settings.width)
        self.ending: set[asyncio.Task[None]] = set()
        """Early runs that are being ended, for which no attempt waits."""
        self.rows: dict[str, Row] = {}
        self.refused = self.late = self.tokens = 0
        self.launches: list[Launch] = []
        self.keys: set[str] = set()
        """Of the attempts that were made."""
        self._guesses: list[Prediction] = []
        self._seconds: list[float] = []
        self._failed: str | None = None

    def row(self, name: str) -> Row:
        """The figures of a tool."""
        return self.rows.setdefault(name, Row())

    async def propose(self, situation: Situation) -> list[Prediction]:
        """The guesses that are to be run. A predictor that fails guesses nothing: no attempt suffers from it."""
        started, settings = time.perf_counter(), self.settings
        self.keys.add(situation.key)
        if settings.max_wasted is not None and sum(row.wasted_s for row in self.rows.values()) >= settings.max_wasted:
            return []
        if settings.max_tokens is not None and self.tokens >= settings.max_tokens:
            return []
        try:
            found = await self.proposer.propose(situation, settings.top)
        except asyncio.CancelledError:  # the reply is there
            self.late += 1
            self.tokens += self._max_answer
            raise
        except Exception as error:  # a user's own may fail in any way
            self.note_failure(error)
            return []
        seconds = time.perf_counter() - started
        self._seconds.append(seconds)
        found = [msgspec.structs.replace(guess, seconds=seconds) for guess in found]
        self._guesses += found
        self.tokens += sum(guess.tokens or 0 for guess in found)
        return [guess for guess in found if settings.threshold is None or (guess.confidence or 0) >= settings.threshold]

    def note_failure(self, error: Exception) -> None:
        """Keep the first failure for the report."""
        self._failed = self._failed or f"{type(error).__name__}: {error}"

    async def start(self, isolation: Isolation) -> None:
        """Start the sandbox, where the attempts' own code is isolated like this.

        Raises:
            UsageError: what code does there is not undone with its process.
            ModelError: a model that guesses cannot be reached.
        """
        if isolation.level < MIN_LEVEL:
            why = f": needs isolation level {MIN_LEVEL}, and this is level {isolation.level}; leave it out"
            raise UsageError(Setting("speculate", self.proposer.name), why)
        if isinstance(self.proposer, Startable):
            await self.proposer.start()
        await self.sandbox.start()

    async def close(self) -> None:
        """Wait until all that was dropped has ended."""
        while self.ending:
            await asyncio.wait(self.ending)

    def make_report(self) -> SpeculationReport:
        """What came of it so far."""
        calls = [row for name, row in self.rows.items() if name != JUDGING]
        return SpeculationReport(
            predictor=self.proposer.name,
            guesses=len(self._guesses),
            late=self.late,
            refused=self.refused,
            failed=self._failed,
            tokens=self.tokens,
            guess_s=sum(self._seconds) / len(self._seconds) if self._seconds else 0.0,
            tool_s=sum(row.seconds for row in calls),
            saved_s=sum(row.saved_s for row in calls),
            judging_saved_s=self.row(JUDGING).saved_s,
            wasted_s=sum(row.wasted_s for row in self.rows.values()),
            settings=self.settings,
            rows=dict(sorted(self.rows.items())),
        )

    def write(self, folder: Path) -> SpeculationReport:
        """Write the report beside the traces, and the guesses and launches of this run beside those of earlier ones.

        Raises:
            StoreError: they cannot be written.
        """
        report = self.make_report()
        if not self.keys:  # no attempt was made: what is there stays
            return report
        replace_file(folder / REPORT_FILE, msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n")
        header = PredictionsHeader(predictor=self.proposer.name, k=self.settings.top, steps=len(self._seconds))
        rows = sorted(self._list_guesses(folder), key=lambda guess: (guess.key, guess.step, guess.rank))
        write_predictions(folder / GUESSES_FILE, header, rows)
        earlier = [each for key, found in read_launches(folder).items() if key not in self.keys for each in found]
        launches = sorted([*earlier, *self.launches], key=lambda launch: (launch.key, launch.step, launch.after_s))
        replace_file(folder / LAUNCHES_FILE, b"".join(msgspec.json.encode(launch) + b"\n" for launch in launches))
        return report

    def _list_guesses(self, folder: Path) -> list[Prediction]:
        """The guesses of this run, and those of earlier runs at other attempts."""
        earlier: Sequence[Prediction] = ()
        if (folder / GUESSES_FILE).exists():
            with contextlib.suppress(ForetraceError):  # what cannot be read is replaced
                earlier = read_predictions(folder / GUESSES_FILE).rows
        return [*(guess for guess in earlier if guess.key not in self.keys), *self._guesses]


def read_launches(folder: Path) -> dict[str, list[Launch]]:
    """By key of the trace: what was begun early while it was made; nothing where nothing was."""
    found: dict[str, list[Launch]] = {}
    with contextlib.suppress(OSError, msgspec.MsgspecError):
        for line in (folder / LAUNCHES_FILE).read_bytes().splitlines():
            launch = msgspec.json.decode(line, type=Launch)
            found.setdefault(launch.key, []).append(launch)
    return found


def read_call(call: PredictedCall, handlings: frozenset[Handling]) -> Act | None:
    """The act that a guessed call stands for; `None` where the protocol has none."""
    handling: Handling | None = next(
        (one for one in TOOL_NAMES if one in handlings and TOOL_NAMES[one] == call.tool), None
    )
    try:
        arguments = msgspec.json.decode(call.arguments, type=dict[str, Any])
    except msgspec.DecodeError:
        return None
    code = arguments.get("checks" if handling == "check" else "code", "")
    if handling is None or not isinstance(code, str):
        return None
    return Act(kind="code", span=(0, 0), code=code, handling=handling)


def is_safe(call: PredictedCall, tools: tuple[ToolSpec, ...]) -> bool:
    """Whether the effect of a call is known, and is undone with the process that made it."""
    facts = classify_lone_call(ToolCall(name=call.tool, arguments=call.arguments), tools)
    return facts.effect in (Effect.PURE_READ, Effect.SANDBOX_EXEC)


class _Turn(NamedTuple):
    """One reply that is waited for."""

    key: str
    step: int
    began: float


class _EarlyRun:
    """One operation that was begun early, for a guess at a call of `tool`."""

    def __init__(self, tool: str, session: Session | None, at: int, turn: _Turn) -> None:
        self.tool, self.session, self.at, self.turn = tool, session, at, turn
        self.task: asyncio.Task[Any]
        self.started: float | None = None
        """When it got a slot."""
        self.seconds = 0.0
        """That it ran."""

    def describe(self, *, used: bool, saved_s: float = 0.0) -> Launch:
        """What became of it."""
        after_s = (self.started or self.turn.began) - self.turn.began
        return Launch(
            key=self.turn.key,
            step=self.turn.step,
            tool=self.tool,
            after_s=round(after_s, 4),
            seconds=round(self.seconds, 4),
            used=used,
            saved_s=round(saved_s, 4),
        )


class EarlyRuns:
    """The operations of one attempt that were begun early; without `speculation`, none ever is."""

    def __init__(self, speculation: Speculation | None = None) -> None:
        self.speculation = speculation
        self._runs: dict[Operation, list[_EarlyRun]] = {}
        self._session_turn = asyncio.Lock()
        """A session runs one block at a time; what waits for that has not begun."""
        self.used, self.saved_s = 0, 0.0
        """Of all operations so far that were handed over."""
        self._turn = _Turn("", 0, 0.0)

    def begin_turn(self, key: str, step: int) -> None:
        """Note that the reply with this index is now being waited for."""
        self._turn = _Turn(key, step, time.perf_counter())

    def begin(self, tool: str, operation: Operation, run: Callable[[], Awaitable[Any]]) -> None:
        """Begin an operation for a guess at a call of `tool`, as soon as there is a slot."""
        early = _EarlyRun(tool, operation.session, operation.at, self._turn)
        early.task = asyncio.create_task(self._run(early, run))
        self._runs.setdefault(operation, []).append(early)

    async def _run(self, early: _EarlyRun, run: Callable[[], Awaitable[Any]]) -> Any:
        assert self.speculation is not None
        in_turn = contextlib.nullcontext() if early.session is None else self._session_turn
        async with in_turn, self.speculation.slots:
            self.speculation.row(early.tool).launched += 1
            early.started = time.perf_counter()
            try:
                return await run()
            finally:
                early.seconds = time.perf_counter() - early.started

    async def take(self, operation: Operation, run: Callable[[], Awaitable[Any]]) -> Any:
        """The result of an operation: of the one that was begun early, else `run` does it now."""
        same = self._runs.get(operation)
        if not same or self.speculation is None:
            return await run()
        early = same.pop(0)
        asked = time.perf_counter()
        result = await self._await(early)
        if not isinstance(result, (RunResult, Verdict)) or result.ending not in _HANDED_OVER:
            await self._drop([early])
            return await run()
        if operation.session is not None and isinstance(result, RunResult):
            operation.session.keep(result, operation.at)
        saved_s = max(0.0, early.seconds - (time.perf_counter() - asked))
        self.used, self.saved_s = self.used + 1, self.saved_s + saved_s
        self.speculation.row(early.tool).used += 1
        self.speculation.launches.append(early.describe(used=True, saved_s=saved_s))
        return result

    async def _await(self, early: _EarlyRun) -> Any:
        """The result of an early run; `None` where it has no slot yet, or failed."""
        if early.started is None:
            return None
        with contextlib.suppress(Exception):  # it is run again, and fails again or not
            return await early.task
        return None

    async def keep_only(self, operations: Iterable[Operation]) -> None:
        """Drop all early runs but those of these operations."""
        wanted = set(operations)
        dropped = [early for operation in self._runs.keys() - wanted for early in self._runs.pop(operation)]
        await self._drop(dropped)

    async def _drop(self, dropped: Sequence[_EarlyRun]) -> None:
        """End early runs, and undo what they did. Only those in the attempt's own session are waited for."""
        for early in dropped:
            early.task.cancel()
        for early in dropped:
            ending = asyncio.create_task(self._end(early))
            if early.session is not None:
                await ending
            elif self.speculation is not None:
                self.speculation.ending.add(ending)
                ending.add_done_callback(self.speculation.ending.discard)

    async def _end(self, early: _EarlyRun) -> None:
        await asyncio.wait([early.task])
        if self.speculation is not None:
            self.speculation.row(early.tool).wasted_s += early.seconds
            if early.started is not None:
                self.speculation.launches.append(early.describe(used=False))
        done = not early.task.cancelled() and early.task.exception() is None
        if done and early.session is not None:
            await early.session.forget(early.task.result(), early.at)

    async def drop_all(self) -> None:
        """Drop all early runs."""
        await self.keep_only(())

    def count(self, name: str, seconds: float, before: tuple[int, float]) -> float:
        """Count a call that was carried out in so many seconds; returns those that it would have taken.

        Args:
            before: `used` and `saved_s` before it.
        """
        used, saved_s = self.used - before[0], self.saved_s - before[1]
        if self.speculation is not None:
            row = self.speculation.row(name)
            row.calls, row.hits = row.calls + 1, row.hits + bool(used)
            row.seconds, row.saved_s = row.seconds + seconds + saved_s, row.saved_s + saved_s
        return seconds + saved_s
