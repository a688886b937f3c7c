"""A model on a server without token ids: its logprobs are aligned with the ids of the model's own tokenizer."""

from __future__ import annotations

from collections import Counter

import msgspec

from foretrace.core.completion import Completion, Request
from foretrace.envs.tokenizer import LocalTokenizer
from foretrace.models.base import ChatModel, ModelWrapper


class AlignedModel(ModelWrapper):
    """A ChatModel on top of another, which is sent messages. Its replies get ids if these are certain.

    Otherwise a completion has no ids or logprobs, `extra["mismatch"]` has the reason, and it is counted.
    """

    def __init__(self, model: ChatModel, tokenizer: LocalTokenizer) -> None:
        super().__init__(model)
        self._tokenizer = tokenizer
        self.mismatches: Counter[str] = Counter()
        """Replies without ids, by reason."""

    async def complete(self, request: Request) -> Completion:
        """Complete one request (see `models.base.ChatModel.complete`). Its prompt ids identify the context."""
        completion = await self._model.complete(msgspec.structs.replace(request, prompt_ids=None))
        completion = msgspec.structs.replace(completion, prompt_token_ids=request.prompt_ids)
        ids, pieces, why = self._align(request, completion)
        if not why:
            return msgspec.structs.replace(completion, token_ids=ids, pieces=pieces, exact="text")
        self.mismatches[why] += 1
        extra = completion.extra | {"mismatch": why}
        return msgspec.structs.replace(completion, token_ids=(), pieces=(), logprobs=(), exact="none", extra=extra)

    def _align(self, request: Request, completion: Completion) -> tuple[tuple[int, ...], tuple[str, ...], str]:
        """The ids and their texts, or why there are none."""
        if completion.reasoning:
            return (), (), "thinking came apart from the text (switch it off, e.g. by the setting think)"
        theirs = completion.usage.prompt_tokens if completion.usage else None
        if request.prompt_ids is not None and theirs is not None and theirs != len(request.prompt_ids):
            return (), (), "the server's prompt has another number of tokens than ours"
        if not completion.text and not completion.pieces:
            return (), (), ""
        if not completion.pieces or len(completion.logprobs) != len(completion.pieces):
            return (), (), "the server gave no logprobs"
        if "\ufffd" in completion.text:
            return (), (), "the text has bytes that are not characters, of which only the server knows the ids"
        joined = "".join(completion.pieces)
        text = joined if joined.startswith(completion.text) else completion.text
        ids = self._tokenizer.encode(text, special=True)
        pieces = self._tokenizer.decode_pieces(ids)
        if len(ids) != len(completion.pieces) or not _are_same(pieces, completion.pieces):
            return (), (), "the tokenizer cuts the text otherwise than the server did"
        return tuple(ids), tuple(pieces), ""


def _are_same(ours: list[str], theirs: tuple[str, ...]) -> bool:
    """Whether the tokens have the same texts. A token within a character has no text here, and may have any there."""
    inside = False
    for own, other in zip(ours, theirs, strict=True):
        if own != other and own and not inside:
            return False
        inside = not own
    return True
