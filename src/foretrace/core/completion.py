"""Types that models, protocols and episodes share: what a model is asked for, and what it returned."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from foretrace.core.trace import Record, Usage

TokenExactness = Literal["token", "text", "none"]
"""`token`: the ids are the sampled ones. `text`: logprobs belong to pieces of text without ids. `none`: neither."""

FinishReason = Literal["stop", "length", "stop_sequence", "tool_calls"]
"""Why a completion ended: the model finished, the token limit, one of our stop sequences, or native tool calls."""


class ChatMessage(Record, frozen=True):
    """One message in the form that a model server takes."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str


class Sampling(Record, frozen=True, kw_only=True):
    """How to sample. Sent in full with each request, since servers have their own defaults."""

    temperature: float = 0.7
    top_p: float = 1.0
    top_k: int | None = None
    max_tokens: int = 4096
    seed: int | None = None
    extra: dict[str, Any] = msgspec.field(default_factory=dict)
    """Further options, as the server names them."""


class Request(Record, frozen=True, kw_only=True):
    """A request for one completion."""

    messages: tuple[ChatMessage, ...] = ()
    prefill: str = ""
    """Beginning of the assistant's reply, which the completion continues (as text; needs `continuation`)."""
    prompt_ids: tuple[int, ...] | None = None
    """The whole context as token ids (needs `token_prompts`). The server is then sent the ids; messages and prefill are
    empty, or say the same as text."""
    stop: tuple[str, ...] = ()
    sampling: Sampling = Sampling()
    logprobs: bool = True
    """Ask for logprobs if the server supports them."""


class Completion(Record, frozen=True, kw_only=True):
    """What a model returned."""

    text: str
    """The reply, without the prefill and without the stop sequence that ended it."""
    reasoning: str | None = None
    """Thinking, if the server keeps it apart from the text."""
    finish: FinishReason = "stop"
    stop: str | None = None
    """The stop sequence that ended it, if the server says so or the text shows it."""
    token_ids: tuple[int, ...] = ()
    """Ids of the reply, including those of the stop sequence and the end token if the server sends them."""
    logprobs: tuple[float, ...] = ()
    """Natural-log probabilities, aligned with `token_ids` if there are ids, else with `pieces`."""
    pieces: tuple[str, ...] = ()
    """Text of each token that has a logprob. Joined, they begin with `text`; the last one may extend beyond it."""
    prompt_token_ids: tuple[int, ...] | None = None
    exact: TokenExactness = "none"
    usage: Usage | None = None
    seconds: float = 0.0
    """Wall-clock seconds from the request to the last byte, not counting retries."""
    model: str = ""
    extra: dict[str, Any] = msgspec.field(default_factory=dict)


class Capabilities(Record, frozen=True, kw_only=True):
    """What a model server was found to support, and if not, why."""

    logprobs: bool = False
    token_ids: bool = False
    token_prompts: bool = False
    """Accepts a prompt of token ids, and can tokenize text and render messages to ids."""
    continuation: bool = False
    """Can continue an assistant turn that was begun for it."""
    reasoning_apart: bool = False
    """Returns thinking separately from the text."""
    context_length: int | None = None
    reasons: dict[str, str] = msgspec.field(default_factory=dict)
    """By missing capability: what was observed."""


CAPABILITY_NAMES = tuple(field.name for field in msgspec.structs.fields(Capabilities) if field.type is bool)
"""The yes-or-no capabilities, by field name; `context_length` comes in addition."""
