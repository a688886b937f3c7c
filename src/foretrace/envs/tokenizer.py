"""A Hugging Face tokenizer for the token ids of an episode, and the check that it is the served model's own."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from foretrace.core.completion import ChatMessage, Request, Sampling
from foretrace.core.errors import Setting, UsageError, find_first_line
from foretrace.models.base import ChatModel, TokenModel

_CHECK_CHAT = (
    ChatMessage("system", "Be brief.\n\n```python\ndef f(x):\n    return x + 1\n```"),
    ChatMessage("user", 'Größe "é" 🙂\t<tool_call> 1234567  \n\n</think>\nSay: ok\n'),
)
_MAX_CACHED_PROMPTS = 256
"""Prompts whose ids are cached: all rollouts of a problem begin alike, and rendering costs more than a small
episode."""


class LocalTokenizer:
    """A tokenizer of transformers 4 or 5 as a `models.base.TokenModel`: ids of text, and of messages in its chat
    template, which is given `options`. UsageError if it has no template, or is not of the fast kind."""

    def __init__(self, tokenizer: Any, name: str = "the tokenizer", **options: Any) -> None:
        from tokenizers import Tokenizer

        backend: Any = getattr(tokenizer, "backend_tokenizer", None)
        if not hasattr(backend, "to_str"):
            raise UsageError(f"{name}: no fast tokenizer; give a folder with a tokenizer.json")
        self.name = name
        self._tokenizer, self._options = tokenizer, options
        self._special: Any = Tokenizer.from_str(backend.to_str())
        self._plain: Any = Tokenizer.from_str(backend.to_str())
        for one in (self._special, self._plain):
            one.no_padding()
            one.no_truncation()
        self._plain.encode_special_tokens = True
        self._apply_cached = lru_cache(_MAX_CACHED_PROMPTS)(self._apply)
        self.end_id, self.end_ids = self._find_ends()

    async def tokenize(self, text: str, *, special: bool = False) -> list[int]:
        return self.encode(text, special=special)

    async def render(self, messages: Sequence[ChatMessage]) -> list[int]:
        return self.apply_template(messages)

    def encode(self, text: str, *, special: bool = False) -> list[int]:
        """Ids of a text; without `special`, text is never read as a control token."""
        reader = self._special if special else self._plain
        return list(reader.encode(text, add_special_tokens=False).ids)

    def apply_template(self, messages: Sequence[ChatMessage], *, open_reply: bool = True) -> list[int]:
        """Ids of messages in the chat template; with `open_reply` they end with the beginning of a reply."""
        return list(self._apply_cached(tuple(messages), open_reply))

    def _apply(self, messages: tuple[ChatMessage, ...], open_reply: bool) -> tuple[int, ...]:
        chat = [{"role": m.role, "content": m.content} for m in messages]
        try:
            ids = self._tokenizer.apply_chat_template(
                chat, tokenize=True, return_dict=False, add_generation_prompt=open_reply, **self._options
            )
        except Exception as error:  # templates raise exceptions of any kind
            why = find_first_line(error)
            raise UsageError(f"{self.name}: its chat template cannot render the messages: {why}") from None
        return tuple(int(token) for token in ids)

    def decode_pieces(self, ids: Sequence[int]) -> list[str]:
        """Text of each id. A character that spans several ids belongs to the last, and control tokens have no text."""
        from tokenizers.decoders import DecodeStream

        stream: Any = DecodeStream(skip_special_tokens=True)
        return [stream.step(self._special, token) or "" for token in ids]

    def _find_ends(self) -> tuple[int, frozenset[int]]:
        """The id that ends an assistant's turn in the template, and all ids that end a reply."""
        user = ChatMessage("user", "Go on.")
        opening = self.apply_template([user])
        whole = self.apply_template([user, ChatMessage("assistant", "yes")], open_reply=False)
        eos: int | None = self._tokenizer.eos_token_id
        added: dict[int, Any] = self._special.get_added_tokens_decoder()
        controls = [token for token in whole[len(opening) :] if token in added and added[token].special]
        ends = [token for token in (*controls[:1], eos) if token is not None]
        if not ends:
            raise UsageError(f"{self.name}: it has no token that ends a turn (eos_token)")
        return ends[0], frozenset(ends)


async def check_tokenizer(local: LocalTokenizer, model: ChatModel) -> None:
    """Raise a UsageError if the tokenizer is not the model's own, by the ids of a chat, or their number if the server
    returns none."""
    ours = local.apply_template(_CHECK_CHAT)
    if isinstance(model, TokenModel) and (await model.probe()).token_prompts:
        same = await model.render(_CHECK_CHAT) == ours
    else:
        reply = await model.complete(Request(messages=_CHECK_CHAT, sampling=Sampling(temperature=0.0, max_tokens=1)))
        same = reply.usage is None or reply.usage.prompt_tokens in (None, len(ours))
    if not same:
        raise UsageError(
            f"the tokenizer {local.name}, or its chat template, is not the one of {model.spec}: give the model's own (",
            Setting("tokenizer_name"),
            ")",
        )
