"""Where jobs run: an engine opens a pool of workers, in processes of this machine or on a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol


class Pool(Executor):
    """Workers that make calls."""

    workers: int
    """Most calls that run at once."""
    helps: bool = False
    """Whether the process that opened the pool works, too, in addition to these workers."""


class Engine(Protocol):
    """Opens pools of workers. Made once from the settings of a command, and passed to whatever has jobs to run."""

    def open_pool(
        self,
        *,
        useful: int | None = None,
        writes: Sequence[Path] = (),
        reads: Sequence[Path] = (),
        small: bool = True,
        helps: bool = False,
        kept: str = "nothing was written",
    ) -> AbstractContextManager[Pool | None]:
        """A pool, or `None` if this process had better do everything itself.

        Args:
            useful: Most workers that would have something to do; `None` if unknown.
            writes: Folders that the workers write to; a cluster creates missing ones.
            reads: Files or folders that the workers read.
            small: Workers do without pandas, which code from outside foretrace may need.
            helps: This process works, too (see `run_in_order` and `run_as_done`), and is one of the workers.
            kept: What an error says about the work done before a worker was lost.

        Raises:
            UsageError: there are no such workers, or they do not see the files.
            WorkerError: a worker was lost in the middle of its work.
        """
        ...
