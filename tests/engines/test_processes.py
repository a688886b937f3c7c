"""Worker processes: none where one is enough, none that outlives its parent, and one clear line where one died."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
import subprocess
import sys
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from core.test_store import make
from foretrace.core.errors import WorkerError
from foretrace.core.store import write_traces
from foretrace.core.trace import Task
from foretrace.engines.processes import Processes, prepare_worker, release_memory, usable_cores


def run(function: Callable[..., Any], *arguments: Any) -> None:
    with Processes(2).open_pool() as pool:
        assert pool is not None
        pool.submit(function, *arguments).result()


def import_pandas_after(*small: bool) -> bool:
    """In a worker: whether pandas can be imported there, once it was made ready for these jobs."""
    for each in small:
        prepare_worker(each)
    return importlib.util.find_spec("pandas") is not None


def test_a_worker_of_small_jobs_can_do_others_later() -> None:
    try:
        known = importlib.util.find_spec("pandas") is not None
    except ModuleNotFoundError:  # this process is a small one
        known = True
    with Processes(2).open_pool(small=False) as pool:
        assert pool is not None
        with pytest.raises(ModuleNotFoundError):
            pool.submit(import_pandas_after, True).result()
        assert pool.submit(import_pandas_after, True, False).result() == known


class _Ring:
    def __init__(self) -> None:
        self.ring = self


def _is_freed_by_release(_: int) -> bool:
    gone = weakref.ref(_Ring())
    assert gone() is not None, "reference counts freed it: this test shows nothing"
    release_memory()
    return gone() is None


def test_objects_that_hold_one_another_are_freed_between_jobs() -> None:
    """Python looks for them seldom in a worker, and those of a job may hold all of its texts."""
    with Processes(2).open_pool() as pool:
        assert pool is not None and pool.submit(_is_freed_by_release, 0).result()


def test_results_and_errors_come_back_and_workers_end() -> None:
    with Processes(1).open_pool() as none:
        assert none is None, "one worker needs no pool"
    with Processes(2).open_pool() as pool:
        assert pool is not None
        assert list(pool.map(abs, [-1, -2, 3])) == [1, 2, 3]
        own = pool.submit(os.getpid).result()
        with pytest.raises(ZeroDivisionError):
            pool.submit(divmod, 1, 0).result()
    with pytest.raises(ProcessLookupError):
        os.kill(own, 0)


def test_a_worker_that_died_is_one_clear_error() -> None:
    with pytest.raises(WorkerError, match="a worker process died"):
        run(os._exit, 9)


def test_an_error_outside_does_not_wait_for_the_workers() -> None:
    begun = time.monotonic()
    with contextlib.suppress(KeyError), Processes(2).open_pool() as pool:
        assert pool is not None
        pool.submit(abs, 1).result()
        pool.submit(time.sleep, 60)
        time.sleep(0.3)  # until a worker has it
        raise KeyError
    assert time.monotonic() - begun < 30


def test_workers_leave_ctrl_c_to_the_parent() -> None:
    """The whole group gets the signal: a worker that is hit by it, idle or at work, goes on."""
    with Processes(2).open_pool() as pool:
        assert pool is not None
        worker = pool.submit(os.getpid).result()
        os.kill(worker, signal.SIGINT)
        assert pool.submit(os.getpid).result() == worker
        asleep = pool.submit(time.sleep, 0.5)
        time.sleep(0.1)
        os.kill(worker, signal.SIGINT)
        asleep.result()


def test_cores_are_those_that_this_process_may_use() -> None:
    script = "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}); " + (
        "from foretrace.engines.processes import usable_cores; print(usable_cores())"
    )
    if hasattr(os, "sched_setaffinity"):
        assert subprocess.run([sys.executable, "-c", script], capture_output=True, check=True).stdout == b"1\n"
    assert usable_cores() >= 1


ORPHANS = """
import os, pathlib, signal, sys
from foretrace.actions.label_table import make_label_tables
from foretrace.engines.processes import Processes
if __name__ == "__main__":
    tables = make_label_tables(pathlib.Path(sys.argv[1]), engine=Processes(2))
    next(tables), next(tables)
    print(*(p for p in pathlib.Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_workers_that_label_end_with_their_parent(tmp_path: Path) -> None:
    write_traces([make(n, task=Task(id=str(n), group="g")) for n in range(40)], tmp_path / "t")
    script = tmp_path / "label.py"
    script.write_text(ORPHANS)
    done = subprocess.run([sys.executable, script, tmp_path / "t"], capture_output=True, text=True, timeout=120)
    children = [int(child) for child in done.stdout.split()]
    assert children, done.stderr
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and any(alive(child) for child in children):
        time.sleep(0.1)
    assert not any(alive(child) for child in children)


def alive(process: int) -> bool:
    """Whether the process is there and no zombie."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


_CANCELLED_WHILE_LOST = """
import os, signal, time
from foretrace.core.errors import WorkerError
from foretrace.engines.processes import Processes

if __name__ == "__main__":
    try:
        with Processes(2).open_pool() as pool:
            job = pool.submit(time.sleep, 60)
            waiting = [pool.submit(bytes.upper, b"x" * 1_000_000) for _ in range(20)]
            waiting[-1].cancel()
            for worker in list(pool._processes):
                os.kill(worker, signal.SIGKILL)
            job.result()
    except WorkerError as error:
        print(error)
"""


def test_a_lost_worker_ends_the_command_where_jobs_were_cancelled(tmp_path: Path) -> None:
    script = tmp_path / "job.py"
    script.write_text(_CANCELLED_WHILE_LOST, encoding="utf-8")
    run = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=30, check=True)
    assert run.stdout.startswith("a worker process died")
    assert run.stderr == ""


_WRITE_AND_READ = """
from foretrace.engines.processes import limit_memory
limit_memory()
import os
import pyarrow as pa, pyarrow.parquet as pq
pq.write_table(pa.table({"a": ["x" * 100] * 10000}), "x.parquet", compression="zstd")
with pq.ParquetFile("x.parquet") as file:
    file.read()
for name in ("mimalloc", "jemalloc"):
    try:
        taken = getattr(pa, f"{name}_memory_pool")().max_memory()
    except NotImplementedError:
        continue
    assert not taken, f"{name}: {taken}"
assert os.environ.get("ARROW_DEFAULT_MEMORY_POOL") is None
"""


def test_parquet_takes_its_memory_from_the_system(tmp_path: Path) -> None:
    """What another allocator takes it keeps: tens of megabytes in each process."""
    environment = {name: value for name, value in os.environ.items() if name != "ARROW_DEFAULT_MEMORY_POOL"}
    subprocess.run([sys.executable, "-c", _WRITE_AND_READ], cwd=tmp_path, env=environment, check=True)
