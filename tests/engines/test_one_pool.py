"""One pool for several steps: the same workers for all that ask for such, and none left after the last or a failure."""

from __future__ import annotations

import os

import psutil
import pytest

from foretrace.core.errors import WorkerError
from foretrace.engines.engine import Engine
from foretrace.engines.one_pool import OnePool
from foretrace.engines.processes import THIS_PROCESS, Processes
from foretrace.engines.ray_tasks import RayTasks


def find_worker(engine: Engine, *, useful: int | None = None, small: bool = True) -> int:
    with engine.open_pool(useful=useful, small=small, helps=True) as pool:
        assert pool is not None and pool.workers == 1
        return pool.submit(os.getpid).result()


def end_worker(engine: Engine) -> None:
    with engine.open_pool(helps=True, kept="the second step's") as pool:
        assert pool is not None
        pool.submit(os._exit, 9).result()


def test_the_same_worker_serves_all_steps_and_ends_with_the_block() -> None:
    one = OnePool()
    first, second = one.share(Processes(2)), one.share(Processes(2))
    with one:
        worker = find_worker(first)
        with first.open_pool(useful=1) as none:
            assert none is None  # one is enough: it does not even ask
        assert find_worker(second, useful=5) == worker
        assert find_worker(second, small=False) != worker  # another kind takes its place
        assert not psutil.pid_exists(worker)
        worker = find_worker(second, small=False)
    assert not psutil.pid_exists(worker)


def test_a_step_that_fails_ends_the_workers_and_says_what_is_kept() -> None:
    one = OnePool()
    engine = one.share(Processes(2))
    with one:
        worker = find_worker(engine)
        with pytest.raises(WorkerError, match=r"a worker process died.*the second step's"):
            end_worker(engine)
        with pytest.raises(KeyError), engine.open_pool(helps=True):
            raise KeyError
        assert find_worker(engine) != worker


def test_a_cluster_is_left_alone() -> None:
    engine = RayTasks(2)
    assert OnePool().share(engine) is engine and OnePool().share_here(engine) is THIS_PROCESS
