"""Make attempts at problems: a finished attempt is a line for the journal and the facts that a run counts.

Nothing is written here, so attempts can be made anywhere: in this process, or in the tasks of a cluster.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, Protocol

import msgspec

from foretrace.clean.redact import Redactor, make_redactor
from foretrace.core.completion import Capabilities
from foretrace.core.errors import ForetraceError
from foretrace.core.journal import JournalEntry, encode_entry
from foretrace.core.redactions import read_redactions
from foretrace.core.trace import Isolation, Outcome, Trace
from foretrace.episodes.episode import Episode
from foretrace.episodes.generate.resume import PlannedAttempt, explain_left_out
from foretrace.episodes.generate.settings import GenerateSettings
from foretrace.episodes.generate.usage import MeteredModel
from foretrace.episodes.identity import Identity, derive_seed
from foretrace.episodes.requirements import find_token_model
from foretrace.episodes.rollout import ENCODING_ERRORS, mark_unwritable, rollout
from foretrace.episodes.speculation import Speculation
from foretrace.models.base import ChatModel, TokenModel
from foretrace.models.throttle import MAX_CONCURRENCY, TRANSIENT_KINDS, ThrottledModel, make_limiter
from foretrace.models.token_meter import TokenMeter
from foretrace.protocols.base import InteractionProtocol
from foretrace.sandbox.base import Sandbox


class StartedAttempt(NamedTuple):
    """An attempt that is being made."""

    plan: PlannedAttempt
    meter: TokenMeter
    """Counts its tokens so far."""


class FinishedAttempt(NamedTuple):
    """What a run needs to know about an attempt that ended."""

    key: str
    outcome: Outcome
    line: bytes | None
    """The journal line: the trace, or why it is left out; `None` for an attempt that is not kept but made again."""
    left_out: str
    """Why the trace is not kept; empty if it is kept, or if the attempt ended in an error."""
    model_s: float
    tool_s: float
    is_retried: bool
    """Whether it was started a second time after a transient failure."""
    redacted: dict[str, int]
    """Number of redactions in the trace, by type."""

    @property
    def stored(self) -> bool:
        """Whether the line contains the trace."""
        return self.line is not None and not self.left_out


class FinishedGroup(NamedTuple):
    """The outcome of a group of attempts."""

    attempts: Sequence[FinishedAttempt]
    error: ForetraceError | None = None
    """The error that ended the group early, because no other attempt could succeed."""


class TimeLeft(NamedTuple):
    """How long a group may run, in seconds from now; `None` means no limit."""

    begin: float | None = None
    """After this time no attempt is started."""
    end: float | None = None
    """After this time no attempt is waited for."""


class AttemptRunner(Protocol):
    """Where the attempts of a run are made, in groups."""

    preparing: str
    """A few words on what `start` does."""

    @property
    def group_size(self) -> int:
        """Most attempts in a group."""
        ...

    @property
    def at_once(self) -> int:
        """Most attempts of a group that are made at a time."""
        ...

    @property
    def max_groups(self) -> int:
        """Most groups that may be in flight now."""
        ...

    @property
    def slots(self) -> int:
        """Most requests to the model server at a time."""
        ...

    @property
    def server_failure(self) -> str:
        """Kind of the server's last failure, if it has not answered since; else empty."""
        ...

    @property
    def isolation(self) -> Isolation | None:
        """How well the code is isolated, if known by now; the weakest isolation if there are several sandboxes."""
        ...

    @property
    def nodes(self) -> Mapping[str, Isolation]:
        """The isolation of each known node of a cluster, by host name; empty without a cluster."""
        ...

    async def start(self, attempts: int, found: Capabilities, identity: Identity, total: TokenMeter) -> None:
        """Prepare, before anything is written.

        Args:
            attempts: Number of attempts to make.
            found: What the model server can do.
            identity: Identity of the attempts, without what is specific to each.
            total: Counts the tokens of all attempts.

        Raises:
            SandboxError: no sandbox works.
            UsageError: the place where attempts are made does not exist.
        """
        ...

    async def run(self, group: Sequence[StartedAttempt], time_left: TimeLeft) -> FinishedGroup:
        """Make the attempts of a group, and count their tokens. Attempts that did not end in time are missing from the
        results.

        Raises:
            ForetraceError: no other attempt could succeed, and none of this group is finished.
        """
        ...


