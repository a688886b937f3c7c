"""What a run has used: the tokens of its attempts."""

from __future__ import annotations

from foretrace.core.completion import Completion, Request
from foretrace.models.base import ChatModel, ModelWrapper
from foretrace.models.token_meter import TokenMeter


class MeteredModel(ModelWrapper):
    """A `ChatModel` on top of another that counts the tokens of one attempt."""

    def __init__(self, model: ChatModel, meter: TokenMeter) -> None:
        super().__init__(model)
        self.meter = meter

    async def complete(self, request: Request) -> Completion:
        """See `ChatModel.complete`."""
        completion = await self._model.complete(request)
        self.meter.add(request, completion)
        return completion

    async def close(self) -> None:
        """Leave the model open: other attempts use it too."""


class RunUsage:
    """Tokens used by the attempts of a run: one sum for finished attempts, and one for each attempt in flight."""

    def __init__(self) -> None:
        self.finished = TokenMeter()
        """Tokens of all finished attempts."""
        self.finished_attempts = 0
        """Number of finished attempts that have used anything."""
        self._in_flight: list[TokenMeter] = []

    @property
    def in_flight(self) -> tuple[TokenMeter, ...]:
        """Tokens of each attempt in flight."""
        return tuple(self._in_flight)

    def start_attempt(self) -> TokenMeter:
        """Start an attempt, which is in flight from now on; returns its meter."""
        meter = TokenMeter()
        self._in_flight.append(meter)
        return meter

    def finish_attempt(self, meter: TokenMeter) -> None:
        """Move the tokens of an attempt to the finished ones."""
        self._in_flight.remove(meter)
        self.finished_attempts += meter.total_tokens > 0
        self.finished.prompt_tokens += meter.prompt_tokens
        self.finished.completion_tokens += meter.completion_tokens
