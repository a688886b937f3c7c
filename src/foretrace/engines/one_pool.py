"""One pool for the steps of a command that follow one another: its workers are started once."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from foretrace.engines.engine import Engine, Pool
from foretrace.engines.processes import THIS_PROCESS, Processes, worker_pool


class _Kept(NamedTuple):
    context: AbstractContextManager[Pool | None]
    pool: Pool
    small: bool


class OnePool:
    """Keeps the pool of the first step that opens one for those that follow, as far as it is what they ask for.

    As a context manager it ends the workers with its block, and with a step that fails.
    """

    def __init__(self) -> None:
        self._kept: _Kept | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        kept, self._kept = self._kept, None
        if kept is not None:
            kept.context.__exit__(kind, error, traceback)

    def share(self, engine: Engine) -> Engine:
        """The engine, with this pool; one that is not a `Processes` is given back as it is."""
        return _Sharing(self, engine.workers) if isinstance(engine, Processes) else engine

    def share_here(self, engine: Engine) -> Engine:
        """As `share`; of an engine whose workers are elsewhere, only this process."""
        return self.share(engine) if isinstance(engine, Processes) else THIS_PROCESS

    def get(self, workers: int, useful: int, *, small: bool, helps: bool, kept: str) -> Pool:
        """A pool of so many workers at most, of which so many have something to do."""
        old = self._kept
        if old is not None:
            if old.small == small and old.pool.helps == helps and old.pool.workers + helps <= workers:
                old.pool.kept = kept
                return old.pool
            self.__exit__(None, None, None)
        context = worker_pool(min(workers, useful), small=small, helps=helps, kept=kept)
        pool = context.__enter__()
        assert pool is not None
        self._kept = _Kept(context, pool, small)
        return pool


class _Sharing(NamedTuple):
    """The processes of this machine, by a pool that others use before and after."""

    one: OnePool
    workers: int

    @contextlib.contextmanager
    def open_pool(
        self,
        *,
        useful: int | None = None,
        writes: Sequence[Path] = (),
        reads: Sequence[Path] = (),
        small: bool = True,
        helps: bool = False,
        kept: str = "nothing was written",
    ) -> Generator[Pool | None]:
        """See `Engine`."""
        useful = self.workers if useful is None else useful
        if min(self.workers, useful) <= 1:
            yield None
            return
        pool = self.one.get(self.workers, useful, small=small, helps=helps, kept=kept)
        try:
            yield pool
        except BaseException as error:
            self.one.__exit__(type(error), error, error.__traceback__)  # no worker may write after this
            raise
