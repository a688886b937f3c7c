"""Token ids by vLLM's `/tokenize`, beside the OpenAI interface; other servers have no such path."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from foretrace.core.completion import ChatMessage
from foretrace.models._http import Http

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
