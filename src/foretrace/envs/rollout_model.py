"""A model server as used by rollouts: with token ids, within its slots, and within the length of a sequence."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

import msgspec

from foretrace.core.completion import Completion, Request
from foretrace.core.errors import ModelError, Setting, UsageError
from foretrace.envs.tokenizer import LocalTokenizer, check_tokenizer
from foretrace.episodes.requirements import require_capabilities
from foretrace.models.base import ChatModel, ModelWrapper
from foretrace.protocols.base import InteractionProtocol

RESERVED_TOKENS = 2
"""Ids of a sequence that are not available to completions: the end of the turn, and one to stay below the limit."""
_SKIPS = 16
"""Number of rollouts that skip a server after a failure, before one of them tries it again."""
_UNLIMITED = contextlib.nullcontext()
_NO_IDS: dict[str, Any] = {"token_ids": (), "pieces": (), "logprobs": (), "exact": "none"}


class RolloutModel(ModelWrapper):
    """A ChatModel (see `models.base.ChatModel`) on top of a model server.

    Args:
        gives_ids: whether the server accepts and returns token ids. Otherwise it is sent messages, and the logprobs of
            its replies are aligned with the ids of the tokenizer; a reply in which these are not certain has neither,
            and `extra["mismatch"]` says why.
        max_sequence_tokens: most ids of a whole sequence.
        slots: entered by each request; limits the server's concurrent requests.
    """

    def __init__(
        self,
        model: ChatModel,
        tokenizer: LocalTokenizer,
        *,
        gives_ids: bool,
        max_sequence_tokens: int,
        slots: AbstractAsyncContextManager[Any] = _UNLIMITED,
    ) -> None:
        super().__init__(model)
        self.model = model
        self._tokenizer, self._slots, self._gives_ids = tokenizer, slots, gives_ids
        self.max_sequence_tokens = max_sequence_tokens
        self.started = self.running = 0
        """Number of rollouts assigned to it, and of those it serves now."""
        self.skips = 0
        """Number of rollouts that still skip it because its last request failed."""

    async def complete(self, request: Request) -> Completion:
        """See `ChatModel`; a ModelError (kind `overflow`) also if the sequence has no room left."""
        prompt = request.prompt_ids or ()
        left = self.max_sequence_tokens - RESERVED_TOKENS - len(prompt)
        if left < 1:
            raise ModelError(
                f"the prompt has {len(prompt)} tokens, which leaves no room for a completion: a sequence has "
                f"{self.max_sequence_tokens} at most",
                kind="overflow",
            )
        max_tokens = min(left, request.sampling.max_tokens)
        request = msgspec.structs.replace(
            request,
            sampling=msgspec.structs.replace(request.sampling, max_tokens=max_tokens),
            prompt_ids=request.prompt_ids if self._gives_ids else None,
        )
        async with self._slots:
            try:
                completion = self._add_ids(await self.model.complete(request), prompt)
            except ModelError as error:
                if error.kind != "empty":
                    self.skips = 0 if error.kind == "overflow" else _SKIPS
                    raise
                completion = Completion(text="")  # repeatedly empty: the model's own reply, which is rewarded as such
            self.skips = 0
        return msgspec.structs.replace(completion, prompt_token_ids=prompt)

    def _add_ids(self, completion: Completion, prompt: tuple[int, ...]) -> Completion:
        if not self._gives_ids:
            return _align_ids(completion, prompt, self._tokenizer)
        if completion.prompt_token_ids not in (None, prompt):  # the server changed or cut the prompt
            return msgspec.structs.replace(completion, **_NO_IDS)
        return _decode_ids(completion, self._tokenizer)


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


def _align_ids(completion: Completion, prompt: Sequence[int], tokenizer: LocalTokenizer) -> Completion:
    if why := _explain_mismatch(completion, prompt):
        return _remove_ids(completion, why)
    joined = "".join(completion.pieces)
    ids = tokenizer.encode(joined if joined.startswith(completion.text) else completion.text, special=True)
    pieces = tokenizer.decode_pieces(ids)
    if len(ids) != len(completion.pieces) or not _are_same(pieces, completion.pieces):
        return _remove_ids(completion, "the tokenizer cuts the text otherwise than the server did")
    return msgspec.structs.replace(completion, token_ids=tuple(ids), pieces=tuple(pieces), exact="text")


def _explain_mismatch(completion: Completion, prompt: Sequence[int]) -> str:
    """Why no ids can be certain; empty if they may be."""
    theirs = completion.usage.prompt_tokens if completion.usage else None
    if completion.reasoning:
        return "thinking came apart from the text (switch it off, e.g. by the setting think)"
    if prompt and theirs not in (None, len(prompt)):
        return "the server's prompt has another number of tokens than ours"
    is_empty = not completion.text and not completion.pieces
    if not is_empty and not 0 < len(completion.pieces) == len(completion.logprobs):
        return "the server gave no logprobs"
    if "\ufffd" in completion.text:
        return "the text has bytes that are not characters, of which only the server knows the ids"
    return ""


def _remove_ids(completion: Completion, why: str) -> Completion:
    return msgspec.structs.replace(completion, **_NO_IDS, extra=completion.extra | {"mismatch": why})


def _are_same(ours: list[str], theirs: tuple[str, ...]) -> bool:
    """Whether the tokens have the same texts. A token within a character has no text here, and may have any there."""
    inside = False
    for own, other in zip(ours, theirs, strict=True):
        if own != other and own and not inside:
            return False
        inside = not own
    return True


async def check_model(
    model: ChatModel,
    tokenizer: LocalTokenizer,
    protocol: InteractionProtocol,
    *,
    need_logprobs: bool,
    compare_tokenizer: bool,
) -> bool:
    """Whether the server accepts and returns token ids.

    Raises:
        UsageError: the server lacks a required capability, or has another tokenizer.
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
    return capabilities.token_prompts and capabilities.token_ids