class LocalAttempts:
    """Makes attempts in this process, each as its own group (see `AttemptRunner`)."""

    preparing = "starting the sandbox"
    group_size = at_once = 1
    nodes: Mapping[str, Isolation] = MappingProxyType({})

    def __init__(
        self,
        protocol: InteractionProtocol,
        model: ChatModel,
        sandbox: Sandbox,
        settings: GenerateSettings,
        speculation: Speculation | None = None,
    ) -> None:
        self._speculation = speculation
        self._protocol, self._model, self._sandbox, self._settings = protocol, model, sandbox, settings
        self._limiter = make_limiter(model, settings.concurrency)
        self._redactor = _make_redactor(settings)
        self._maker: _AttemptMaker | None = None
        self._throttled: ThrottledModel | None = None
        self.isolation: Isolation | None = None

    @property
    def max_groups(self) -> int:
        """See `AttemptRunner`; attempts whose code is running need no slot."""
        return self._settings.concurrency or min(MAX_CONCURRENCY, 2 * self._limiter.limit)

    @property
    def slots(self) -> int:
        """See `AttemptRunner`."""
        return self._limiter.limit

    @property
    def server_failure(self) -> str:
        """See `AttemptRunner`."""
        return self._throttled.failing if self._throttled is not None else ""

    async def start(self, attempts: int, found: Capabilities, identity: Identity, total: TokenMeter) -> None:
        """See `AttemptRunner`: start the sandbox."""
        # If a protocol starts a new message each turn, the server's own rendering is what users of the model see.
        tokens = find_token_model(self._model, found) if self._protocol.continues else None
        self._throttled = ThrottledModel(self._model, self._limiter, total)
        self._maker = _AttemptMaker(
            self._protocol, self._sandbox, self._settings, identity, tokens, self._redactor, self._speculation
        )
        self.isolation = await self._sandbox.start()
        if self._speculation is not None:
            await self._speculation.start(self.isolation)

    async def run(self, group: Sequence[StartedAttempt], time_left: TimeLeft) -> FinishedGroup:
        """See `AttemptRunner`; attempts begin at once, and the caller cancels them when time is over."""
        assert self._maker is not None and self._throttled is not None, "start comes first"
        models = [MeteredModel(self._throttled, attempt.meter) for attempt in group]
        return FinishedGroup(
            [await self._maker.make(each.plan, model) for each, model in zip(group, models, strict=True)]
        )


class _AttemptMaker(NamedTuple):
    """Makes single attempts."""

    protocol: InteractionProtocol
    sandbox: Sandbox
    settings: GenerateSettings
    identity: Identity
    tokens: TokenModel | None
    """The tokenizer, if the server gives and takes token ids."""
    redactor: Redactor | None
    speculation: Speculation | None

    async def make(self, plan: PlannedAttempt, model: ChatModel) -> FinishedAttempt:
        """Make one attempt, and repeat it once after a transient failure."""
        trace = await self._roll_out(plan, model)
        is_retried = trace.outcome.error is not None and trace.outcome.error.kind in TRANSIENT_KINDS
        if is_retried:
            trace = await self._roll_out(plan, model)
        assert trace.key == plan.key, "resuming goes by the key"
        redacted: dict[str, int] = {}
        if self.redactor is not None:  # drops all messages if they cannot be checked for secrets
            trace = self.redactor.redact_attempt(trace)
            redacted = read_redactions(trace)
        trace, line = _encode_trace(trace)
        left_out = explain_left_out(trace, self.settings.keep)
        if left_out:
            line = encode_entry(JournalEntry(key=trace.key, left_out=left_out))
        is_lost = trace.outcome.error is not None and self.settings.keep != "all"
        return FinishedAttempt(
            key=trace.key,
            outcome=trace.outcome,
            line=None if is_lost else line,
            left_out=left_out,
            model_s=sum(message.model_s or 0.0 for message in trace.messages),
            tool_s=sum(message.tool_s or 0.0 for message in trace.messages),
            is_retried=is_retried,
            redacted=redacted,
        )

    async def _roll_out(self, plan: PlannedAttempt, model: ChatModel) -> Trace:
        """Make one attempt, and return its trace."""
        settings = self.settings
        seed = derive_seed(settings.seed, plan.problem, plan.sample)
        sampling = {**self.identity.sampling, "seed": seed}
        identity = msgspec.structs.replace(self.identity, sampling=sampling, sample=plan.sample)
        episode = Episode(
            plan.problem,
            self.protocol,
            self.sandbox,
            settings=settings.episode,
            identity=identity,
            tokens=self.tokens,
            speculation=self.speculation,
        )
        return await rollout(episode, model, msgspec.structs.replace(settings.sampling, seed=seed))


def _make_redactor(settings: GenerateSettings) -> Redactor | None:
    return make_redactor(settings.redact, emails=settings.redact_emails, addresses=settings.redact_addresses)


def _encode_trace(trace: Trace) -> tuple[Trace, bytes]:
    """The trace and its journal line; if the trace cannot be encoded, a trace that says so instead."""
    try:
        return trace, encode_entry(JournalEntry(key=trace.key, trace=trace))
    except ENCODING_ERRORS as error:
        trace = mark_unwritable(trace, error)
        return trace, encode_entry(JournalEntry(key=trace.key, trace=trace))
