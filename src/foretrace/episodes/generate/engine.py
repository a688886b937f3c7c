"""Many attempts at many problems: hundreds at once on one event loop, into a traces folder, resumable at any moment."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from foretrace.clean.redact import Redactor, make_redactor
from foretrace.core.errors import ForetraceError, SandboxError
from foretrace.core.journal import Journal, JournalEntry, encode_entry
from foretrace.core.problem import Problem
from foretrace.core.redactions import read_redactions
from foretrace.core.store import TraceWriter
from foretrace.core.trace import Trace
from foretrace.episodes.episode import Episode
from foretrace.episodes.generate.journal import AsyncJournal
from foretrace.episodes.generate.progress import RunCounts, RunProgress
from foretrace.episodes.generate.resume import PlannedAttempt, explain_left_out, plan_attempts
from foretrace.episodes.generate.settings import GenerateSettings, check_settings
from foretrace.episodes.generate.usage import MeteredModel, RunUsage
from foretrace.episodes.identity import Identity, derive_seed, describe_sampling, make_run_name
from foretrace.episodes.requirements import find_token_model, require_capabilities
from foretrace.episodes.rollout import ENCODING_ERRORS, mark_unwritable, rollout
from foretrace.models.base import ChatModel, TokenModel
from foretrace.models.throttle import MAX_CONCURRENCY, TRANSIENT_KINDS, ThrottledModel, make_limiter
from foretrace.models.token_meter import TokenMeter
from foretrace.problems.base import check_problems
from foretrace.protocols.base import InteractionProtocol
from foretrace.sandbox.base import Sandbox

_TICK_S = 0.25
_MAX_GRACE_S = 60.0
"""Longest time that attempts in flight get when the time is over."""
_MAX_SANDBOX_FAILURES = 10
"""Attempts in a row that the sandbox fails, after which the run stops."""


class GenerateReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a run did."""

    counts: RunCounts
    model: str
    protocol: str
    run: str
    """Names the run: the same for the same model, protocol, sampling, seed and settings."""
    problems: int
    stopped: str | None
    """Why it stopped before the end."""
    error: str | None
    """The failure that ended the run; `None` where none did."""
    success: float | None
    """Share of the attempts of this run without an error; `None` where there is none."""
    ideal: float | None
    mean_reward: float | None
    recovery: float | None
    """Share of successes among the attempts in which something failed on the way."""
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
    """Journals of earlier runs in which something could not be read, under the names by which they are kept."""
    redacted: dict[str, int] = {}
    """What was taken out of the traces of this run, by type."""

    def make_facts(self) -> dict[str, Any]:
        """The report as one JSON object, with the counts among its other fields."""
        facts = msgspec.to_builtins(self)
        return {**facts.pop("counts"), **facts}


async def generate(
    problems: Iterable[Problem],
    protocol: InteractionProtocol,
    model: ChatModel,
    sandbox: Sandbox,
    out: Path | str,
    settings: GenerateSettings | None = None,
    *,
    versions: dict[str, str] | None = None,
    progress: Callable[[RunProgress], None] | None = None,
    on_failure: Callable[[GenerateReport], None] | None = None,
) -> GenerateReport:
    """Attempt every problem `samples` times and add the traces to the folder `out`, which is made if absent.

    The same call again goes on where an interrupted one stopped. Attempts that ended in an error are done again.

    Args:
        versions: Recorded in each trace.
        progress: Called several times a second.
        on_failure: Called with what was done when an error ends the run after it began, before the error is raised.

    Raises:
        UsageError: the protocol needs what the server cannot do, or a setting cannot be served.
        ProblemError: there is no problem, one has no tests, or two have one id.
        ModelError: the server cannot be reached, or refuses for good; what was finished is kept.
        SandboxError: no sandbox serves; what was finished is kept.
        StoreError: `out` cannot be written, or another process writes there.
    """
    settings = settings or GenerateSettings()
    check_settings(settings)
    redactor = make_redactor(settings.redact, emails=settings.redact_emails, addresses=settings.redact_addresses)
    run = _Run(check_problems(problems), protocol, model, sandbox, settings, progress or (lambda _: None), redactor)
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
        writer.checkpoint()  # from here on it is a traces folder
        if run.todo:
            try:
                await run.run_attempts(writer)
            except ForetraceError as error:
                if on_failure is not None:
                    on_failure(run.make_report(error))
                raise
    return run.make_report()


