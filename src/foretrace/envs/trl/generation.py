"""The source of completions for rollouts: the trainer's own model or a user's function, asked once a turn for all
episodes."""
# The trainer's libraries are an extra, so there may be no types to check against.
# pyright: reportMissingImports=false

from __future__ import annotations

import asyncio
import copy
from collections.abc import Sequence
from itertools import accumulate
from queue import SimpleQueue
from typing import Any, NamedTuple, Protocol

from foretrace.core.completion import Capabilities, Completion, Request, Sampling
from foretrace.core.errors import ForetraceError, UsageError
from foretrace.envs.tokenizer import LocalTokenizer
from foretrace.models.base import ClosingModel
from foretrace.models.completion_builder import cut_at_stop


class Generation(NamedTuple):
    """The sample for one prompt."""

    ids: list[int]
    """Including the id that ended it, if any. Anything after an end of the tokenizer's or a stop sequence is ignored.
    Fewer than `max_tokens` ids mean that the model ended the completion."""
    logprobs: list[float]
    """Natural-log probability of each id, under the same distribution as the trainer's own logprobs."""


class GenerateFunc(Protocol):
    """Samples one completion for each prompt of token ids."""

    def __call__(
        self, prompts: list[list[int]], sampling: list[Sampling], stop: tuple[str, ...]
    ) -> Sequence[Generation | ForetraceError]:
        """One result per prompt, in order; an error in place of each that failed.

        Args:
            prompts: ids of the whole context of each completion.
            sampling: for each completion; they differ in `seed` and `max_tokens`. Ids beyond `max_tokens` are ignored.
            stop: texts that end a completion; their ids are part of it.
        """
        ...


class TrainedModel:
    """Generates with transformers and the weights that a `GRPOTrainer` is training (see `GenerateFunc`).

    Temperature, `top_p`, `top_k` and the like are the trainer's. Logprobs only reflect the temperature, like the
    trainer's.

    Raises:
        UsageError: the trainer generates with vLLM.
    """

    def __init__(self, trainer: Any, tokenizer: LocalTokenizer) -> None:
        if getattr(trainer, "use_vllm", False):
            raise UsageError("with use_vllm give rollout_func a generate of its own, which samples by it")
        self._trainer, self._tokenizer = trainer, tokenizer

    def __call__(self, prompts: list[list[int]], sampling: list[Sampling], stop: tuple[str, ...]) -> list[Generation]:
        import torch
        from trl.models import unwrap_model_for_generation

        trainer = self._trainer
        config = copy.deepcopy(trainer.generation_config)
        config.max_new_tokens = max(one.max_tokens for one in sampling)
        ends = self._tokenizer.end_ids | set(trainer.eos_token_ids)
        config.eos_token_id = sorted(ends)
        width = max(map(len, prompts))
        device = trainer.accelerator.device
        ids = torch.tensor([[config.pad_token_id] * (width - len(p)) + p for p in prompts], device=device)
        mask = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in prompts], device=device)
        watcher = _LogprobWatcher(float(sampling[0].temperature))
        with (
            unwrap_model_for_generation(
                trainer.model_wrapped,
                trainer.accelerator,
                gather_deepspeed3_params=trainer.args.ds3_gather_for_generation,
                generation_kwargs=trainer.generation_kwargs,
                gradient_checkpointing_kwargs=trainer.args.gradient_checkpointing_kwargs,
            ) as model,
            torch.no_grad(),
        ):
            output = model.generate(
                input_ids=ids,
                attention_mask=mask,
                generation_config=config,
                logits_processor=[watcher],
                stop_strings=list(stop) or None,
                tokenizer=trainer.processing_class,
            )
        watcher.add_logprobs(output)
        logprobs = torch.stack(watcher.logprobs, dim=1).tolist()
        generations: list[Generation] = []
        for row, own in zip(output[:, width:].tolist(), logprobs, strict=True):
            count = next((number for number, one in enumerate(row, 1) if one in ends), len(row))  # followed by padding
            generations.append(Generation(row[:count], own[:count]))
        return generations


class _LogprobWatcher:
    """Records the logprob of each token from the model's logits, before temperature and the cuts of sampling. The
    sampled token is known in the next step."""

    def __init__(self, temperature: float) -> None:
        self._temperature = temperature
        self._logits: Any = None
        self.logprobs: list[Any] = []
        """One tensor per step: the logprob of each row's token."""

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        if self._logits is not None:
            self.add_logprobs(input_ids)
        self._logits = scores
        return scores

    def add_logprobs(self, input_ids: Any) -> None:
        """Add the logprobs of the last tokens."""
        logprobs = (self._logits.float() / self._temperature).log_softmax(-1)
        self.logprobs.append(logprobs.gather(1, input_ids[:, -1:]).squeeze(1))


def make_completion(request: Request, generation: Generation, tokenizer: LocalTokenizer) -> Completion:
    """Sampled ids as a completion, which ends at its limit, at the first id that ends a turn, or at a stop sequence.

    Raises:
        UsageError: there are no ids, or not one logprob per id.
    """
    sampled, logprobs = generation
    if not sampled or len(sampled) != len(logprobs):
        raise UsageError(f"generate gave {len(sampled)} ids and {len(logprobs)} logprobs for one completion")
    ids = list(sampled)[: request.sampling.max_tokens]
    ids = ids[: next((number for number, one in enumerate(ids, 1) if one in tokenizer.end_ids), None)]
    ended = ids[-1] in tokenizer.end_ids or len(sampled) < request.sampling.max_tokens
    pieces = tokenizer.decode_pieces(ids)
    text, stop = cut_at_stop("".join(pieces), request.stop)
    if stop is not None:
        count = next(n for n, end in enumerate(accumulate(map(len, pieces)), 1) if end >= len(text) + len(stop))
        ids, pieces = ids[:count], pieces[:count]
    return Completion(
        text=text,
        finish="stop_sequence" if stop else "stop" if ended else "length",
        stop=stop,
        token_ids=tuple(ids),
        logprobs=tuple(logprobs[: len(ids)]),
        pieces=tuple(pieces),
        prompt_token_ids=request.prompt_ids,
        exact="token",
    )


class PendingRequest(NamedTuple):
    """A request, and the future that its episode waits for."""

    number: int
    """Number of the episode, by which a batch is sorted, so that the same seed gives the same samples."""
    request: Request
    answer: asyncio.Future[Generation | ForetraceError]

    def set_answer(self, answer: Generation | ForetraceError) -> None:
        if not self.answer.done():
            self.answer.set_result(answer)


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
        pending = PendingRequest(number, request, asyncio.get_running_loop().create_future())
        self._pending.append(pending)
        self._put_if_complete()
        return await pending.answer

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
                loop.call_soon_threadsafe(one.set_answer, answer)


class BatchedModel(ClosingModel):
    """A ChatModel (see `models.base.ChatModel`) for one episode, whose requests join the batches of all episodes."""

    endpoint = ""

    def __init__(self, name: str, tokenizer: LocalTokenizer, batcher: RequestBatcher, number: int) -> None:
        self.name, self.spec = name, f"trl:{name}"
        self._tokenizer, self._batcher, self._number = tokenizer, batcher, number

    async def probe(self) -> Capabilities:
        return Capabilities(logprobs=True, token_ids=True, token_prompts=True, continuation=True)

    async def complete(self, request: Request) -> Completion:
        answer = await self._batcher.ask(self._number, request)
        if isinstance(answer, ForetraceError):
            raise answer
        return make_completion(request, answer, self._tokenizer)
