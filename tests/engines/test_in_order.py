"""Jobs run in order: the same results for any pool, few in flight, heavy ones streamed, errors at their place."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest

from foretrace.engines.in_order import Job, Stage, jobs_at_once, run_in_order, run_stages
from foretrace.engines.processes import Processes


def square(number: int, pause: float = 0) -> tuple[int, int]:
    time.sleep(pause)
    if number == 13:
        raise ValueError("thirteen")
    return number * number, os.getpid()


@pytest.fixture(scope="module")
def pool() -> Iterator[ProcessPoolExecutor]:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        pool.submit(abs, 1).result()
        yield pool


def test_results_come_in_the_order_of_the_jobs_and_both_processes_work(pool: ProcessPoolExecutor) -> None:
    jobs = [Job(square, (n, 0.02), 1) for n in range(12)]
    results = list(run_in_order(pool, jobs, 8))
    assert [result for result, _ in results] == [n * n for n in range(12)]
    assert os.getpid() in {process for _, process in results} and len({process for _, process in results}) == 2
    assert [result for result, _ in run_in_order(None, jobs, 8)] == [n * n for n in range(12)]


def test_few_jobs_are_taken_ahead(pool: ProcessPoolExecutor) -> None:
    taken: list[int] = []

    def jobs() -> Iterator[Job[tuple[int, int]]]:
        for number in range(20, 60):
            taken.append(number)
            yield Job(square, (number,), 10)

    for done, _ in enumerate(run_in_order(pool, jobs(), 50), 1):
        assert len(taken) == min(40, done + 4), "as many as there is room for, until the end"


def test_each_worker_has_a_second_job_ready() -> None:
    with Processes(2).open_pool(helps=True) as pool:
        assert pool is not None and (jobs_at_once(pool), jobs_at_once(None)) == (3, 1)


def test_a_job_that_is_too_heavy_is_streamed_here(pool: ProcessPoolExecutor) -> None:
    jobs = [Job(square, (n,), weight, lambda n=n: (-n, 0)) for n, weight in ((1, 1), (2, 99), (3, 1))]
    assert [result for result, _ in run_in_order(pool, jobs, 50)] == [1, -2, 9]


def test_an_error_comes_after_the_results_before_it(pool: ProcessPoolExecutor) -> None:
    for jobs in ([Job(square, (n,), 1) for n in (1, 2, 13, 4)], broken_jobs()):
        results: list[int] = []
        with pytest.raises(ValueError, match="thirteen"):
            results.extend(result for result, _ in run_in_order(pool, jobs, 8))
        assert results == [1, 4]


def broken_jobs() -> Iterator[Job[tuple[int, int]]]:
    yield Job(square, (1,), 1)
    yield Job(square, (2,), 1)
    raise ValueError("thirteen")


class Takers:
    """Stages that note what they are given, and how many jobs were read when they began."""

    def __init__(self, leave: int = 0) -> None:
        self.leave = leave
        """The result after which a stage leaves the others."""
        self.read: list[int] = []
        self.taken: dict[str, list[int]] = {}
        self.read_before: dict[str, int] = {}

    def make_jobs(self, numbers: Iterable[int]) -> Iterator[Job[tuple[int, int]]]:
        for number in numbers:
            self.read.append(number)
            yield Job(square, (number, 0.01), 10)

    def make_stage(self, name: str, *numbers: int) -> Stage[tuple[int, int]]:
        def take(results: Iterator[tuple[int, int]]) -> None:
            self.read_before[name] = len(self.read)
            taken = self.taken.setdefault(name, [])
            for result, _ in results:
                taken.append(result)
                if result == self.leave:
                    break

        return Stage(self.make_jobs(numbers), take)


def test_each_stage_takes_its_own_results_while_later_ones_are_done(pool: ProcessPoolExecutor) -> None:
    numbers: dict[str, tuple[int, ...]] = {"a": (1, 2), "b": (), "c": (3,), "d": (4, 5, 6)}
    for workers in (pool, None):
        takers = Takers()
        run_stages(workers, (takers.make_stage(name, *own) for name, own in numbers.items()), 40)
        assert takers.taken == {name: [n * n for n in own] for name, own in numbers.items()}
        assert takers.read_before["a"] == (4 if workers else 0) and len(takers.read) == 6


def test_what_a_stage_leaves_is_not_read_on(pool: ProcessPoolExecutor) -> None:
    for workers in (pool, None):
        takers = Takers(leave=4)
        run_stages(workers, [takers.make_stage("a", *range(1, 12)), takers.make_stage("b", 20, 21)], 30)
        assert takers.taken == {"a": [1, 4], "b": [400, 441]}
        assert max(number for number in takers.read if number < 20) < 7


def test_stages_before_one_that_fails_are_done(pool: ProcessPoolExecutor) -> None:
    for workers in (pool, None):
        takers = Takers()

        def make_stages(takers: Takers = takers) -> Iterator[Stage[tuple[int, int]]]:
            yield takers.make_stage("a", 1, 2)
            yield takers.make_stage("b", 3)
            raise ValueError("no third")

        with pytest.raises(ValueError, match="no third"):
            run_stages(workers, make_stages(), 1000)
        assert takers.taken == {"a": [1, 4], "b": [9]}
