"""Make many attempts at many problems: hundreds at once on one event loop, resumable at any time."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from foretrace.clean.redact import make_redactor
from foretrace.core.completion import Completion, Request
from foretrace.core.errors import ForetraceError, SandboxError, StoreError
from foretrace.core.journal import Journal
from foretrace.core.problem import Problem
from foretrace.core.report import Report
from foretrace.core.store import TraceStore, TraceWriter
from foretrace.core.trace import Trace
from foretrace.episodes.episode import Episode
from foretrace.episodes.generate.journal import AsyncJournal
from foretrace.episodes.generate.progress import (
    FinishedAttempt,
    PlannedAttempt,
    RunCounts,
    RunProgress,
    finish_attempt,
)
from foretrace.episodes.generate.settings import GenerateSettings, Keep, check_settings
from foretrace.episodes.identity import Identity, derive_seed, describe_sampling, make_key, make_run_name
from foretrace.episodes.requirements import find_token_model, require_capabilities
from foretrace.episodes.rollout import rollout
from foretrace.episodes.speculation import Speculation
from foretrace.episodes.speculation_report import SpeculationReport
from foretrace.models.base import ChatModel, TokenModel
from foretrace.models.server_errors import TRANSIENT_KINDS
from foretrace.models.throttle import MAX_CONCURRENCY, ThrottledModel, make_limiter
from foretrace.models.token_meter import TokenMeter
from foretrace.problems.base import check_problems
from foretrace.protocols.base import InteractionProtocol
from foretrace.sandbox.base import Sandbox

_REASONS_TO_LEAVE_OUT: dict[Keep, tuple[str, ...]] = {
    "all": (),
    "success": ("not_success",),
    "ideal": ("not_success", "not_ideal"),
}
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
    run = _Run(check_problems(problems), protocol, model, sandbox, settings, progress or (lambda _: None), speculation)
    fresh = not Path(out).exists()
    with TraceWriter(out) as writer:
        run.plan(writer)
        if run.todo:
            try:
                await run.prepare(versions or {})
            except BaseException:
                if fresh:  # nothing was written into it
                    with contextlib.suppress(OSError):
                        (Path(out) / ".lock").unlink()
                        Path(out).rmdir()
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


def _find_finished_keys(folder: Path) -> set[str]:
    """Keys of the stored attempts without an error, which are those with a known success."""
    if not (folder / "manifest.json").exists():
        return set()
    table = TraceStore(folder).read_columns("key", "success")
    columns = zip(table["key"].to_pylist(), table["success"].to_pylist(), strict=True)
    return {key for key, success in columns if success is not None}


class _Run:
    """One run: its attempts, and their outcomes."""

    def __init__(
        self,
        problems: Sequence[Problem],
        protocol: InteractionProtocol,
        model: ChatModel,
        sandbox: Sandbox,
        settings: GenerateSettings,
        progress: Callable[[RunProgress], None],
        speculation: Speculation | None,
    ) -> None:
        self._problems, self._protocol, self._model, self._sandbox = problems, protocol, model, sandbox
        self._settings, self._speculation = settings, speculation
        self._redactor = make_redactor(
            settings.redact, emails=settings.redact_emails, addresses=settings.redact_addresses
        )
        self._progress = progress
        self._meter = TokenMeter()
        self._in_flight: list[TokenMeter] = []
        """Tokens of each attempt in flight."""
        self._measured = 0
        """Number of finished attempts that have used any tokens."""
        self._limiter = make_limiter(model, settings.concurrency)
        self._throttled = ThrottledModel(model, self._limiter, self._meter)
        self.status = RunProgress(self._meter)
        identity = Identity(model=model.spec, sampling=describe_sampling(settings.sampling, model), seed=settings.seed)
        self.name = make_run_name(protocol, identity, settings.episode)
        self._identity = msgspec.structs.replace(identity, run=self.name)
        self._tokens: TokenModel | None = None
        """The model's tokenizer, for protocols that inject results into a turn."""
        self.todo: deque[PlannedAttempt] = deque()
        """Attempts not started yet."""
        self._damaged_journals: list[Path] = []
        self._stopped: str | None = None
        self._fatal_error: BaseException | None = None
        self._sandbox_failures = 0
        self._storing: set[asyncio.Task[None] | None] = set()
        """Tasks of finished attempts, which are stored and counted even if the run ends."""
        self._wake = asyncio.Event()
        self._speculated: SpeculationReport | None = None

    def plan(self, writer: TraceWriter) -> None:
        """Find out which attempts still have to be made. Those that ended in an error are made again."""
        status, settings = self.status, self._settings
        finished = _find_finished_keys(writer.folder)
        left_out = {key for key, why in writer.left_out.items() if why in _REASONS_TO_LEAVE_OUT[settings.keep]}
        for problem in self._problems:
            for sample in range(settings.samples):
                identity = msgspec.structs.replace(self._identity, sample=sample)
                key = make_key(problem, self._protocol, identity, settings.episode)
                if key in finished:
                    status.already_done += 1
                elif key in left_out:
                    status.filtered += 1
                else:
                    self.todo.append(PlannedAttempt(problem, sample, key))
        self._damaged_journals = writer.damaged
        status.asked = len(self._problems) * settings.samples
        status.remaining = len(self.todo)

    async def prepare(self, versions: dict[str, str]) -> None:
        """Find out what the model server can do and start the sandbox, before anything is written."""
        self._show(f"asking {self._model.spec} what it can do")
        found = await self._model.probe()
        require_capabilities(self._protocol, self._model, found)
        capabilities = msgspec.to_builtins(found)
        self.status.capabilities = capabilities
        self._show("starting the sandbox")
        self.status.isolation = await self._sandbox.start()
        if self._speculation is not None:
            await self._speculation.start(self.status.isolation)
        self._identity = msgspec.structs.replace(self._identity, capabilities=capabilities, tool_versions=versions)
        # If a protocol starts a new message each turn, the server's own rendering is what users of the model see.
        self._tokens = find_token_model(self._model, found) if self._protocol.continues else None

    def _show(self, doing: str) -> None:
        self.status.doing = doing
        self._progress(self.status)

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
            self._show("sealing")
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
                while self._has_room(len(running)) and self._may_begin():
                    self._in_flight.append(meter := TokenMeter())
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
        """Whether another attempt may run besides those that are running; those whose code runs need no slot."""
        return self._stopped is None and running < (
            self._settings.concurrency or min(MAX_CONCURRENCY, 2 * self._limiter.limit)
        )

    def _may_begin(self) -> bool:
        """Whether there is another attempt for which the budget has room."""
        settings = self._settings
        turns = settings.episode.max_turns or self._protocol.max_turns
        guess = settings.sampling.max_tokens * turns * (turns + 1) // 2  # each reply is read again in all later turns
        if not self.todo:
            return False
        out_of_time = settings.budget.check_time(self.status.seconds)
        reason = out_of_time or settings.budget.check_tokens_and_cost(
            self._meter, self._in_flight, self._measured, guess=guess
        )
        if reason and (out_of_time or not self._in_flight):  # else those in flight may use less than expected
            self._stopped = reason
        return reason is None

    def _is_out_of_time(self) -> bool:
        """Whether attempts in flight are not waited for any longer."""
        seconds = self._settings.budget.seconds
        return seconds is not None and self.status.seconds > seconds + min(seconds, _MAX_GRACE_S)

    async def _tick(self) -> None:
        while True:
            self.status.slots, self.status.server_failure = self._limiter.limit, self._throttled.failing
            self.status.tick()
            self._progress(self.status)
            self._wake.set()  # time may be over, or there may be more slots
            await asyncio.sleep(_TICK_S)

    async def _make_attempt(self, plan: PlannedAttempt, meter: TokenMeter, journal: AsyncJournal) -> None:
        self.status.in_flight += 1
        try:
            attempt = await self._finish(plan, meter)
        finally:
            self.status.in_flight -= 1
            self._in_flight.remove(meter)
            self._measured += meter.total_tokens > 0
            self._wake.set()
        self._storing.add(asyncio.current_task())
        if self._speculation is not None:  # first, so that it is there for each trace that is
            self._speculation.store_attempt(plan.key, kept=attempt.stored)
        if attempt.line is not None:
            await journal.put(attempt.line)
        self._count(attempt)

    async def _finish(self, plan: PlannedAttempt, meter: TokenMeter) -> FinishedAttempt:
        """Make one attempt, whose tokens `meter` counts, and repeat it once after a transient failure."""
        trace = await self._roll_out(plan, meter)
        is_retried = trace.outcome.error is not None and trace.outcome.error.kind in TRANSIENT_KINDS
        if is_retried:
            trace = await self._roll_out(plan, meter)
        assert trace.key == plan.key, "resuming goes by the key"
        if self._redactor is not None:  # drops all messages if they cannot be checked for secrets
            trace = self._redactor.redact_attempt(trace)
        return finish_attempt(trace, self._settings.keep, is_retried=is_retried)

    async def _roll_out(self, plan: PlannedAttempt, meter: TokenMeter) -> Trace:
        async def complete(request: Request) -> Completion:
            completion = await self._throttled.complete(request)
            meter.add(request, completion)
            return completion

        seed = derive_seed(self._settings.seed, plan.problem, plan.sample)
        sampling = {**self._identity.sampling, "seed": seed}
        episode = Episode(
            plan.problem,
            self._protocol,
            self._sandbox,
            settings=self._settings.episode,
            identity=msgspec.structs.replace(self._identity, sampling=sampling, sample=plan.sample),
            tokens=self._tokens,
            speculation=self._speculation,
        )
        return await rollout(episode, complete, msgspec.structs.replace(self._settings.sampling, seed=seed))

    def _count(self, attempt: FinishedAttempt) -> None:
        """Count an attempt that is durable."""
        self.status.count(attempt)
        error = attempt.trace.outcome.error
        self._sandbox_failures = self._sandbox_failures + 1 if error and error.kind == "sandbox" else 0
        if error and self._sandbox_failures >= _MAX_SANDBOX_FAILURES:
            raise SandboxError(f"{error.message}; gave up after {_MAX_SANDBOX_FAILURES} attempts in a row")

    def make_report(self, error: ForetraceError | None = None) -> GenerateReport:
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
            redacted=dict(sorted(status.redacted.items())),
            speculation=self._speculated,
        )
