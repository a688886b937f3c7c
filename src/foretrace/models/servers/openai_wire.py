"""The fields of OpenAI-compatible streams that are read, with those that vLLM, SGLang and llama.cpp add."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from foretrace.core.completion import ChatMessage, FinishReason
from foretrace.models.adapter import list_file_names, list_messages
from foretrace.models.completion_builder import TokenLogprob
from foretrace.models.http import HttpClient

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
    """In chat `content`; in text completions `tokens` and `token_logprobs`."""

    content: list[TokenLogprob] | None = None
    tokens: list[str] | None = None
    token_logprobs: list[float | None] | None = None


class Choice(msgspec.Struct, gc=False):
    """One choice of an event: `delta` in chat, `text` in text completions."""

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


class TokenCounts(msgspec.Struct, gc=False):
    """Numbers of tokens."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class Event(msgspec.Struct, gc=False):
    """One event of a stream."""

    model: str | None = None
    object: str | None = None
    choices: list[Choice] | None = None
    usage: TokenCounts | None = None
    prompt_token_ids: list[int] | None = None
    error: Any = None
    message: Any = None


class ModelMeta(msgspec.Struct):
    """Of llama-server."""

    n_ctx: int | None = None


class ListedModel(msgspec.Struct):
    """One model of /v1/models."""

    id: str
    owned_by: Any = None
    max_model_len: int | None = None
    context_length: int | None = None
    context_window: int | None = None
    meta: ModelMeta | None = None
    aliases: list[str] | None = None

    @property
    def names(self) -> set[str]:
        """Names of the model; a llama-server lists the path of its file, and takes the name of the file, too."""
        return {self.id, *(self.aliases or ()), *list_file_names(self.id)}

    @property
    def context(self) -> int | None:
        """Tokens of its context: vLLM, other servers and llama-server have fields of their own for it."""
        own = self.max_model_len or self.context_length or self.context_window
        return own or (self.meta.n_ctx if self.meta else None)


class ModelList(msgspec.Struct):
    """The answer of /v1/models."""

    data: list[ListedModel] | None = None


_SPECIAL_TOKEN = re.compile(r"<[^<>\s]{1,60}>|\[[A-Z_/]{2,30}\]")
"""Text that may be the name of a special token."""


class _Tokens(msgspec.Struct):
    tokens: list[int]


async def tokenize_text(http: HttpClient, text: str, *, special: bool) -> list[int]:
    """Ids of a text.

    The server always reads the names of special tokens as such tokens. Where they must stay text (`special` false), an
    opening bracket is tokenized by itself, so that text of the environment cannot end a turn.
    """
    if special or not _SPECIAL_TOKEN.search(text):
        return await _tokenize(http, {"prompt": text}) if text else []
    parts = [part for part in re.split(r"([<\[])", text) if part]
    ids = {part: await _tokenize(http, {"prompt": part}) for part in dict.fromkeys(parts)}
    return [token for part in parts for token in ids[part]]


async def tokenize_messages(http: HttpClient, messages: Sequence[ChatMessage]) -> list[int]:
    """Ids of messages under the model's template, ready for the assistant's reply."""
    return await _tokenize(http, {"messages": list_messages(messages), "add_generation_prompt": True})


async def _tokenize(http: HttpClient, what: dict[str, Any]) -> list[int]:
    url = http.address.base.removesuffix("/v1") + "/tokenize"
    body = {"model": http.errors.model, "add_special_tokens": False} | what
    return (await http.request_json("POST", url, body, _Tokens)).tokens
