"""What models, protocols and episodes share: what is asked of a model, and what it returned."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from foretrace.core.trace import Usage

TokenExactness = Literal["token", "text", "none"]
"""`token`: the ids are the sampled ones. `text`: logprobs stand beside pieces of text without ids. `none`: neither."""

FinishReason = Literal["stop", "length", "stop_sequence", "tool_calls"]
"""Why a completion ended: the model's own end, the token limit, a stop sequence of ours, or native calls."""


class _Record(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, gc=False):
    """Base of these records: immutable, defaults left out of the JSON."""


class ChatMessage(_Record, frozen=True):
    """One message as a model server takes it."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str


class Sampling(_Record, frozen=True, kw_only=True):
    """How to sample; sent in full with each request, since servers have defaults of their own."""

    temperature: float = 0.7
    top_p: float = 1.0
    top_k: int | None = None
    max_tokens: int = 4096
    """Most tokens of one completion."""
    seed: int | None = None
    extra: dict[str, Any] = {}
    """Further options in the server's own words."""


class Request(_Record, frozen=True, kw_only=True):
    """One completion that is asked for."""

    messages: tuple[ChatMessage, ...] = ()
    prefill: str = ""
    """Beginning of the assistant's reply, which the completion goes on with (text; needs `continuation`)."""
    prompt_ids: tuple[int, ...] | None = None
    """The whole context as token ids (needs `token_prompts`). Where it is given, messages and prefill say the same in
    words, or are absent; a server is sent the ids."""
    stop: tuple[str, ...] = ()
    sampling: Sampling = Sampling()
    logprobs: bool = True
    """Ask for logprobs where the server has them."""


class Completion(_Record, frozen=True, kw_only=True):
    """What a model returned."""

    text: str
    """The reply, without the prefill and without the stop sequence that ended it."""
    reasoning: str | None = None
    """Thinking that the server keeps apart from the text."""
    finish: FinishReason = "stop"
    stop: str | None = None
    """The stop sequence that ended it, where the server says or the text shows which."""
    token_ids: tuple[int, ...] = ()
    """With those of the stop sequence and of the end, where the server sends them."""
    logprobs: tuple[float, ...] = ()
    """Natural-log probabilities: aligned with `token_ids` where there are ids, else with `pieces`."""
    pieces: tuple[str, ...] = ()
    """Text of each token for which there is a logprob. Joined, they begin with `text`; the last may go beyond it."""
    prompt_token_ids: tuple[int, ...] | None = None
    exact: TokenExactness = "none"
    usage: Usage | None = None
    seconds: float = 0.0
    """Wall-clock seconds from the request to the last byte, retries left out."""
    model: str = ""
    """Name by which the server says it answered."""
    extra: dict[str, Any] = {}


class Capabilities(_Record, frozen=True, kw_only=True):
    """What a model server was found to do, and where not, why."""

    logprobs: bool = False
    token_ids: bool = False
    """Completions come with the ids that were sampled."""
    token_prompts: bool = False
    """Takes a prompt of token ids, and can tokenise text and render messages to ids."""
    continuation: bool = False
    """Goes on with an assistant turn that was begun for it."""
    reasoning_apart: bool = False
    """Thinking comes apart from the text."""
    context_length: int | None = None
    reasons: dict[str, str] = {}
    """By capability: what was observed where it is missing."""


CAPABILITY_NAMES = tuple(field.name for field in msgspec.structs.fields(Capabilities) if field.type is bool)
"""What a server can do or not, by the names of the fields; beside them there is `context_length`."""
