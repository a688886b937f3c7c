"""Live speculation in one run: who guesses, where guessed calls run early, within which limits, and the outcome."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

import msgspec

from foretrace.actions.taxonomy import ActionType
from foretrace.core.errors import Setting, UsageError
from foretrace.core.files import replace_file
from foretrace.core.predictions import GUESSES_FILE, Prediction, PredictionsHeader, encode_prediction
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
from foretrace.sandbox.base import Sandbox

MIN_LEVEL = 2
"""Isolation below this lets code change files that outlive its run."""


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
