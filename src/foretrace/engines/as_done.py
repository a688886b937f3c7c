"""Calls in worker processes and in this one, with results in order of completion."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import Any, TypeVar

from foretrace.engines.engine import Pool

R = TypeVar("R")


def run_as_done(
    pool: Pool | None, function: Callable[..., R], arguments: Sequence[tuple[Any, ...]]
) -> Iterator[tuple[int, R]]:
    """Number and result of each call, in order of completion.

    If this process is one of the workers (`Pool.helps`), it makes calls too, starting with the last ones; meanwhile up
    to two results of each worker may be waiting. Without a pool, it makes each call when its result is requested.

    Args:
        pool: The workers.
        function: A function of a module, so that workers can find it.
        arguments: The arguments of each call.

    Raises:
        Exception: what a call raises.
    """
    left = deque(enumerate(arguments))
    running: dict[Future[R], int] = {}
    while left or running:
        while pool is not None and left and _has_room(pool, len(running), len(left)):
            number, own = left.popleft()
            running[pool.submit(function, *own)] = number
        if left:
            number, own = left.popleft() if pool is None else left.pop()
            yield number, function(*own)
            done = {future for future in running if future.done()}
        else:
            done = wait(running, return_when=FIRST_COMPLETED).done
        for future in done:
            yield running.pop(future), future.result()


def _has_room(pool: Pool, running: int, left: int) -> bool:
    """Whether to give the workers one more call: each has a second one ready, but a process that helps gets the last
    one."""
    return not pool.helps or running < pool.workers or (running < 2 * pool.workers and left > 1)
