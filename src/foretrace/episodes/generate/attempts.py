"""Make attempts at problems: a finished attempt is a line for the journal and the facts that a run counts."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from foretrace.clean.redact import make_redactor
from foretrace.core.completion import Capabilities
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


class AttemptMaker:
    """Makes the attempts of a run."""

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
        self._redactor = make_redactor(
            settings.redact, emails=settings.redact_emails, addresses=settings.redact_addresses
        )
        self._throttled: ThrottledModel | None = None
        self._identity: Identity | None = None
        self._tokens: TokenModel | None = None
        self.isolation: Isolation | None = None

    @property
    def max_in_flight(self) -> int:
        """Most attempts that may be in flight now; those whose code is running need no slot."""
        return self._settings.concurrency or min(MAX_CONCURRENCY, 2 * self._limiter.limit)

    @property
    def slots(self) -> int:
        """Most requests to the model server at a time."""
        return self._limiter.limit

    @property
    def server_failure(self) -> str:
        """Kind of the server's last failure, if it has not answered since; else empty."""
        return self._throttled.failing if self._throttled is not None else ""

    async def start(self, found: Capabilities, identity: Identity, total: TokenMeter) -> None:
        """Start the sandbox, before anything is written.

        Args:
            found: What the model server can do.
            identity: Identity of the attempts, without what is specific to each.
            total: Counts the tokens of all attempts.
        """
        # If a protocol starts a new message each turn, the server's own rendering is what users of the model see.
        self._tokens = find_token_model(self._model, found) if self._protocol.continues else None
        self._throttled, self._identity = ThrottledModel(self._model, self._limiter, total), identity
        self.isolation = await self._sandbox.start()
        if self._speculation is not None:
            await self._speculation.start(self.isolation)

    async def make(self, plan: PlannedAttempt, meter: TokenMeter) -> FinishedAttempt:
        """Make one attempt, whose tokens `meter` counts, and repeat it once after a transient failure.

        Raises:
            ForetraceError: no other attempt could succeed either.
        """
        assert self._throttled is not None, "start comes first"
        model = MeteredModel(self._throttled, meter)
        trace = await self._roll_out(plan, model)
        is_retried = trace.outcome.error is not None and trace.outcome.error.kind in TRANSIENT_KINDS
        if is_retried:
            trace = await self._roll_out(plan, model)
        assert trace.key == plan.key, "resuming goes by the key"
        redacted: dict[str, int] = {}
        if self._redactor is not None:  # drops all messages if they cannot be checked for secrets
            trace = self._redactor.redact_attempt(trace)
            redacted = read_redactions(trace)
        trace, line = _encode_trace(trace)
        left_out = explain_left_out(trace, self._settings.keep)
        if left_out:
            line = encode_entry(JournalEntry(key=trace.key, left_out=left_out))
        is_lost = trace.outcome.error is not None and self._settings.keep != "all"
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
        settings = self._settings
        assert self._identity is not None, "start comes first"
        seed = derive_seed(settings.seed, plan.problem, plan.sample)
        sampling = {**self._identity.sampling, "seed": seed}
        episode = Episode(
            plan.problem,
            self._protocol,
            self._sandbox,
            settings=settings.episode,
            identity=msgspec.structs.replace(self._identity, sampling=sampling, sample=plan.sample),
            tokens=self._tokens,
            speculation=self._speculation,
        )
        return await rollout(episode, model, msgspec.structs.replace(settings.sampling, seed=seed))


def _encode_trace(trace: Trace) -> tuple[Trace, bytes]:
    """The trace and its journal line; if the trace cannot be encoded, a trace that says so instead."""
    try:
        return trace, encode_entry(JournalEntry(key=trace.key, trace=trace))
    except ENCODING_ERRORS as error:
        trace = mark_unwritable(trace, error)
        return trace, encode_entry(JournalEntry(key=trace.key, trace=trace))
