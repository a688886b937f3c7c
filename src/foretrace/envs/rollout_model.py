"""A model server as used by rollouts: with token ids, within its slots, and within the length of a sequence."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

import msgspec

from foretrace.core.completion import Completion, Request
from foretrace.core.errors import ModelError, Setting, UsageError
from foretrace.envs.aligned_model import AlignedModel
from foretrace.envs.tokenizer import LocalTokenizer, check_tokenizer
from foretrace.episodes.requirements import require_capabilities
from foretrace.models.base import ChatModel, ModelWrapper
from foretrace.protocols.base import InteractionProtocol

RESERVED_TOKENS = 2
"""Ids of a sequence that are not available to completions: the end of the turn, and one to stay below the limit."""
_SKIPS = 16
"""Number of rollouts that skip a server after a failure, before one of them tries it again."""


class RolloutModel(ModelWrapper):
    """A ChatModel (see `models.base.ChatModel`) on top of a model server.

    Args:
        slots: entered by each request; limits the server's concurrent requests.
        gives_ids: whether the server accepts and returns token ids; otherwise they are aligned (see `AlignedModel`).
        max_sequence_tokens: most ids of a whole sequence.
    """

    def __init__(
        self,
        model: ChatModel,
        tokenizer: LocalTokenizer,
        slots: AbstractAsyncContextManager[Any],
        *,
        gives_ids: bool,
        max_sequence_tokens: int,
    ) -> None:
        super().__init__(model if gives_ids else AlignedModel(model, tokenizer))
        self.slots: Any = slots
        self.model, self.gives_ids = model, gives_ids
        self._tokenizer = tokenizer
        self.max_sequence_tokens = max_sequence_tokens
        self.started = self.running = 0
        """Number of rollouts assigned to it, and of those it serves now."""
        self.skips = 0
        """Number of rollouts that still skip it because its last request failed."""

    async def complete(self, request: Request) -> Completion:
        """Complete one request (see `models.base.ChatModel.complete`).

        Raises:
            ModelError: also if the sequence has no room left (kind `overflow`).
        """
        prompt = request.prompt_ids or ()
        left = self.max_sequence_tokens - RESERVED_TOKENS - len(prompt)
        if left < 1:
            raise ModelError(
                f"the prompt has {len(prompt)} tokens, which leaves no room for a completion: a sequence has "
                f"{self.max_sequence_tokens} at most",
                kind="overflow",
            )
        max_tokens = min(left, request.sampling.max_tokens)
        sampling = msgspec.structs.replace(request.sampling, max_tokens=max_tokens)
        async with self.slots:
            try:
                completion = await super().complete(msgspec.structs.replace(request, sampling=sampling))
            except ModelError as error:
                if error.kind != "empty":
                    self.skips = 0 if error.kind == "overflow" else _SKIPS
                    raise
                completion = Completion(text="")  # repeatedly empty: the model's own reply, which is rewarded as such
            self.skips = 0
        if completion.prompt_token_ids not in (None, prompt):  # the server changed or cut the prompt
            completion = msgspec.structs.replace(completion, token_ids=(), pieces=(), logprobs=(), exact="none")
        if self.gives_ids:
            completion = _decode_ids(completion, self._tokenizer)
        return msgspec.structs.replace(completion, prompt_token_ids=prompt)


def choose_model(models: Sequence[RolloutModel]) -> RolloutModel:
    """The least busy server for a new rollout. Now and then a rollout tries a failed server, in case it is back."""
    chosen = min(models, key=lambda model: (model.skips > 0, model.running, model.started))
    for model in models:
        model.skips = max(0, model.skips - 1)
    chosen.started += 1
    return chosen


def _decode_ids(completion: Completion, tokenizer: LocalTokenizer) -> Completion:
    """The completion with each id's text from the tokenizer, if the server's pieces may be insufficient: many servers
    decode tokens separately, which loses characters that span several."""
    ids, text = completion.token_ids, completion.text
    if len(completion.pieces) == len(ids) and text.isascii():
        return completion
    pieces = tokenizer.decode_pieces(ids)
    if not "".join(pieces).startswith(text):  # it has names of control tokens, or part of a character
        return completion
    return msgspec.structs.replace(completion, pieces=tuple(pieces))


async def connect_model(
    model: ChatModel,
    tokenizer: LocalTokenizer,
    protocol: InteractionProtocol,
    slots: AbstractAsyncContextManager[Any],
    *,
    max_sequence_tokens: int,
    need_logprobs: bool,
    compare_tokenizer: bool,
) -> RolloutModel:
    """Query a server's capabilities, and refuse one that lacks a required one.

    Args:
        need_logprobs: whether the server must return logprobs.
        compare_tokenizer: compare the tokenizer with the server's.

    Raises:
        UsageError: the server lacks a capability, or has another tokenizer.
        ModelError: the server failed.
    """
    capabilities = await model.probe()
    require_capabilities(protocol, model, capabilities)
    if need_logprobs and not capabilities.logprobs:
        why = capabilities.reasons.get("logprobs", "it was asked for them")
        raise UsageError(
            f"{model.spec} gives no logprobs ({why}), and without them nothing can be trained on; choose another "
            "server, or ",
            Setting("on_mismatch", "flag"),
        )
    if compare_tokenizer:
        await check_tokenizer(tokenizer, model)
    gives_ids = capabilities.token_prompts and capabilities.token_ids
    return RolloutModel(model, tokenizer, slots, gives_ids=gives_ids, max_sequence_tokens=max_sequence_tokens)
