"""The source of completions for rollouts: the trainer's own model, or a user's function."""
# The trainer's libraries are an extra, so there may be no types to check against.
# pyright: reportMissingImports=false

from __future__ import annotations

import copy
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, NamedTuple, Protocol

from foretrace.core.completion import Completion, Request, Sampling
from foretrace.core.errors import ForetraceError, UsageError
from foretrace.envs.tokenizer import LocalTokenizer


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
    text = "".join(pieces)
    matches = [(at, stop) for stop in request.stop if stop and (at := text.find(stop)) >= 0]
    stop = None
    if matches:
        at, stop = min(matches)
        count = next(n for n, end in enumerate(accumulate(map(len, pieces)), 1) if end >= at + len(stop))
        ids, pieces, text = ids[:count], pieces[:count], text[:at]
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
