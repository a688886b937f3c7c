"""Trying a request again after failures that may pass: bounded, backing off, as patient as the server asks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass
from random import Random
from typing import TypeVar

from foretrace.core.errors import ModelError
from foretrace.models.rate_limits import LONGEST_PAUSE_S

T = TypeVar("T")
Rest = Callable[[ModelError, float], Awaitable[None]]
_LONGEST_BACKOFF_S = 20.0


async def _sleep(failure: ModelError, seconds: float) -> None:
    await asyncio.sleep(seconds)


RESTING: ContextVar[Rest] = ContextVar("resting", default=_sleep)
"""Waits that many seconds after a failure, before the next try. Who sets it for a request hears of each failure at
once, not only when the request has ended, and may make others wait too."""


@dataclass(frozen=True)
class Patience:
    """How often, and after which pauses, to try again."""

    retries: int
    backoff_s: float
    """First pause, seconds; doubled each time."""
    jitter: Random
    """Spreads the pauses, so that hundreds of requests do not come back at one time."""

    def pause_s(self, failure: ModelError, tried: int) -> float | None:
        """Seconds to wait after failure number `tried` (from 0), or None to give up."""
        asked = failure.retry_after_s or 0.0
        if not failure.retryable or tried >= self.retries or asked > LONGEST_PAUSE_S:
            return None
        backoff = min(self.backoff_s * 2**tried, _LONGEST_BACKOFF_S)
        return max(asked, backoff) * (1.0 + 0.25 * self.jitter.random())


async def patiently(attempt: Callable[[], Awaitable[T]], patience: Patience) -> tuple[T, list[str]]:
    """The first success, and the kinds of the failures before it.

    Raises:
        ModelError: the last failure; it carries no other exception and no inner frames, whose locals could hold a key.
    """
    failed: list[str] = []
    while True:
        try:
            return await attempt(), failed
        except ModelError as error:
            failure = error
        failure.__context__ = failure.__cause__ = None
        pause = patience.pause_s(failure, len(failed))
        if pause is None:
            raise failure.with_traceback(None)
        failed.append(failure.kind)
        await RESTING.get()(failure, pause)
