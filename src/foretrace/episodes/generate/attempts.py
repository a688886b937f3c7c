"""Make attempts at problems: a finished attempt is a trace and its line for the journal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from foretrace.clean.redact import Redactor
from foretrace.core.completion import Completion, Request
from foretrace.core.journal import JournalEntry, encode_entry
from foretrace.core.problem import Problem
from foretrace.core.trace import Trace
from foretrace.episodes.episode import Episode
from foretrace.episodes.generate.settings import GenerateSettings, Keep
from foretrace.episodes.identity import Identity, derive_seed
from foretrace.episodes.rollout import rollout
from foretrace.episodes.speculation import Speculation
from foretrace.models.base import ChatModel, TokenModel
from foretrace.models.server_errors import TRANSIENT_KINDS
from foretrace.models.token_meter import TokenMeter
from foretrace.protocols.base import InteractionProtocol
from foretrace.sandbox.base import Sandbox


class PlannedAttempt(NamedTuple):
    """One attempt to make."""

    problem: Problem
    sample: int
    key: str


class FinishedAttempt(NamedTuple):
    """An attempt that ended."""

    trace: Trace
    line: bytes | None
    """The journal line: the trace, or why it is left out; `None` for an attempt that is not kept but made again."""
    left_out: str
    """Why the trace is not kept; empty if it is kept, or if the attempt ended in an error."""
    is_retried: bool
    """Whether it was started a second time after a transient failure."""

    @property
    def stored(self) -> bool:
        """Whether the line contains the trace."""
        return self.line is not None and not self.left_out


@dataclass(frozen=True)
class AttemptMaker:
    """Makes the attempts of a run."""

    protocol: InteractionProtocol
    model: ChatModel
    sandbox: Sandbox
    settings: GenerateSettings
    identity: Identity
    """Identity of the attempts, without what is specific to each."""
    tokens: TokenModel | None
    redactor: Redactor | None
    speculation: Speculation | None

    async def make(self, plan: PlannedAttempt, meter: TokenMeter) -> FinishedAttempt:
        """Make one attempt, whose tokens `meter` counts, and repeat it once after a transient failure.

        Raises:
            ForetraceError: no other attempt could succeed either.
        """
        trace = await self._roll_out(plan, meter)
        is_retried = trace.outcome.error is not None and trace.outcome.error.kind in TRANSIENT_KINDS
        if is_retried:
            trace = await self._roll_out(plan, meter)
        assert trace.key == plan.key, "resuming goes by the key"
        if self.redactor is not None:  # drops all messages if they cannot be checked for secrets
            trace = self.redactor.redact_attempt(trace)
        keep, line = self.settings.keep, None
        left_out = explain_left_out(trace, keep)
        if left_out:
            line = encode_entry(JournalEntry(key=trace.key, left_out=left_out))
        elif trace.outcome.error is None or keep == "all":
            line = encode_entry(JournalEntry(key=trace.key, trace=trace))
        return FinishedAttempt(trace, line, left_out, is_retried)

    async def _roll_out(self, plan: PlannedAttempt, meter: TokenMeter) -> Trace:
        async def complete(request: Request) -> Completion:
            completion = await self.model.complete(request)
            meter.add(request, completion)
            return completion

        seed = derive_seed(self.settings.seed, plan.problem, plan.sample)
        sampling = {**self.identity.sampling, "seed": seed}
        episode = Episode(
            plan.problem,
            self.protocol,
            self.sandbox,
            settings=self.settings.episode,
            identity=msgspec.structs.replace(self.identity, sampling=sampling, sample=plan.sample),
            tokens=self.tokens,
            speculation=self.speculation,
        )
        return await rollout(episode, complete, msgspec.structs.replace(self.settings.sampling, seed=seed))


def explain_left_out(trace: Trace, keep: Keep) -> str:
    """Why `keep` leaves the trace out; empty if it is kept, or if it ended in an error, since it is then made again."""
    if trace.outcome.error is not None:
        return ""
    if keep != "all" and not trace.outcome.success:
        return "not_success"
    return "not_ideal" if keep == "ideal" and not trace.outcome.metrics.get("is_ideal") else ""
