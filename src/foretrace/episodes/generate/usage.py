"""What a run may use, and has used: tokens, seconds and cost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

import msgspec

from foretrace.core.completion import Capabilities, Completion, Request
from foretrace.models.base import ChatModel

_CHARS_PER_TOKEN = 4
"""For the estimate where a server does not count tokens."""


class TokenMeter:
    """Adds up the tokens of completions."""

    def __init__(self) -> None:
        self.prompt_tokens = self.completion_tokens = self.requests = 0
        self.estimated = False
        """Whether the server left a count out, and it was estimated from the length of the text."""

    @property
    def total_tokens(self) -> int:
        """Of prompts and completions."""
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


class MeteredModel:
    """A `ChatModel` on top of another that counts the tokens of one attempt."""

    def __init__(self, model: ChatModel) -> None:
        self.name, self.spec, self.endpoint = model.name, model.spec, model.endpoint
        self._model = model
        self.meter = TokenMeter()

    async def probe(self) -> Capabilities:
        """See `ChatModel.probe`."""
        return await self._model.probe()

    async def complete(self, request: Request) -> Completion:
        """See `ChatModel.complete`."""
        completion = await self._model.complete(request)
        self.meter.add(request, completion)
        return completion

    async def close(self) -> None:
        """Nothing: other attempts use the model, too."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()


class RunUsage:
    """What the attempts of a run have used: those that finished together, each one in flight for itself."""

    def __init__(self) -> None:
        self.finished = TokenMeter()
        """Of all finished attempts."""
        self.finished_attempts = 0
        """Number of finished attempts that have used anything."""
        self._in_flight: list[TokenMeter] = []

    @property
    def in_flight(self) -> tuple[TokenMeter, ...]:
        """Of each attempt in flight."""
        return tuple(self._in_flight)

    def start_attempt(self, model: ChatModel) -> MeteredModel:
        """The model for one attempt, which is in flight from now on."""
        metered = MeteredModel(model)
        self._in_flight.append(metered.meter)
        return metered

    def finish_attempt(self, model: MeteredModel) -> None:
        """The attempt is over."""
        meter = model.meter
        self._in_flight.remove(meter)
        self.finished_attempts += meter.total_tokens > 0
        self.finished.prompt_tokens += meter.prompt_tokens
        self.finished.completion_tokens += meter.completion_tokens


class Budget(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a run may use. No attempt is begun that would probably go beyond it; those in flight are finished."""

    tokens: int | None = None
    """Of prompts and completions."""
    seconds: float | None = None
    cost: float | None = None
    price_in: float = 0.0
    """Of a million prompt tokens, in the unit of `cost`."""
    price_out: float = 0.0
    """Of a million completion tokens."""

    def compute_cost(self, meter: TokenMeter) -> float:
        """Cost of the tokens, in the unit of `cost`."""
        return (meter.prompt_tokens * self.price_in + meter.completion_tokens * self.price_out) / 1e6

    def check_time(self, seconds: float) -> str | None:
        """Why no further attempt may begin so many seconds after the run began; `None` where one may."""
        if self.seconds is not None and seconds >= self.seconds:
            return f"the time of {self.seconds:g} s is over"
        return None

    def check_tokens_and_cost(self, usage: RunUsage, *, guess: int) -> str | None:
        """Why no further attempt may begin beside those in flight; `None` where one may. The first one always may.

        Args:
            guess: tokens that an attempt may use at most: the estimate for each, as long as none has finished.
        """
        if not usage.in_flight and not usage.finished_attempts:
            return None
        max_price = max(self.price_in, self.price_out)
        if self.tokens is not None and _would_exceed(self.tokens, _count_tokens, usage, guess):
            return f"the budget of {self.tokens:,} tokens has no room for another attempt"
        if self.cost is not None and _would_exceed(self.cost, self.compute_cost, usage, guess * max_price / 1e6):
            return f"the budget of {self.cost:g} has no room for another attempt"
        return None


def _count_tokens(meter: TokenMeter) -> float:
    return meter.total_tokens


def _would_exceed(limit: float, measure: Callable[[TokenMeter], float], usage: RunUsage, guess: float) -> bool:
    """Whether one more attempt would probably exceed the limit: each one in flight is expected to use as much as the
    average of those that finished, or what it has used already if that is more."""
    finished = measure(usage.finished)
    each = finished / usage.finished_attempts if usage.finished_attempts else guess
    return finished + sum(max(each, measure(meter)) for meter in usage.in_flight) + each > limit
