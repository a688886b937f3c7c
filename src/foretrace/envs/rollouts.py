"""Episodes for a trainer: from a problem to a trace and the ids that are trained on."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Any, NamedTuple, Self

import msgspec

from foretrace.core.completion import Capabilities, Completion, Request, Sampling
from foretrace.core.errors import ModelError, UsageError
from foretrace.core.problem import Problem
from foretrace.core.trace import Trace
from foretrace.envs.aligned_model import Aligned
from foretrace.envs.tokenizer import LocalTokens, check_same
from foretrace.envs.trace_sink import Kept
from foretrace.envs.train_sequence import TrainSequence, sequence_of
from foretrace.episodes.episode import Episode, make_view
from foretrace.episodes.generate.resume import seed_of, told
from foretrace.episodes.identity import Identity
from foretrace.episodes.requirements import require_capabilities
from foretrace.episodes.rollout import rollout
from foretrace.episodes.settings import EpisodeSettings
from foretrace.models.base import ChatModel
from foretrace.protocols.base import InteractionProtocol
from foretrace.sandbox.base import Sandbox

ROOM = 2
"""Ids of a sequence that no completion gets: the end of the turn, and the one by which it must stay below the limit."""


class Rolled(NamedTuple):
    """One rollout."""

    trace: Trace
    sequence: TrainSequence | None
    """Null where the rollout failed."""
    why: str = ""
    """Why it cannot be trained on; empty where it can."""


class Lane:
    """A model server as episodes ask it (see `models.base.ChatModel`): with ids, within the slots that it has."""

    def __init__(
        self, model: ChatModel, tokens: LocalTokens, slots: AbstractAsyncContextManager[Any], *, ids: bool, most: int
    ) -> None:
        self._asked: ChatModel = model if ids else Aligned(model, tokens)
        self.slots: Any = slots
        self.model, self.ids = model, ids
        self.most = most
        """Ids of a whole sequence at most."""
        self.name, self.spec, self.endpoint = model.name, model.spec, model.endpoint

    async def probe(self) -> Capabilities:
        """What the server does (see `models.base.ChatModel.probe`)."""
        return await self._asked.probe()

    async def complete(self, request: Request) -> Completion:
        """Complete one request (see `models.base.ChatModel.complete`).

        Raises:
            ModelError: also where the sequence has no room left (kind `overflow`).
        """
        prompt = request.prompt_ids or ()
        room = self.most - ROOM - len(prompt)
        if room < 1:
            raise ModelError(f"{len(prompt)} tokens are there, and {self.most} the most", kind="overflow")
        most = min(room, request.sampling.max_tokens)
        sampling = msgspec.structs.replace(request.sampling, max_tokens=most)
        async with self.slots:
            completion = await self._asked.complete(msgspec.structs.replace(request, sampling=sampling))
        if completion.prompt_token_ids not in (None, prompt):  # the server put something before it or cut it
            completion = msgspec.structs.replace(completion, token_ids=(), pieces=(), logprobs=(), exact="none")
        return msgspec.structs.replace(completion, prompt_token_ids=prompt)

    async def close(self) -> None:
        """Close connections. May be called twice."""
        await self._asked.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()


async def lane_of(
    model: ChatModel,
    tokens: LocalTokens,
    protocol: InteractionProtocol,
    slots: AbstractAsyncContextManager[Any],
    *,
    most: int,
    logprobs: bool,
    check: bool,
) -> Lane:
    """The lane to a server that was found to do what is needed.

    Args:
        logprobs: whether the server must give them.
        check: hold the tokenizer against the server's.

    Raises:
        UsageError: the server does not do it, or has another tokenizer.
        ModelError: the server failed.
    """
    found = await model.probe()
    require_capabilities(protocol, model, found)
    if logprobs and not found.logprobs:
        why = found.reasons.get("logprobs", "it was asked for them")
        raise UsageError(
            f"{model.spec} gives no logprobs ({why}), and without them nothing can be trained on; choose another "
            "server, or --env.on_mismatch flag"
        )
    if check:
        await check_same(tokens, model)
    return Lane(model, tokens, slots, ids=found.token_prompts and found.token_ids, most=most)


class Rollouts:
    """Makes rollouts of one protocol with one set of settings.

    Args:
        flag: take a rollout with inexact tokens, which are then not trained on; else it is dropped.
    """

    def __init__(
        self,
        protocol: InteractionProtocol,
        sandbox: Sandbox,
        tokens: LocalTokens,
        kept: Kept,
        *,
        settings: EpisodeSettings,
        seed: int,
        flag: bool,
        identity: Identity,
    ) -> None:
        self._protocol, self._sandbox, self._tokens, self._kept = protocol, sandbox, tokens, kept
        self._settings, self._seed, self._flag, self._identity = settings, seed, flag, identity

    def prompt_length(self, problem: Problem) -> int:
        """Tokens of the messages that an episode begins with."""
        return len(self._tokens.rendered(self._protocol.opening(make_view(problem))))

    async def run(self, problem: Problem, lane: Lane, sampling: Sampling) -> Rolled:
        """One episode, to its end. What fails is said in `why`; its trace is kept, too, and says so.

        Raises:
            ModelError, UsageError: no other rollout would fare better.
            StoreError: the trace cannot be kept.
        """
        identity = msgspec.structs.replace(
            self._identity, model=lane.spec, sampling=told(sampling, lane.model), seed=self._seed
        )
        sample = self._kept.number(self._episode(problem, identity).key)
        seed = seed_of(self._seed, problem, sample)
        identity = msgspec.structs.replace(identity, sample=sample, sampling={**identity.sampling, "seed": seed})
        episode = self._episode(problem, identity)
        trace = await rollout(episode, lane, msgspec.structs.replace(sampling, seed=seed))
        await self._kept.put(trace)
        error = trace.outcome.error
        if error is not None:
            return Rolled(trace, None, error.kind)
        sequence = sequence_of(trace, self._tokens.end, self._tokens.ends)
        if sequence is None:
            return Rolled(trace, None, "no_ids")
        inexact = sequence.inexact or not sequence.trained
        return Rolled(trace, sequence, "mismatch" if inexact and not self._flag else "")

    def _episode(self, problem: Problem, identity: Identity) -> Episode:
        return Episode(
            problem, self._protocol, self._sandbox, settings=self._settings, identity=identity, tokens=self._tokens
        )
