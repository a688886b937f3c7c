"""Where the completions of rollouts come from: the trainer's own model, or a model server."""
# The trainer's libraries are an extra: without them there are no types to check against.
# pyright: reportMissingImports=false

from __future__ import annotations

import asyncio
import copy
from typing import Any

from foretrace.core.completion import Completion, Request, Sampling
from foretrace.core.errors import ForetraceError, ModelError, UsageError
from foretrace.envs.tokenizer import LocalTokens
from foretrace.envs.trl.background_loop import Room
from foretrace.envs.trl.rounds import Generated
from foretrace.models.base import ChatModel

_TAIL = 16
"""Tokens that are read for a stop sequence, beside one for each of its characters."""


class TrainedModel:
    """Generates with the weights that a `GRPOTrainer` is training, by transformers (see `_trl_rounds.Generate`).

    Temperature, `top_p`, `top_k` and the like are the trainer's. Logprobs are those after temperature alone, as the
    trainer computes them.

    Raises:
        UsageError: the trainer generates with vLLM.
    """

    def __init__(self, trainer: Any, tokens: LocalTokens) -> None:
        if getattr(trainer, "use_vllm", False):
            raise UsageError("with use_vllm give rollout_func a generate of its own, e.g. server_generate(model)")
        self._trainer, self._tokens = trainer, tokens

    def __call__(self, prompts: list[list[int]], sampling: list[Sampling], stop: tuple[str, ...]) -> list[Generated]:
        import torch
        from trl.models import unwrap_model_for_generation

        trainer = self._trainer
        config = copy.deepcopy(trainer.generation_config)
        config.max_new_tokens = max(one.max_tokens for one in sampling)
        ends = self._tokens.ends | set(trainer.eos_token_ids)
        config.eos_token_id = sorted(ends)
        width = max(map(len, prompts))
        device = trainer.accelerator.device
        ids = torch.tensor([[config.pad_token_id] * (width - len(p)) + p for p in prompts], device=device)
        shown = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in prompts], device=device)
        watch = _Watch(self._tokens, stop, width, float(sampling[0].temperature))
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
            made = model.generate(
                input_ids=ids,
                attention_mask=shown,
                generation_config=config,
                logits_processor=[watch.logits],
                stopping_criteria=[watch.over],
            )
        logprobs = torch.stack(watch.logprobs, dim=1).tolist()
        found: list[Generated] = []
        for row, own in zip(made[:, width:].tolist(), logprobs, strict=True):
            count = next((number for number, one in enumerate(row, 1) if one in ends), len(row))  # then comes padding
            found.append(Generated(row[:count], own[:count]))
        return found


class _Watch:
    """Sees each step of a generation: the logits before, and the tokens after."""

    def __init__(self, tokens: LocalTokens, stop: tuple[str, ...], width: int, temperature: float) -> None:
        self._tokens, self._stop, self._width, self._temperature = tokens, stop, width, temperature
        self._tail = max(map(len, stop), default=0) + _TAIL
        self._logits: Any = None
        self.logprobs: list[Any] = []
        """One tensor a step: the logprob of each row's token."""

    def logits(self, input_ids: Any, scores: Any) -> Any:
        """Take the logits as the model gave them: this comes before temperature and the cuts of sampling."""
        self._logits = scores
        return scores

    def over(self, input_ids: Any, scores: Any, **others: Any) -> Any:
        """Which rows have written a stop sequence."""
        import torch

        logprobs = torch.log_softmax(self._logits.float() / self._temperature, dim=-1)
        self.logprobs.append(logprobs.gather(1, input_ids[:, -1:]).squeeze(1))
        return torch.tensor([self._stops(row) for row in self._ends(input_ids)], device=input_ids.device)

    def _ends(self, input_ids: Any) -> list[list[int]]:
        return input_ids[:, max(self._width, input_ids.shape[1] - self._tail) :].tolist()

    def _stops(self, row: list[int]) -> bool:
        text = "".join(self._tokens.pieces(row)) if self._stop else ""
        return any(stop in text for stop in self._stop)


class ServedModel:
    """Generates by a model server that takes and gives token ids (see `_trl_rounds.Generate`).

    Nothing here brings the trainer's weights to the server.

    Raises:
        UsageError: the server gives no ids or no logprobs, or the sampling is not plain.
    """

    def __init__(self, model: ChatModel, *, at_once: int = 64) -> None:
        self._model, self._room = model, Room()
        self._at_once = at_once
        self._slots: asyncio.Semaphore | None = None

    def __call__(
        self, prompts: list[list[int]], sampling: list[Sampling], stop: tuple[str, ...]
    ) -> list[Completion | ForetraceError]:
        if any(one.temperature != 1.0 or one.top_p != 1.0 or one.top_k for one in sampling):
            raise UsageError(
                "a server's logprobs are those of temperature 1 without top_p and top_k: train with these "
                "(GRPOConfig's defaults)"
            )
        return self._room.submit(self._all(prompts, sampling, stop)).result()

    async def _all(
        self, prompts: list[list[int]], sampling: list[Sampling], stop: tuple[str, ...]
    ) -> list[Completion | ForetraceError]:
        if self._slots is None:
            self._room.at_end(self._model.close)  # before anything is asked: a probe that fails leaves a connection
            found = await self._model.probe()
            if not (found.token_prompts and found.token_ids and found.logprobs):
                raise UsageError(f"{self._model.spec} does not take and give token ids with logprobs: choose another")
            self._slots = asyncio.Semaphore(self._at_once)
        slots = self._slots
        asked = (self._one(slots, prompt, own, stop) for prompt, own in zip(prompts, sampling, strict=True))
        return await asyncio.gather(*asked)

    async def _one(
        self, slots: asyncio.Semaphore, prompt: list[int], sampling: Sampling, stop: tuple[str, ...]
    ) -> Completion | ForetraceError:
        async with slots:
            try:
                return await self._model.complete(Request(prompt_ids=tuple(prompt), sampling=sampling, stop=stop))
            except ModelError as error:
                return error

    def close(self) -> None:
        """Close connections. May be called twice."""
        self._slots = None
        self._room.close()
