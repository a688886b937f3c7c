"""The fields of OpenAI-compatible streams that are read, with those that vLLM, SGLang and llama.cpp add."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePath
from typing import Any

import msgspec

from foretrace.core.completion import ChatMessage, FinishReason
from foretrace.models.completion_builder import Weighed
from foretrace.models.http import Http

FINISH: dict[str, FinishReason] = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
}


class Delta(msgspec.Struct, gc=False):
    """A piece of a chat message."""

    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None


class Logprobs(msgspec.Struct, gc=False):
    """Of chat: `content`. Of text: `tokens` and `token_logprobs`."""

    content: list[Weighed] | None = None
    tokens: list[str] | None = None
    token_logprobs: list[float | None] | None = None


class Choice(msgspec.Struct, gc=False):
    """One choice of an event: `delta` in chat, `text` in completions."""

    index: int = 0
    delta: Delta | None = None
    text: str | None = None
    logprobs: Logprobs | None = None
    finish_reason: str | None = None
    token_ids: list[int] | None = None
    prompt_token_ids: list[int] | None = None
    stop_reason: Any = None
    """vLLM: the stop sequence, or the id of a stop token."""
    matched_stop: Any = None
    """SGLang: the same."""


class Counts(msgspec.Struct, gc=False):
    """Numbers of tokens."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class Event(msgspec.Struct, gc=False):
    """One event of a stream."""

    model: str | None = None
    object: str | None = None
    choices: list[Choice] | None = None
    usage: Counts | None = None
    prompt_token_ids: list[int] | None = None
    error: Any = None
    message: Any = None


class Meta(msgspec.Struct):
    """llama-server: facts of a model."""

    n_ctx: int | None = None


class Listed(msgspec.Struct):
    """One model of /v1/models."""

    id: str
    owned_by: Any = None
    max_model_len: int | None = None
    context_length: int | None = None
    context_window: int | None = None
    meta: Meta | None = None
    aliases: list[str] | None = None

    @property
    def names(self) -> set[str]:
        """By which the model may be called at a llama-server, which lists the path of its file."""
        file = PurePath(self.id.replace("\\", "/")).name
        return {self.id, *(self.aliases or ()), file, file.removesuffix(".gguf")}

    @property
    def context(self) -> int | None:
        """Tokens of its context, in the words of vLLM, of others, or of llama-server."""
        own = self.max_model_len or self.context_length or self.context_window
        return own or (self.meta.n_ctx if self.meta else None)


class Models(msgspec.Struct):
    """The answer of /v1/models."""

    data: list[Listed] | None = None


_SPECIAL = re.compile(r"<[^<>\s]{1,60}>|\[[A-Z_/]{2,30}\]")
"""What may be the name of a special token."""


class _Tokens(msgspec.Struct):
    tokens: list[int]


async def of_text(http: Http, text: str, *, special: bool) -> list[int]:
    """Ids of a text.

    The server always reads the names of special tokens as such. Where they must stay text, an opening bracket is
    tokenised by itself, so that text of the environment cannot end a turn.
    """
    if special or not _SPECIAL.search(text):
        return await _ask(http, {"prompt": text}) if text else []
    parts = [part for part in re.split(r"([<\[])", text) if part]
    known = {part: await _ask(http, {"prompt": part}) for part in dict.fromkeys(parts)}
    return [token for part in parts for token in known[part]]


async def of_messages(http: Http, messages: Sequence[ChatMessage]) -> list[int]:
    """Ids of messages under the model's template, ready for the assistant's reply."""
    shown = [{"role": m.role, "content": m.content} for m in messages]
    return await _ask(http, {"messages": shown, "add_generation_prompt": True})


async def _ask(http: Http, what: dict[str, Any]) -> list[int]:
    url = http.address.base.removesuffix("/v1") + "/tokenize"
    body = {"model": http.place.model, "add_special_tokens": False} | what
    return (await http.answer("POST", url, body, _Tokens)).tokens