def _remove_unused_folder(folder: Path) -> None:
    """Remove a folder in which nothing was begun."""
    with contextlib.suppress(OSError):
        (folder / ".lock").unlink()
        folder.rmdir()


class _Run:
    """One run: the attempts that it has to make, and the model, protocol and sandbox that it makes them with."""

    def __init__(
        self,
        problems: Sequence[Problem],
        protocol: InteractionProtocol,
        model: ChatModel,
        sandbox: Sandbox,
        settings: GenerateSettings,
        progress: Callable[[RunProgress], None],
        redactor: Redactor | None,
    ) -> None:
        self._problems, self._protocol, self._model, self._sandbox = problems, protocol, model, sandbox
        self._settings = settings
        self._progress = progress
        self._redactor = redactor
        self._redacted: Counter[str] = Counter()
        self._meter = TokenMeter()
        self._usage = RunUsage()
        self.status = RunProgress(self._meter)
        self._limiter = make_limiter(model, settings.concurrency)
        self._throttled = ThrottledModel(model, self._limiter, self._meter)
        sampling = describe_sampling(settings.sampling, model)
        self._token_model: TokenModel | None = None
        """What makes ids of text, where the server gives and takes ids."""
        identity = Identity(model=model.spec, sampling=sampling, seed=settings.seed)
        self.name = make_run_name(protocol, identity, settings.episode)
        self._identity = msgspec.structs.replace(identity, run=self.name)
        self.todo: list[PlannedAttempt] = []
        self._damaged_journals: list[Path] = []
        self._stopped: str | None = None
        self._fatal_error: BaseException | None = None
        self._sandbox_failures = 0
        self._saving = 0
        """Attempts that are over and not durable yet: while the disk is slow, the server need not wait for it."""
        self._wake = asyncio.Event()

    def plan(self, writer: TraceWriter) -> None:
        """Find out which attempts are still to be done."""
        plan = plan_attempts(self._problems, self._protocol, self._identity, self._settings, writer)
        self.todo = plan.todo
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
        if self._protocol.continues:  # elsewhere the server's own rendering is what users of the model will see
            self._token_model = find_token_model(self._model, found)
        capabilities = msgspec.to_builtins(found)
        self.status.capabilities = capabilities
        self._identity = msgspec.structs.replace(self._identity, capabilities=capabilities, tool_versions=versions)
        self.status.doing = "starting the sandbox"
        self._progress(self.status)
        self.status.isolation = await self._sandbox.start()

    async def run_attempts(self, writer: TraceWriter) -> None:
        """Make the attempts of the plan; however the run ends, those that finished are sealed."""
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
        if self._fatal_error is not None:
            raise self._fatal_error

    async def _run_until_done(self, journal: AsyncJournal) -> None:
        running: set[asyncio.Task[None]] = set()

        def on_end(task: asyncio.Task[None]) -> None:
            running.discard(task)
            error = None if task.cancelled() else task.exception()
            self._fatal_error = self._fatal_error or error
            self._wake.set()

        todo = iter(self.todo)
        try:
            while self._fatal_error is None:
                self._wake.clear()
                for attempt in self._next_attempts(todo, running):
                    task = asyncio.create_task(
                        self._run_attempt(attempt, self._usage.start_attempt(self._throttled), journal)
                    )
                    task.add_done_callback(on_end)
                    running.add(task)
                if not running or self._is_out_of_time():
                    return
                await self._wake.wait()
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    def _next_attempts(
        self, todo: Iterator[PlannedAttempt], running: set[asyncio.Task[None]]
    ) -> Iterator[PlannedAttempt]:
        """Attempts that may begin now."""
        settings, status = self._settings, self.status
        max_running = settings.concurrency or min(MAX_CONCURRENCY, 2 * self._limiter.limit)
        while self._stopped is None and len(running) - min(self._saving, max_running) < max_running:
            out_of_time = settings.budget.check_time(status.seconds)
            turns = settings.episode.max_turns or self._protocol.max_turns
            guess = settings.sampling.max_tokens * turns * (turns + 1) // 2  # a reply is read again in each later turn
            reason = out_of_time or settings.budget.check_tokens_and_cost(self._usage, guess=guess)
            if reason is not None and status.remaining > len(running):
                if out_of_time or not self._usage.in_flight:  # else those in flight may use less than was expected
                    self._stopped = reason
                return
            attempt = next(todo, None)
            if attempt is None:
                return
            yield attempt

    def _is_out_of_time(self) -> bool:
        seconds = self._settings.budget.seconds
        return seconds is not None and self.status.seconds > seconds + min(seconds, _MAX_GRACE_S)

    async def _tick(self) -> None:
        while True:
            self.status.slots, self.status.server_failure = self._limiter.limit, self._throttled.failing
            self.status.tick()
            self._progress(self.status)
            self._wake.set()  # the time may be over, or there may be more slots
            await asyncio.sleep(_TICK_S)

    async def _run_attempt(self, attempt: PlannedAttempt, model: MeteredModel, journal: AsyncJournal) -> None:
        """Make one attempt, a second time after a failure that may pass, and store it."""
        self.status.in_flight += 1
        try:
            trace = await self._roll_out(attempt, model)
            if trace.outcome.error is not None and trace.outcome.error.kind in TRANSIENT_KINDS:
                self.status.retried += 1
                trace = await self._roll_out(attempt, model)
        finally:
            self.status.in_flight -= 1
            self._usage.finish_attempt(model)
            self._wake.set()
        assert trace.key == attempt.key, "resuming goes by the key"
        trace, line = _encode_trace(self._redact(trace))
        error = trace.outcome.error
        reason = explain_left_out(trace, self._settings.keep)
        stored = not reason and (error is None or self._settings.keep == "all")
        if stored or reason:
            saving = int(error is None)  # one that failed keeps its place until it is counted: it may end the run
            self._saving += saving
            self._wake.set()
            try:
                await journal.put(line if stored else encode_entry(JournalEntry(key=trace.key, left_out=reason)))
            finally:
                self._saving -= saving
        self.status.count(trace, reason, stored=stored)
        self._sandbox_failures = self._sandbox_failures + 1 if error and error.kind == "sandbox" else 0
        if error and self._sandbox_failures >= _MAX_SANDBOX_FAILURES:
            raise SandboxError(f"{error.message}; gave up after {_MAX_SANDBOX_FAILURES} attempts in a row")

    def _redact(self, trace: Trace) -> Trace:
        """The trace without its secrets; without all that was said, where they cannot be looked for."""
        if self._redactor is None:
            return trace
        result = self._redactor.redact_attempt(trace)
        self._redacted.update(read_redactions(result))
        return result

    async def _roll_out(self, attempt: PlannedAttempt, model: MeteredModel) -> Trace:
        """Make one attempt, and return its trace."""
        settings = self._settings
        seed = derive_seed(settings.seed, attempt.problem, attempt.sample)
        sampling = {**self._identity.sampling, "seed": seed}
        identity = msgspec.structs.replace(self._identity, sampling=sampling, sample=attempt.sample)
        episode = Episode(
            attempt.problem,
            self._protocol,
            self._sandbox,
            settings=settings.episode,
            identity=identity,
            tokens=self._token_model,
        )
        return await rollout(episode, model, msgspec.structs.replace(settings.sampling, seed=seed))

    def make_report(self, error: ForetraceError | None = None) -> GenerateReport:
        """Report what was done, and the failure that ended the run."""
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
        )


def _encode_trace(trace: Trace) -> tuple[Trace, bytes]:
    """Return the trace and its journal line; where the trace could not be read back, another one that says so."""
    try:
        return trace, encode_entry(JournalEntry(key=trace.key, trace=trace))
    except ENCODING_ERRORS as error:
        trace = mark_unwritable(trace, error)
        return trace, encode_entry(JournalEntry(key=trace.key, trace=trace))
