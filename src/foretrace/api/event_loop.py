"""Run coroutines for callers that have no event loop, and for those that have one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

_Result = TypeVar("_Result")


def run_in_event_loop(work: Callable[[], Coroutine[Any, Any, _Result]]) -> _Result:
    """The result of a coroutine, in an event loop of its own: in another thread where one is running here, as in a
    notebook."""
    from concurrent.futures import ThreadPoolExecutor

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work())
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(lambda: asyncio.run(work())).result()
