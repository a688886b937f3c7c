"""Counts the tokens of completions, even if a server does not."""

from __future__ import annotations

from foretrace.core.completion import Completion, Request

_CHARS_PER_TOKEN = 4
"""For the estimate if a server does not count tokens."""


class TokenMeter:
    """Adds up the tokens of completions."""

    def __init__(self) -> None:
        self.prompt_tokens = self.completion_tokens = self.requests = 0
        self.estimated = False
        """Whether the server left out a count, so that it was estimated from the length of the text."""

    @property
    def total_tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens

    def add(self, request: Request, completion: Completion) -> int:
        """Count one completion and its prompt; returns the tokens of the completion alone."""
        usage = completion.usage
        prompt_tokens = usage.prompt_tokens if usage else None
        completion_tokens = usage.completion_tokens if usage else None
        self.estimated = self.estimated or prompt_tokens is None or completion_tokens is None
        if prompt_tokens is None:
            ids, chars = request.prompt_ids, len(request.prefill) + sum(len(m.content) for m in request.messages)
            prompt_tokens = chars // _CHARS_PER_TOKEN if ids is None else len(ids)
        if completion_tokens is None:
            completion_tokens = (len(completion.text) + len(completion.reasoning or "")) // _CHARS_PER_TOKEN
        self.requests += 1
        self.prompt_tokens += prompt_tokens
        self.completion_tokens += completion_tokens
        return completion_tokens
