"""Run coroutines for callers with or without a running event loop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from foretrace.episodes.proposers import Proposer
    from foretrace.models.base import ChatModel, Server
    from foretrace.sandbox.base import Sandbox

_Result = TypeVar("_Result")


def run_in_event_loop(work: Callable[[], Coroutine[Any, Any, _Result]]) -> _Result:
    """The result of a coroutine, run in a new event loop; in another thread if a loop is already running here, as in a
    notebook."""
    from concurrent.futures import ThreadPoolExecutor

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work())
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(lambda: asyncio.run(work())).result()


@contextlib.asynccontextmanager
async def closing_all(*parts: ChatModel | Sandbox | Proposer) -> AsyncGenerator[None]:
    """Close all parts at the end, even if closing one of them fails; raises the first error."""
    errors: list[BaseException | None] = []
    try:
        yield
    except BaseException as error:
        errors.append(error)
    errors += await asyncio.gather(*(part.close() for part in parts), return_exceptions=True)
    for error in filter(None, errors):
        raise error


def run_with_model(
    model: str | ChatModel, server: Server | None, work: Callable[[ChatModel], Coroutine[Any, Any, _Result]]
) -> _Result:
    """The result of work with a model, which is closed afterwards."""
    from foretrace.registry import make_model

    made = make_model(model, server) if isinstance(model, str) else model

    async def run() -> _Result:
        async with closing_all(made):
            return await work(made)

    return run_in_event_loop(run)
