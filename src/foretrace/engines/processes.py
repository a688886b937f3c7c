"""Processes on this machine: worker processes, their number, and settings that keep foretrace's own processes small."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import signal
import sys
import threading
from collections.abc import Callable, Generator
from concurrent.futures import Future, InvalidStateError, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from importlib.abc import MetaPathFinder
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any, NamedTuple, Unpack

from foretrace.core.errors import Setting, WorkerError
from foretrace.core.internal_errors import run_in_worker, take_result
from foretrace.engines.engine import NOTHING_WRITTEN, Pool, PoolNeeds

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -2, -3, -8
"""Constants from glibc's malloc.h."""
_ARROW_POOL = "ARROW_DEFAULT_MEMORY_POOL"
_KEPT_FREE = 32 << 20
"""Free bytes at the end of the heap that a process keeps: memory that is given back has to be mapped again."""
_is_tuned = False
_NEW_OBJECTS = 10_000
"""Number of new objects after which Python searches for cycles again. Rows that are read and written have no cycles:
searching as often as Python does by default (700) costs a tenth of an import. The attempts of a build and their steps
refer to one another, with all their texts: 100,000 took a fifth more memory."""


class _WithoutPandas(MetaPathFinder):
    def find_spec(self, fullname: str, path: object, target: object = None) -> None:
        if fullname == "pandas":
            raise ModuleNotFoundError("No module named 'pandas'", name=fullname)


def limit_memory() -> None:
    """Keep Arrow from loading pandas, free its memory early, and search for cycles rarely. Only for foretrace's own
    processes (a command, a worker), never for one that imports foretrace as a library.

    To check whether a list is a pandas object, Arrow imports pandas: 60 MB and half a second just for a no. After this,
    nothing in the process can import pandas, so the `datasets` library cannot be used in it.
    """
    if "pandas" not in sys.modules:
        sys.meta_path.insert(0, _WithoutPandas())
    pool, os.environ[_ARROW_POOL] = os.environ.get(_ARROW_POOL), "system"
    import pyarrow as pa

    pa.set_memory_pool(pa.system_memory_pool())
    # Parquet readers and writers keep the default pool of their first use, whatever is set later
    if pool is None:
        del os.environ[_ARROW_POOL]
    else:
        os.environ[_ARROW_POOL] = pool
    _tune_allocation()


def prepare_worker(small: bool) -> None:
    """Prepare a worker process for jobs, possibly after other ones; `small` as in `Engine`."""
    if small:
        limit_memory()
    else:
        sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, _WithoutPandas)]
        _tune_allocation()


def _tune_allocation() -> None:
    global _is_tuned
    _is_tuned = True
    with contextlib.suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        # glibc raises its threshold for mapped blocks whenever one is freed; large blocks would then stay in the heap.
        mallopt(_M_MMAP_THRESHOLD, 1 << 20)
        mallopt(_M_TRIM_THRESHOLD, _KEPT_FREE)
        mallopt(_M_TOP_PAD, 1 << 20)
        mallopt(_M_ARENA_MAX, 1)
    gc.set_threshold(_NEW_OBJECTS)


def release_memory() -> None:
    """In foretrace's own processes, free cycles of objects and return freed memory to the system, which glibc would
    keep. Otherwise a worker would grow with each shard job, and a process that has imported would stay large while it
    builds. Elsewhere (a notebook) nothing is done, as searching through all of somebody else's objects takes long."""
    if not _is_tuned:
        return
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def usable_cores() -> int:
    """Number of CPU cores that this process may use, at least 1."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class _JobFuture(Future[Any]):
    """A future that may be canceled while its pool breaks. In Python 3.11 a canceled future kills the thread that
    cleans up a broken pool, and the process then waits for the pool forever."""

    def result(self, timeout: float | None = None) -> Any:
        return take_result(super().result(timeout))

    def set_exception(self, exception: BaseException | None) -> None:
        with contextlib.suppress(InvalidStateError):
            super().set_exception(exception)


class _ProcessPool(ProcessPoolExecutor, Pool):
    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future = super().submit(run_in_worker, fn, *args, **kwargs)
        future.__class__ = _JobFuture
        return future


class Processes(NamedTuple):
    """The engine of one machine, with this many processes, including this one if it helps."""

    workers: int

    @contextlib.contextmanager
    def open_pool(self, **needs: Unpack[PoolNeeds]) -> Generator[Pool | None]:
        """See `Engine`; all files are visible from here. The workers end at once when the block fails or when this
        process is gone, even by kill -9."""
        useful = needs.get("useful")
        workers = self.workers if useful is None else min(self.workers, useful)
        if workers <= 1:
            yield None
            return
        context = get_context("spawn")
        ours, theirs = context.Pipe()
        workers -= needs.get("helps", False)
        start = theirs, needs.get("small", True)
        with (
            ours,
            theirs,
            _ProcessPool(workers, mp_context=context, initializer=_start_worker, initargs=start) as pool,
        ):
            pool.workers = workers
            try:
                yield pool
            except BaseException as error:
                ours.close()  # this ends the workers at once: none may write after this
                pool.shutdown(wait=True, cancel_futures=True)
                if isinstance(error, BrokenProcessPool):
                    kept = needs.get("kept", NOTHING_WRITTEN)
                    raise WorkerError(
                        f"a worker process died, perhaps for want of memory; {kept}; run again, with fewer ",
                        Setting("workers"),
                        " if memory is short",
                    ) from None
                raise


THIS_PROCESS = Processes(1)


def _start_worker(parent: Connection, small: bool) -> None:
    """Leave Ctrl-C to the parent, and end with it: kill -9 leaves no worker behind."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    prepare_worker(small)
    threading.Thread(target=_exit_with_parent, args=(parent,), daemon=True).start()


def _exit_with_parent(parent: Connection) -> None:
    with contextlib.suppress(OSError):
        parent.poll(None)
    os._exit(1)
