"""Worker processes: none where one is enough, none that outlives its parent, and one clear line where one died."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from typing import Any

import pytest

from foretrace.core.errors import BuildError
from foretrace.engines.processes import worker_pool


def run(function: Callable[..., Any], *arguments: Any) -> None:
    with worker_pool(2) as pool:
        assert pool is not None
        pool.submit(function, *arguments).result()


def test_one_worker_needs_no_pool() -> None:
    with worker_pool(1) as pool:
        assert pool is None


def test_results_come_back_and_workers_end() -> None:
    with worker_pool(2) as pool:
        assert pool is not None
        assert list(pool.map(abs, [-1, -2, 3])) == [1, 2, 3]
        own = pool.submit(os.getpid).result()
    with pytest.raises(ProcessLookupError):
        os.kill(own, 0)


def test_an_error_in_a_worker_comes_back_as_it_was() -> None:
    with pytest.raises(ZeroDivisionError):
        run(divmod, 1, 0)


def test_a_worker_that_died_is_one_clear_error() -> None:
    with pytest.raises(BuildError, match="a worker process died"):
        run(os._exit, 9)


def test_an_error_outside_does_not_wait_for_the_workers() -> None:
    begun = time.monotonic()
    with contextlib.suppress(KeyError), worker_pool(2) as pool:
        assert pool is not None
        pool.submit(abs, 1).result()
        pool.submit(time.sleep, 60)
        raise KeyError
    assert time.monotonic() - begun < 30


def test_workers_leave_ctrl_c_to_the_parent() -> None:
    """The whole group gets the signal: a worker that is hit by it, idle or at work, goes on."""
    with worker_pool(2) as pool:
        assert pool is not None
        worker = pool.submit(os.getpid).result()
        os.kill(worker, signal.SIGINT)
        assert pool.submit(os.getpid).result() == worker
        asleep = pool.submit(time.sleep, 0.5)
        time.sleep(0.1)
        os.kill(worker, signal.SIGINT)
        asleep.result()
