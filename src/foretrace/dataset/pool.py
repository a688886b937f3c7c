"""Worker processes that end with their parent, and say in one line when one of them died."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Generator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from multiprocessing.connection import Connection

from foretrace.core.errors import BuildError
from foretrace.core.process import stay_small


@contextlib.contextmanager
def worker_pool(workers: int, *, small: bool = True) -> Generator[ProcessPoolExecutor | None]:
    """A pool of so many processes, or null where one is enough.

    `small` workers do without pandas; code from outside of foretrace may want it.

    Raises:
        BuildError: a worker was killed.
    """
    if workers <= 1:
        yield None
        return
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    with (
        ours,
        theirs,
        ProcessPoolExecutor(workers, mp_context=context, initializer=_begin, initargs=(theirs, small)) as pool,
    ):
        try:
            yield pool
        except BaseException as error:
            ours.close()  # which ends the workers at once; none may write while the folder is cleared
            pool.shutdown(wait=True, cancel_futures=True)
            if isinstance(error, BrokenProcessPool):
                raise BuildError(
                    "a worker process died, perhaps for want of memory; nothing was written; "
                    "run again, with fewer --workers if memory is short"
                ) from None
            raise


def _begin(parent: Connection, small: bool) -> None:
    """Leave Ctrl-C to the parent, and end when it is gone or wants no more: kill -9 leaves no worker behind."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if small:
        stay_small()
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: Connection) -> None:
    with contextlib.suppress(OSError):
        parent.poll(None)
    os._exit(1)
