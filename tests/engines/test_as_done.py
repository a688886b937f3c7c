"""Calls whose results come as they are done: all of them once, from every process that works, and errors at once."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import pytest

from foretrace.engines.as_done import run_as_done
from foretrace.engines.engine import Pool
from foretrace.engines.processes import Processes


def square(number: int, pause: float = 0) -> tuple[int, int]:
    time.sleep(pause)
    if number == 13:
        raise ValueError("thirteen")
    return number * number, os.getpid()


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    with Processes(2).open_pool(helps=True) as pool:
        assert pool is not None and pool.helps and pool.workers == 1
        pool.submit(abs, 1).result()
        yield pool


@pytest.mark.parametrize("count", [0, 1, 2, 3, 9])
def test_each_call_is_made_once(pool: Pool, count: int) -> None:
    for each in (pool, None):
        results = dict(run_as_done(each, square, [(n,) for n in range(count)]))
        assert {number: result for number, (result, _) in results.items()} == {n: n * n for n in range(count)}


def test_this_process_works_too_and_has_the_last_of_two_calls(pool: Pool) -> None:
    results = dict(run_as_done(pool, square, [(0, 0.05), (1, 0.05)]))
    assert results[0][1] != os.getpid() == results[1][1]


def test_where_it_does_not_help_the_workers_make_all_calls(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "helps", False)
    processes = {process for _, (_, process) in run_as_done(pool, square, [(n,) for n in range(4)])}
    assert len(processes) == 1 and os.getpid() not in processes


@pytest.mark.parametrize("numbers", [(13, 1), (1, 13)])
def test_an_error_of_any_process_comes_through(pool: Pool, numbers: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="thirteen"):
        list(run_as_done(pool, square, [(n,) for n in numbers]))
