"""Sends a request again after failures that may pass: a limited number of times, and no sooner than the server asks.

The loop is not stamina's: that one sleeps by itself, where a caller of ours waits without its slot and for longer than
one request needs (`OnRetry`). It also logs each retry, obeys an off switch and takes hooks for the whole process only,
which a library must not set, and raises errors with the frames of the failed try, whose locals may hold a key.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from random import Random
from typing import TypeVar

from foretrace.core.errors import ModelError
from foretrace.models.base import OnRetry
from foretrace.models.rate_limits import MAX_WAIT_S

T = TypeVar("T")
_MAX_BACKOFF_S = 20.0


async def sleep_before_retry(failure: ModelError, seconds: float) -> None:
    """The plain `OnRetry`: sleeps, whatever the failure was."""
    await asyncio.sleep(seconds)


@dataclass(frozen=True)
class RetryPolicy:
    """How often to try again, and how long to wait before."""

    retries: int
    backoff_s: float
    """First wait, seconds; doubled each time, up to 20."""
    jitter: Random
    """Spreads the waits, so that hundreds of requests do not come back at the same moment."""

    def wait_s(self, failure: ModelError, retried: int) -> float | None:
        """Seconds to wait before the next try, after `retried` retries; `None` to give up."""
        asked = failure.retry_after_s or 0.0
        if not failure.retryable or retried >= self.retries or asked > MAX_WAIT_S:
            return None
        backoff = min(self.backoff_s * 2**retried, _MAX_BACKOFF_S)
        return max(asked, backoff) * (1.0 + 0.25 * self.jitter.random())


async def retry(
    call: Callable[[], Awaitable[T]], policy: RetryPolicy, on_retry: OnRetry = sleep_before_retry
) -> tuple[T, list[str]]:
    """Call until it succeeds; returns the result, and the kinds of the failures before it.

    Raises:
        ModelError: the last failure; without a cause and without inner frames, whose locals could hold a key.
    """
    failed: list[str] = []
    while True:
        try:
            return await call(), failed
        except ModelError as error:
            failure = error
        failure.__context__ = failure.__cause__ = None
        seconds = policy.wait_s(failure, len(failed))
        if seconds is None:
            raise failure.with_traceback(None)
        failed.append(failure.kind)
        await on_retry(failure, seconds)
