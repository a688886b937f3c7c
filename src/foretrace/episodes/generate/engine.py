"""Make many attempts at many problems: hundreds at once on one event loop, resumable at any time."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from foretrace.core.errors import ForetraceError, SandboxError, StoreError
from foretrace.core.journal import Journal
from foretrace.core.problem import Problem
from foretrace.core.report import Report
from foretrace.core.store import TraceWriter
from foretrace.episodes.generate.attempts import AttemptMaker, FinishedAttempt
from foretrace.episodes.generate.journal import AsyncJournal
from foretrace.episodes.generate.progress import RunCounts, RunProgress
from foretrace.episodes.generate.resume import PlannedAttempt, plan_attempts
from foretrace.episodes.generate.settings import GenerateSettings, check_settings
from foretrace.episodes.generate.usage import RunUsage
from foretrace.episodes.identity import Identity, describe_sampling, make_run_name
from foretrace.episodes.requirements import require_capabilities
from foretrace.episodes.speculation import Speculation
from foretrace.episodes.speculation_report import SpeculationReport
from foretrace.models.base import ChatModel
from foretrace.models.token_meter import TokenMeter
from foretrace.problems.base import check_problems
from foretrace.protocols.base import InteractionProtocol
from foretrace.sandbox.base import Sandbox

_TICK_S = 0.25
_MAX_GRACE_S = 60.0
"""Longest grace period of attempts in flight when the time is over."""
_MAX_SANDBOX_FAILURES = 10
"""Consecutive attempts failed by the sandbox after which the run stops."""


class GenerateReport(Report, msgspec.Struct, frozen=True, kw_only=True):
    """The result of a run."""

    counts: RunCounts
    model: str
    protocol: str
    run: str
    """Name of the run, determined by model, protocol, sampling, seed and settings."""
    problems: int
    stopped: str | None
    """Why it stopped before the end, if it did."""
    error: str | None
    """The failure that ended the run, if any."""
    success: float | None
    """Share of this run's attempts without an error that passed all tests; `None` if there are no such attempts."""
    ideal: float | None
    mean_reward: float | None
    recovery: float | None
    """Share of successes among the attempts in which something failed first."""
    metrics: dict[str, float]
    """Means over the attempts of this run without an error."""
    max_tokens: int
    """Limit of one completion."""
    prompt_tokens: int
    completion_tokens: int
    tokens_estimated: bool
    cost: float
    seconds: float
    isolation: dict[str, Any] | None
    damaged: tuple[str, ...]
    """Journals of earlier runs that could not be read completely, under the names they are kept by."""
    redacted: dict[str, int] = {}
    """Number of redactions in the traces of this run, by type."""
    speculation: SpeculationReport | None = None

    def make_facts(self) -> dict[str, Any]:
        """The report as one JSON object, with the counts at the top level."""
        facts = msgspec.to_builtins(self)
        if self.speculation is None:
            del facts["speculation"]
        return {**facts.pop("counts"), **facts}


async def generate(
    problems: Iterable[Problem],
    protocol: InteractionProtocol,
    model: ChatModel,
    sandbox: Sandbox,
    out: Path | str,
    settings: GenerateSettings | None = None,
    *,
    speculation: Speculation | None = None,
    versions: dict[str, str] | None = None,
    progress: Callable[[RunProgress], None] | None = None,
    on_failure: Callable[[GenerateReport], None] | None = None,
) -> GenerateReport:
    """Attempt every problem `samples` times and add the traces to the folder `out`, which is created if needed.

    Repeating the call continues an interrupted run. Attempts that ended in an error are repeated.

    Args:
        speculation: Runs guesses early; its report is written next to the traces.
        versions: Versions that are recorded in each trace.
        progress: Called several times a second.
        on_failure: Called with the report if an error ends the run after it began, before the error is raised.

    Raises:
        UsageError: the protocol needs something that the server cannot do, or a setting is invalid.
        ProblemError: there are no problems, one has no tests, or two have the same id.
        ModelError: the server cannot be reached or refuses permanently; finished attempts are kept.
        SandboxError: no sandbox works; finished attempts are kept.
        StoreError: `out` cannot be written, or another process is writing there.
    """
    settings = settings or GenerateSettings()
    check_settings(settings)
    maker = AttemptMaker(protocol, model, sandbox, settings, speculation)
    run = _Run(check_problems(problems), protocol, model, maker, settings, progress or (lambda _: None), speculation)
    fresh = not Path(out).exists()
    with TraceWriter(out) as writer:
        run.plan(writer)
        if run.todo:
            try:
                await run.prepare(versions or {})
            except BaseException:
                if fresh:
                    _remove_unused_folder(Path(out))
                raise
        writer.checkpoint()  # from now on it is a traces folder
        if run.todo:
            try:
                await run.run_attempts(writer)
            except ForetraceError as error:
                if on_failure is not None:
                    on_failure(run.make_report(error))
                raise
    return run.make_report()


