"""Where jobs run: an engine opens a pool of workers, in processes of this machine or on a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol, TypedDict, Unpack


class Pool(Executor):
    """Workers that make calls."""

    workers: int
    """Most calls that run at once."""


class PoolNeeds(TypedDict, total=False):
    """What the jobs of a pool need."""

    useful: int | None
    """Most workers that would have something to do; `None` if unknown."""
    writes: Sequence[Path]
    """Folders that the workers write to; a cluster creates missing ones."""
    reads: Sequence[Path]
    """Files or folders that the workers read."""
    small: bool
    """Workers do without pandas, which code from outside foretrace may need; the default."""
    helps: bool
    """This process, which works too (see `run_in_order`), is one of the workers."""
    kept: str
    """What an error says about the work done before a worker was lost; by default `NOTHING_WRITTEN`."""


NOTHING_WRITTEN = "nothing was written"


class Engine(Protocol):
    """Opens pools of workers. Made once from the settings of a command, and passed to whatever has jobs to run."""

    def open_pool(self, **needs: Unpack[PoolNeeds]) -> AbstractContextManager[Pool | None]:
        """A pool, or `None` if this process had better do everything itself.

        Raises:
            UsageError: there are no such workers, or they do not see the files.
            WorkerError: a worker was lost in the middle of its work.
        """
        ...
