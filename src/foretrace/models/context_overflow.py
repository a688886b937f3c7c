"""Reads out of a server's refusal how much room a prompt leaves for the reply: many take no more than fits exactly."""

from __future__ import annotations

import re
from typing import NamedTuple

LEAST = 64
"""A reply of fewer tokens is not worth a request."""
_CONTEXT = re.compile(r"(?:context length (?:is|of)|max_new_tokens. must be <=) (\d{1,9})\b")
_PROMPT = re.compile(
    r"\b(\d{1,9}) (?:in the messages|in your prompt|of text input|input tokens|tokens from the input|.inputs. tokens)"
)
_REPLY = re.compile(r"completion|in the output|output tokens|max_(?:completion_|new_)?tokens")
_VAGUE = re.compile(r"at least|upper bound")
"""Newer vLLM stops counting where the prompt no longer fits: what it names then is no length."""


class Refused(NamedTuple):
    """A prompt and the reply that was asked for were longer than the context together."""

    context: int
    """Tokens."""
    prompt: int | None
    """Tokens; null where the server has not counted them."""

    def room(self, prompt: int) -> int:
        """Tokens for a reply to a prompt of that many; one is left over, since SGLang wants it."""
        return self.context - prompt - 1


def refused(said: str) -> Refused | None:
    """What a refusal says; null where it is none of this kind: vLLM, SGLang, TGI, OpenAI and OpenRouter have theirs."""
    context, prompt = _CONTEXT.search(said), _PROMPT.search(said)
    if context is None or not _REPLY.search(said):
        return None
    return Refused(int(context[1]), int(prompt[1]) if prompt and not _VAGUE.search(said) else None)
