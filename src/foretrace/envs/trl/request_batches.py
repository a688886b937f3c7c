"""Requests of concurrent episodes are generated together: one batch per turn, in one call."""

from __future__ import annotations

import asyncio
from queue import SimpleQueue
from typing import NamedTuple

from foretrace.core.completion import Capabilities, Completion, Request
from foretrace.core.errors import ForetraceError, UsageError
from foretrace.envs.tokenizer import LocalTokenizer
from foretrace.envs.trl.generation import GenerateFunc, Generation, make_completion
from foretrace.models.base import ClosingModel


class PendingRequest(NamedTuple):
    """A request, and the future that its episode waits for."""

    number: int
    """Number of the episode, by which a batch is sorted, so that the same seed gives the same samples."""
    request: Request
    answer: asyncio.Future[Generation | ForetraceError]


class RequestBatcher:
    """Collects the requests of `episodes` concurrent episodes.

    Requests wait until each running episode has one, and are then put into `batches` together.
    """

    def __init__(self, episodes: int) -> None:
        self.batches: SimpleQueue[list[PendingRequest] | None] = SimpleQueue()
        """For the thread that generates; `None` at the end."""
        self._running = episodes
        self._pending: list[PendingRequest] = []

    async def ask(self, number: int, request: Request) -> Generation | ForetraceError:
        """The generation for the request of an episode, made together with those of all others."""
        answer: asyncio.Future[Generation | ForetraceError] = asyncio.get_running_loop().create_future()
        self._pending.append(PendingRequest(number, request, answer))
        self._put_if_complete()
        return await answer

    def leave(self) -> None:
        """Note that an episode has ended, so that others do not wait for it."""
        self._running -= 1
        self._put_if_complete()

    def _put_if_complete(self) -> None:
        if self._pending and len(self._pending) >= self._running:
            self.batches.put(sorted(self._pending, key=lambda one: one.number))
            self._pending = []

    def generate_all(self, generate: GenerateFunc, loop: asyncio.AbstractEventLoop) -> None:
        """Generate for all batches in this thread, until the end. `loop` is the loop of the episodes."""
        for batch in iter(self.batches.get, None):
            requests = [one.request for one in batch]
            prompts = [list(request.prompt_ids or ()) for request in requests]
            answers = list(generate(prompts, [request.sampling for request in requests], requests[0].stop))
            if len(answers) != len(prompts):
                raise UsageError(f"generate was given {len(prompts)} prompts and gave {len(answers)} completions")
            for one, answer in zip(batch, answers, strict=True):
                loop.call_soon_threadsafe(_set_answer, one.answer, answer)


def _set_answer(future: asyncio.Future[Generation | ForetraceError], answer: Generation | ForetraceError) -> None:
    if not future.done():
        future.set_result(answer)


class BatchedModel(ClosingModel):
    """A ChatModel (see `models.base.ChatModel`) for one episode, whose requests join the batches of all episodes."""

    endpoint = ""

    def __init__(self, name: str, tokenizer: LocalTokenizer, batcher: RequestBatcher, number: int) -> None:
        self.name, self.spec = name, f"trl:{name}"
        self._tokenizer, self._batcher, self._number = tokenizer, batcher, number

    async def probe(self) -> Capabilities:
        """Its capabilities (see `models.base.ChatModel.probe`)."""
        return Capabilities(logprobs=True, token_ids=True, token_prompts=True, continuation=True)

    async def complete(self, request: Request) -> Completion:
        """Complete one request (see `models.base.ChatModel.complete`)."""
        answer = await self._batcher.ask(self._number, request)
        if isinstance(answer, ForetraceError):
            raise answer
        return make_completion(request, answer, self._tokenizer)
