"""Reads from a server's error whether the context is too short, and how many tokens a prompt leaves for the reply.

Many servers refuse a request whose prompt and `max_tokens` together are longer than the context, even where the reply
would have been short.
"""

from __future__ import annotations

import re
from typing import NamedTuple

MIN_REPLY_TOKENS = 64
"""A shorter reply is not worth a request."""
_OVERFLOW = re.compile(
    r"exceed_context_size|context_length_exceeded|exceeds? the (available |maximum )?(context|model.s maximum)"
    r"|maximum context length|input length exceeds|longer than the (context|maximum model)"
    r"|context (window|size) exceeded|tokens \+ .max_new_tokens. must be",
    re.IGNORECASE,
)
_SHARED = re.compile(r"context size has been exceeded", re.IGNORECASE)
_CONTEXT = re.compile(r"(?:context length (?:is|of)|max_new_tokens. must be <=) (\d{1,9})\b")
_PROMPT = re.compile(
    r"\b(\d{1,9}) (?:in the messages|in your prompt|of text input|input tokens|tokens from the input|.inputs. tokens)"
)
_REPLY = re.compile(r"completion|in the output|output tokens|max_(?:completion_|new_)?tokens")
_LOWER_BOUND = re.compile(r"at least|upper bound")
"""Newer vLLM stops counting where the prompt no longer fits: the number that it names then is not the length."""


class ContextOverflow(NamedTuple):
    """Lengths that a server names where prompt and reply do not fit into the context together."""

    context_tokens: int
    prompt_tokens: int | None
    """`None` where the server has not counted them."""

    def tokens_left(self, prompt_tokens: int) -> int:
        """Tokens for a reply to a prompt of that many; one fewer than fits exactly, which SGLang refuses."""
        return self.context_tokens - prompt_tokens - 1


def is_overflow(message: str) -> bool:
    """Whether an error message says that the prompt, with or without the reply, is longer than the context."""
    return bool(_OVERFLOW.search(message))


def is_shared_overflow(message: str) -> bool:
    """Whether all requests under way are together longer than a context that they share.

    A llama-server whose slots share one context ends all of them with that message. Fewer requests at a time fit.
    """
    return bool(_SHARED.search(message))


def parse_overflow(message: str) -> ContextOverflow | None:
    """The lengths in an error message of vLLM, SGLang, TGI, OpenAI or OpenRouter; `None` for any other message."""
    context, prompt = _CONTEXT.search(message), _PROMPT.search(message)
    if context is None or not _REPLY.search(message):
        return None
    return ContextOverflow(int(context[1]), int(prompt[1]) if prompt and not _LOWER_BOUND.search(message) else None)
