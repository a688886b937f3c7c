"""Episodes that wait for one another: each round, what all of them ask is generated in one call."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import accumulate
from queue import SimpleQueue
from typing import NamedTuple, Protocol, Self

from foretrace.core.completion import Capabilities, Completion, Request, Sampling
from foretrace.core.errors import ForetraceError, UsageError
from foretrace.envs.tokenizer import LocalTokens


class Generated(NamedTuple):
    """What was sampled behind one prompt."""

    ids: list[int]
    """With the id that ended it, where one did. What stands behind an end of the tokenizer's or a stop sequence is left
    out. Fewer than `max_tokens` are a completion that the model ended, in whatever way."""
    logprobs: list[float]
    """Natural-log probability of each id, under the distribution that the trainer computes its own with."""


class Generate(Protocol):
    """Samples one completion behind each prompt of token ids."""

    def __call__(
        self, prompts: list[list[int]], sampling: list[Sampling], stop: tuple[str, ...]
    ) -> Sequence[Generated | Completion | ForetraceError]:
        """As many results as prompts, in their order. One that failed is an error in its place.

        Args:
            prompts: ids of the whole context of each.
            sampling: of each; they differ in `seed` and in `max_tokens`. Ids beyond `max_tokens` are left out.
            stop: texts that end a completion, which keeps the ids that spell them.
        """
        ...


class Asked(NamedTuple):
    """A request, and who waits for its completion."""

    number: int
    """Of the episode: a round is put in this order, so that the same seed gives the same samples."""
    request: Request
    answer: asyncio.Future[Generated | Completion | ForetraceError]


class Rounds:
    """What `members` episodes that run at one time ask for.

    Requests are held back until each episode that still runs has one; then they are put into `asked` together.
    """

    def __init__(self, name: str, tokens: LocalTokens, members: int) -> None:
        self.name, self.tokens = name, tokens
        self.asked: SimpleQueue[list[Asked] | None] = SimpleQueue()
        """Rounds for the one who generates; null at the end."""
        self._running = members
        self._waiting: list[Asked] = []

    async def ask(self, number: int, request: Request) -> Generated | Completion | ForetraceError:
        """What is generated for the request of an episode, together with those of all others."""
        answer: asyncio.Future[Generated | Completion | ForetraceError] = asyncio.get_running_loop().create_future()
        self._waiting.append(Asked(number, request, answer))
        self._full()
        return await answer

    def left(self) -> None:
        """An episode has ended: the others do not wait for it."""
        self._running -= 1
        self._full()

    def _full(self) -> None:
        if self._waiting and len(self._waiting) >= self._running:
            self.asked.put(sorted(self._waiting, key=lambda one: one.number))
            self._waiting = []


class Member:
    """A ChatModel (see `models.base.ChatModel`) for one episode of a round."""

    endpoint = ""

    def __init__(self, rounds: Rounds, number: int) -> None:
        self.name, self.spec = rounds.name, f"trl:{rounds.name}"
        self._rounds, self._number = rounds, number

    async def probe(self) -> Capabilities:
        """What it does (see `models.base.ChatModel.probe`)."""
        return Capabilities(logprobs=True, token_ids=True, token_prompts=True, continuation=True)

    async def complete(self, request: Request) -> Completion:
        """Complete one request (see `models.base.ChatModel.complete`)."""
        said = await self._rounds.ask(self._number, request)
        if isinstance(said, ForetraceError):
            raise said
        return said if isinstance(said, Completion) else completion_of(request, said, self._rounds.tokens)

    async def close(self) -> None:
        """Nothing to close."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()


def answers_of(asked: Sequence[Asked], generate: Generate) -> list[Generated | Completion | ForetraceError]:
    """What a round is answered with.

    Raises:
        UsageError: the function gave another number of results.
    """
    requests = [one.request for one in asked]
    prompts = [list(request.prompt_ids or ()) for request in requests]
    said = list(generate(prompts, [request.sampling for request in requests], requests[0].stop))
    if len(said) != len(prompts):
        raise UsageError(f"generate was given {len(prompts)} prompts and gave {len(said)} completions")
    return said


def completion_of(request: Request, said: Generated, tokens: LocalTokens) -> Completion:
    """Sampled ids as a completion: it ends at its limit, with the first id that ends a turn, or with a stop sequence.

    Raises:
        UsageError: there is no id, or not one logprob an id.
    """
    if not said.ids or len(said.ids) != len(said.logprobs):
        raise UsageError(f"generate gave {len(said.ids)} ids and {len(said.logprobs)} logprobs for one completion")
    ids = list(said.ids)[: request.sampling.max_tokens]
    ids = ids[: next((number for number, one in enumerate(ids, 1) if one in tokens.ends), None)]
    ended = ids[-1] in tokens.ends or len(said.ids) < request.sampling.max_tokens
    pieces = tokens.pieces(ids)
    text = "".join(pieces)
    found = [(at, stop) for stop in request.stop if stop and (at := text.find(stop)) >= 0]
    stop = None
    if found:
        at, stop = min(found)
        count = next(n for n, end in enumerate(accumulate(map(len, pieces)), 1) if end >= at + len(stop))
        ids, pieces, text = ids[:count], pieces[:count], text[:at]
    return Completion(
        text=text,
        finish="stop_sequence" if stop else "stop" if ended else "length",
        stop=stop,
        token_ids=tuple(ids),
        logprobs=tuple(said.logprobs[: len(ids)]),
        pieces=tuple(pieces),
        prompt_token_ids=request.prompt_ids,
        exact="token",
    )
