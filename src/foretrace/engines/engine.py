"""Where jobs run: an engine opens a pool of workers, in processes of this machine or on a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol


class Pool(Executor):
    """Workers that are given calls."""

    workers: int
    """Calls that run at once, at most."""
    helps: bool = False
    """Whether the process that opened it works as well, beside these."""
    kept: str = "nothing was written"
    """What an error says of the work that was done before a worker was lost."""


class Engine(Protocol):
    """Opens pools of workers. It is made once, from the settings of a command, and handed down to what has jobs."""

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
        """A pool, or `None` where this process had better do all by itself.

        Args:
            useful: So many workers have something to do at most; `None` where that is not known.
            writes: Folders that the workers write to; a cluster makes those that are not there.
            reads: Files, or folders, that the workers read.
            small: Workers do without pandas; code from outside of foretrace may want it.
            helps: This process works as well (see `run_in_order` and `run_as_done`), and is one of the workers.
            kept: What an error says of the work that was done before a worker was lost.

        Raises:
            UsageError: there are no such workers, or they do not see the files.
            WorkerError: a worker was lost in the middle of its work.
        """
        ...