def _remove_unused_folder(folder: Path) -> None:
    """Remove a folder that has not been used."""
    with contextlib.suppress(OSError):
        (folder / ".lock").unlink()
        folder.rmdir()


class _Run:
    """One run: its attempts, who makes them, and their outcomes."""

    def __init__(
        self,
        problems: Sequence[Problem],
        protocol: InteractionProtocol,
        model: ChatModel,
        maker: AttemptMaker,
        settings: GenerateSettings,
        progress: Callable[[RunProgress], None],
        speculation: Speculation | None,
    ) -> None:
        self._problems, self._protocol, self._model, self._maker = problems, protocol, model, maker
        self._settings, self._speculation = settings, speculation
        self._speculated: SpeculationReport | None = None
        self._progress = progress
        self._redacted: Counter[str] = Counter()
        self._meter = TokenMeter()
        self._usage = RunUsage()
        self.status = RunProgress(self._meter)
        sampling = describe_sampling(settings.sampling, model)
        identity = Identity(model=model.spec, sampling=sampling, seed=settings.seed)
        self.name = make_run_name(protocol, identity, settings.episode)
        self._identity = msgspec.structs.replace(identity, run=self.name)
        self.todo: deque[PlannedAttempt] = deque()
        """Attempts not started yet."""
        self._damaged_journals: list[Path] = []
        self._stopped: str | None = None
        self._fatal_error: BaseException | None = None
        self._sandbox_failures = 0
        self._saving = 0
        """Number of finished attempts that are not durable yet, so that the server does not wait for a slow disk."""
        self._storing: set[asyncio.Task[None] | None] = set()
        """Tasks of finished attempts, which are stored and counted even if the run ends."""
        self._wake = asyncio.Event()

    def plan(self, writer: TraceWriter) -> None:
        """Find out which attempts still have to be made."""
        plan = plan_attempts(self._problems, self._protocol, self._identity, self._settings, writer)
        self.todo = deque(plan.todo)
        self._damaged_journals = writer.damaged
        self.status.already_done, self.status.filtered = plan.already_done, plan.filtered
        self.status.asked = len(self._problems) * self._settings.samples
        self.status.remaining = len(plan.todo)

    async def prepare(self, versions: dict[str, str]) -> None:
        """Find out what the model server can do and start the sandbox, before anything is written."""
        self.status.doing = f"asking {self._model.spec} what it can do"
        self._progress(self.status)
        found = await self._model.probe()
        require_capabilities(self._protocol, self._model, found)
        capabilities = msgspec.to_builtins(found)
        self.status.capabilities = capabilities
        self._identity = msgspec.structs.replace(self._identity, capabilities=capabilities, tool_versions=versions)
        self.status.doing = "starting the sandbox"
        self._progress(self.status)
        await self._maker.start(found, self._identity, self._meter)
        self.status.isolation = self._maker.isolation

    async def run_attempts(self, writer: TraceWriter) -> None:
        """Make the attempts of the plan; however the run ends, those that finished are sealed, and the figures of
        speculation are written."""
        if self._speculation is not None:
            self._speculation.open_files(writer.folder, {attempt.key for attempt in self.todo})
        journal = AsyncJournal(Journal(writer.folder, self.name))
        self.status.doing = "running"
        ticking = asyncio.create_task(self._tick())
        try:
            await self._run_until_done(journal)
        finally:
            ticking.cancel()
            self.status.doing = "sealing"
            self._progress(self.status)
            await journal.close()
            writer.seal(journal.path)
            if self._speculation is not None:
                try:
                    self._speculated = self._speculation.write_report(writer.folder)
                except StoreError as error:
                    self._fatal_error = self._fatal_error or error
        if self._fatal_error is not None:
            raise self._fatal_error

    async def _run_until_done(self, journal: AsyncJournal) -> None:
        running: set[asyncio.Task[None]] = set()

        def on_end(task: asyncio.Task[None]) -> None:
            running.discard(task)
            self._storing.discard(task)
            error = None if task.cancelled() else task.exception()
            self._fatal_error = self._fatal_error or error
            self._wake.set()

        try:
            while self._fatal_error is None:
                self._wake.clear()
                while self._has_room(len(running)) and (meter := self._begin_attempt()):
                    task = asyncio.create_task(self._make_attempt(self.todo.popleft(), meter, journal))
                    task.add_done_callback(on_end)
                    running.add(task)
                if not running or self._is_out_of_time():
                    return
                await self._wake.wait()
        finally:
            for task in running - self._storing:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    def _has_room(self, running: int) -> bool:
        """Whether another attempt may begin besides those that are running."""
        most = self._maker.max_in_flight
        return self._stopped is None and running - min(self._saving, most) < most

    def _begin_attempt(self) -> TokenMeter | None:
        """What counts the tokens of the next attempt; `None` if it may not begin."""
        settings = self._settings
        turns = settings.episode.max_turns or self._protocol.max_turns
        guess = settings.sampling.max_tokens * turns * (turns + 1) // 2  # each reply is read again in all later turns
        if not self.todo:
            return None
        out_of_time = settings.budget.check_time(self.status.seconds)
        reason = out_of_time or settings.budget.check_tokens_and_cost(self._usage, guess=guess)
        if reason is None:
            return self._usage.start_attempt()
        if out_of_time or not self._usage.in_flight:  # else those in flight may use less than expected
            self._stopped = reason
        return None

    def _is_out_of_time(self) -> bool:
        """Whether attempts in flight are not waited for any longer."""
        seconds = self._settings.budget.seconds
        return seconds is not None and self.status.seconds > seconds + min(seconds, _MAX_GRACE_S)

    async def _tick(self) -> None:
        while True:
            self.status.slots, self.status.server_failure = self._maker.slots, self._maker.server_failure
            self.status.isolation = self._maker.isolation
            self.status.tick()
            self._progress(self.status)
            self._wake.set()  # time may be over, or there may be more slots
            await asyncio.sleep(_TICK_S)

    async def _make_attempt(self, plan: PlannedAttempt, meter: TokenMeter, journal: AsyncJournal) -> None:
        """Make an attempt, and store it."""
        self.status.in_flight += 1
        try:
            attempt = await self._maker.make(plan, meter)
        finally:
            self.status.in_flight -= 1
            self._usage.finish_attempt(meter)
            self._wake.set()
        self._storing.add(asyncio.current_task())
        # A failure keeps its place until it is counted, since that may end the run.
        saving = int(attempt.outcome.error is None)
        self._saving += saving
        self._wake.set()
        try:
            if self._speculation is not None:  # first, so that it is there for each trace that is
                self._speculation.store_attempt(attempt.key, kept=attempt.stored)
            if attempt.line is not None:
                await journal.put(attempt.line)
        finally:
            self._saving -= saving
        self._count(attempt)

    def _count(self, attempt: FinishedAttempt) -> None:
        """Count an attempt that is durable.

        Raises:
            SandboxError: the sandbox has failed too many attempts in a row.
        """
        self.status.retried += attempt.is_retried
        self.status.count(attempt)
        self._redacted.update(attempt.redacted)
        error = attempt.outcome.error
        self._sandbox_failures = self._sandbox_failures + 1 if error and error.kind == "sandbox" else 0
        if error and self._sandbox_failures >= _MAX_SANDBOX_FAILURES:
            raise SandboxError(f"{error.message}; gave up after {_MAX_SANDBOX_FAILURES} attempts in a row")

    def make_report(self, error: ForetraceError | None = None) -> GenerateReport:
        """The report of what was done, and the failure that ended the run."""
        status, meter = self.status, self._meter
        message = None if error is None else str(error)
        out_of_time = None if not status.remaining else self._stopped or "the time is over"
        return GenerateReport(
            counts=status.copy_counts(),
            model=self._model.spec,
            protocol=self._protocol.name,
            run=self.name,
            problems=len(self._problems),
            stopped=message or out_of_time,
            error=message,
            success=status.compute_mean(status.successes),
            ideal=status.compute_mean(status.ideal_attempts),
            mean_reward=status.compute_mean(status.reward_sum),
            recovery=status.compute_recovery(),
            metrics=status.compute_mean_metrics(),
            max_tokens=self._settings.sampling.max_tokens,
            prompt_tokens=meter.prompt_tokens,
            completion_tokens=meter.completion_tokens,
            tokens_estimated=meter.estimated,
            cost=self._settings.budget.compute_cost(meter),
            seconds=round(status.seconds, 3),
            isolation=msgspec.to_builtins(status.isolation) if status.isolation else None,
            damaged=tuple(map(str, self._damaged_journals)),
            redacted=dict(sorted(self._redacted.items())),
            speculation=self._speculated,
        )
