"""Retries: how long they wait, when they end, and who decides how to wait."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from foretrace.core.errors import ModelError
from foretrace.models.adapter import RetryPolicy, retry


def test_waits_grow_are_spread_and_end() -> None:
    policy = RetryPolicy(3, 1.0, Random(1))
    waits = [policy.wait_s(ModelError("x", retryable=True), n) for n in range(4)]
    for n, wait in enumerate(waits[:3]):
        assert wait is not None and 2**n <= wait <= 1.25 * 2**n
    assert waits[3] is None and policy.wait_s(ModelError("x"), 0) is None


def test_the_caller_waits_and_hears_of_each_failure_at_once() -> None:
    failures = [ModelError("a", kind="busy", retryable=True, retry_after_s=7.0), ModelError("b", retryable=True)]
    left = list(failures)
    heard: list[tuple[ModelError, float]] = []

    async def call() -> str:
        if left:
            raise left.pop(0)
        return "ok"

    async def on_retry(failure: ModelError, seconds: float) -> None:
        assert len(left) == 1 - len(heard)
        heard.append((failure, seconds))

    assert asyncio.run(retry(call, RetryPolicy(4, 1.0, Random(1)), on_retry)) == ("ok", ["busy", "server"])
    assert [failure for failure, _ in heard] == failures
    assert 7.0 <= heard[0][1] <= 8.75 and 2.0 <= heard[1][1] <= 2.5


def test_the_last_failure_is_raised() -> None:
    async def call() -> str:
        raise ModelError("no", retryable=True)

    with pytest.raises(ModelError, match="no"):
        asyncio.run(retry(call, RetryPolicy(2, 0.0, Random(1))))
