"""Jobs in worker processes and in this one, with results in the order of the jobs and few of them in flight."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator
from concurrent.futures import Executor, Future, wait
from typing import Any, Generic, NamedTuple, TypeVar

from foretrace.engines.engine import Pool

R = TypeVar("R")


class Job(NamedTuple, Generic[R]):
    """A call that returns one result."""

    function: Callable[..., R]
    """A function of a module, so that workers can find it."""
    arguments: tuple[Any, ...]
    weight: int
    """Approximate memory that it takes, in bytes."""
    stream: Callable[[], R] | None = None
    """Returns the same result piece by piece, in this process: for a job that is too heavy to be held as a whole."""
    is_ours: bool = False
    """Whether no worker can do it, so that this process does when the result is requested."""


class Stage(NamedTuple, Generic[R]):
    """Jobs, and the function that takes their results."""

    jobs: Iterable[Job[R]]
    """Read ahead, so they must not depend on what earlier stages take."""
    take: Callable[[Iterator[R]], None]
    """Gets the results in the order of the jobs; it need not consume all of them."""


class _Slot(Generic[R]):
    def __init__(self, job: Job[R], future: Future[R] | None) -> None:
        self.job = job
        self.future = future
        """`None` for a job that this process does when the result is requested."""
        self.is_ours = False


def jobs_at_once(pool: Pool | None) -> int:
    """A capacity for jobs of weight 1: each worker has a second one ready, and this process one to do."""
    return 1 if pool is None else 2 * pool.workers + 1


def run_in_order(pool: Executor | None, jobs: Iterable[Job[R]], capacity: int) -> Iterator[R]:
    """Results of the jobs, in their order. While the next result is not ready, this process does the last job that no
    worker has begun. Without a pool, it does each job when its result is requested. What a job or `jobs` itself raises
    comes after the results of the jobs before it.

    Args:
        capacity: Approximate total weight of the jobs in flight; a heavier job is streamed, if possible.
    """
    return map(_do_here, jobs) if pool is None else _Line(pool, jobs, capacity).finish_until(None)


def run_stages(pool: Executor | None, stages: Iterable[Stage[Any]], capacity: int) -> None:
    """Let each stage take its jobs' results, one after the other, while jobs of later stages are done (`run_in_order`).
    Stages are read ahead like their jobs; `capacity` is for all of them together."""
    if pool is None:
        for stage in stages:
            stage.take(map(_do_here, stage.jobs))
        return
    left = set[int]()
    line = _Line[Any](pool, _mark_stages(stages, left), capacity)
    while line.fill():
        number, stage = line.finish_first()
        stage.take(line.finish_until(_STAGE_END))
        left.add(number)
        line.drop_until(_STAGE_END)


_STAGE_END = Job(bool, (), 0, is_ours=True)


def _mark_stages(stages: Iterable[Stage[Any]], left: Container[int]) -> Iterator[Job[Any]]:
    """For each stage: a job that returns its number and the stage, its own jobs until the stage is left, its end."""
    for number, stage in enumerate(stages):
        yield Job(lambda *stage: stage, (number, stage), 0, is_ours=True)
        for job in stage.jobs:
            if number in left:
                break
            yield job
        yield _STAGE_END


def _do_here(job: Job[R]) -> R:
    return job.stream() if job.stream is not None else job.function(*job.arguments)


class _Line(Generic[R]):
    """The jobs in flight, in their order."""

    def __init__(self, pool: Executor, jobs: Iterable[Job[R]], capacity: int) -> None:
        self._pool = pool
        self._jobs: Iterator[Job[R]] | None = iter(jobs)
        self._capacity = capacity
        self._slots = deque[_Slot[R]]()
        self._weight = 0
        self._failure: Exception | None = None
        """The error raised by the jobs' iterator; it is raised again once the jobs before it are done."""

    def fill(self) -> bool:
        """Take jobs while there is room; returns whether any are in flight."""
        while self._jobs is not None and (not self._slots or self._weight < self._capacity):
            try:
                job = next(self._jobs)
            except StopIteration:
                self._jobs = None
            except Exception as error:
                self._jobs, self._failure = None, error
            else:
                is_streamed = job.stream is not None and job.weight > self._capacity
                future = None if job.is_ours or is_streamed else self._pool.submit(job.function, *job.arguments)
                self._weight += job.weight
                self._slots.append(_Slot(job, future))
        if not self._slots and self._failure is not None:
            raise self._failure
        return bool(self._slots)

    def finish_first(self) -> R:
        """The result of the first job, which is then no longer in flight."""
        first = self._slots[0]
        if first.future is None:
            result = _do_here(first.job)
        else:
            while not first.future.done():
                if not self._do_last():
                    wait([first.future])
            result = first.future.result()
        self._remove_first()
        return result

    def finish_until(self, end: Job[Any] | None) -> Iterator[R]:
        """The results of the jobs before `end`, or of all jobs."""
        while self.fill() and self._slots[0].job is not end:
            yield self.finish_first()

    def drop_until(self, end: Job[Any]) -> None:
        while self.fill():
            first = self._remove_first()
            if first.job is end:
                return
            if first.future is not None:
                first.future.cancel()

    def _remove_first(self) -> _Slot[R]:
        first = self._slots.popleft()
        self._weight -= first.job.weight
        return first

    def _do_last(self) -> bool:
        """Do the last job that no worker has begun or is about to begin; returns whether there was one."""
        for slot in reversed(self._slots):
            if slot.future is None or slot.is_ours or not slot.future.cancel():
                continue
            slot.is_ours, slot.future = True, Future()
            try:
                slot.future.set_result(slot.job.function(*slot.job.arguments))
            except Exception as error:
                slot.future.set_exception(error)
            return True
        return False
