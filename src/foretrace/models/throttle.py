"""A model for many concurrent requests: limits them, and pauses all of them while the server recovers."""

from __future__ import annotations

import asyncio
import time

from foretrace.core.completion import Completion, Request
from foretrace.core.errors import ModelError
from foretrace.models.base import ChatModel, ModelWrapper, RetryingModel
from foretrace.models.limiter import AdaptiveLimiter
from foretrace.models.server_errors import CROWDED, MAX_WAIT_S, TRANSIENT_KINDS
from foretrace.models.token_meter import TokenMeter

MAX_CONCURRENCY = 256
"""The most concurrent requests if the user does not set a limit."""
_INITIAL_SLOTS = 8
_IN_PROCESS_SLOTS = 4
"""Concurrent requests: a server's initial limit, and the fixed limit of a model in this process."""
_SERVER_KINDS = TRANSIENT_KINDS - {"empty"} | {"dns", "tls", "bad_reply"}
"""Kinds of failure that concern the server, not just one request."""
_OVERLOAD_KINDS = frozenset({"busy", "timeout", CROWDED})
"""Kinds of failure that fewer concurrent requests would have avoided."""


def make_limiter(model: ChatModel, concurrency: int | None) -> AdaptiveLimiter:
    """A limiter of this many concurrent requests; with `None`, it adapts to what the model's server can handle."""
    if concurrency is not None:
        return AdaptiveLimiter(concurrency)
    if not model.endpoint:
        return AdaptiveLimiter(_IN_PROCESS_SLOTS)
    # A local Ollama runs one model on one device: whether it can handle more is measured, not assumed.
    return AdaptiveLimiter(1 if model.spec.startswith("ollama:") else _INITIAL_SLOTS, MAX_CONCURRENCY)


class ThrottledModel(ModelWrapper):
    """A `ChatModel` around another one, for many concurrent requests.

    Each request waits for a slot of the limiter. With a `RetryingModel`, failures count as soon as they happen: after
    an overload the limiter lowers its limit, the request gives up its slot while it waits, and a pause that the server
    asks for applies to all requests.

    Failures that concern the server are counted in rounds: the failures of requests that were under way together are
    one round. All requests pause after a round, twice as long each time.

    Args:
        meter: Counts the tokens of all completions.
        max_failed_rounds: After this many rounds without a success in between, a failure is final.
        pause_s: Pause after the first round, in seconds.
    """

    def __init__(
        self,
        model: ChatModel,
        limiter: AdaptiveLimiter,
        meter: TokenMeter,
        *,
        max_failed_rounds: int = 5,
        pause_s: float = 1.0,
    ) -> None:
        super().__init__(model)
        self._limiter, self._meter = limiter, meter
        self._max_failed_rounds, self._pause_s = max_failed_rounds, pause_s
        self._failed_rounds = 0
        self._last_round = float("-inf")
        """When the last failed round was counted (`time.monotonic`)."""
        self._paused_until = 0.0
        """Nothing is sent before this time (`time.monotonic`)."""
        self.failing = ""
        """Kind of the last failure; empty once a request has succeeded since."""

    async def complete(self, request: Request) -> Completion:
        """See `ChatModel`. A ModelError is final also if the server has failed for `max_failed_rounds`, or asks for a
        longer wait than `MAX_WAIT_S`."""
        async with self._limiter:
            first_try = last_try = await self._wait_for_pause()

            async def on_retry(failure: ModelError, seconds: float) -> None:
                nonlocal last_try
                self.failing = failure.kind
                if failure.kind not in _OVERLOAD_KINDS:
                    await asyncio.sleep(seconds)
                    return
                self._limiter.record_overload(last_try, is_certain=failure.kind == CROWDED)
                self._paused_until = max(self._paused_until, time.monotonic() + (failure.retry_after_s or 0.0))
                await self._limiter.release_during(asyncio.sleep(seconds))
                last_try = await self._wait_for_pause()

            try:
                if isinstance(self._model, RetryingModel):
                    completion = await self._model.complete_with_retries(request, on_retry)
                else:
                    completion = await self._model.complete(request)
            except ModelError as error:
                self._record_failure(error, first_try, last_try)
                raise
            self._failed_rounds, self.failing = 0, ""
            self._limiter.record_success(last_try, max(1, self._meter.add(request, completion)))
            return completion

    async def _wait_for_pause(self) -> float:
        """Wait until the pause is over; returns the time (`time.monotonic`)."""
        while (seconds := self._paused_until - time.monotonic()) > 0:
            await asyncio.sleep(seconds)
        return time.monotonic()

    def _record_failure(self, error: ModelError, first_try: float, last_try: float) -> None:
        """Count a request that failed for good, whose first and last tries began at these times; raise a ModelError if
        the failure is final."""
        if error.kind not in _SERVER_KINDS:
            return
        self.failing = error.kind
        self._limiter.record_overload(last_try)
        if (asked := error.retry_after_s or 0.0) > MAX_WAIT_S:
            advice = f"; it asks to wait {asked / 3600:.3g} hours: run it again then"
            raise ModelError(*error.parts, advice, kind=error.kind, final=True) from None
        if first_try <= self._last_round:
            return
        self._last_round = time.monotonic()
        self._failed_rounds += 1
        if self._failed_rounds >= self._max_failed_rounds:
            reason = f"; gave up after {self._failed_rounds} rounds of failures in a row"
            raise ModelError(*error.parts, reason, kind=error.kind, final=True) from None
        pause = max(self._pause_s * 2 ** (self._failed_rounds - 1), asked)
        self._paused_until = time.monotonic() + pause
