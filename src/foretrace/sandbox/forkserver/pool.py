"""Fork servers of one kind: lent one at a time, replaced when they die or grow old."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from typing import Any, Literal

from foretrace.core.errors import SandboxError
from foretrace.sandbox.base import Limits
from foretrace.sandbox.forkserver.client import Launch, Talk, Worker

_RECYCLE = 2000
"""Runs after which a fork server is replaced."""
Use = Literal["run", "judge", "session"]


class Pool:
    """Lends fork servers; runs, judges and sessions have places of their own, so that none waits for another's."""

    def __init__(self, launch: Launch, runs: int, sessions: int) -> None:
        self.launch = launch
        self._idle: list[Worker] = []
        self._lent: set[Worker] = set()
        self._closed = False
        self._places: dict[Use, asyncio.Semaphore] = {
            "run": asyncio.Semaphore(runs),
            "judge": asyncio.Semaphore(runs),
            "session": asyncio.Semaphore(sessions),
        }

    async def warm(self, count: int) -> None:
        """Have `count` fork servers ready.

        Raises:
            StartError: one could not be started.
        """

        async def add() -> None:
            self._idle.append(await self._start())

        # All are waited for, whatever becomes of one: none may start behind our back.
        missing = range(count - len(self._idle))
        for failed in await asyncio.gather(*(add() for _ in missing), return_exceptions=True):
            if failed is not None:
                raise failed

    @contextlib.asynccontextmanager
    async def lend(self, use: Use) -> AsyncGenerator[Worker]:
        """A fork server for as long as the block lasts."""
        async with self._places[use]:
            if self._closed:
                raise SandboxError("the sandbox is closed: open a new one")
            worker = self._take() or await self._start()
            self._lent.add(worker)
            try:
                yield worker
            finally:
                self._lent.discard(worker)
                if worker.alive and worker.runs < _RECYCLE and not self._closed:
                    self._idle.append(worker)
                else:
                    worker.kill()

    @contextlib.asynccontextmanager
    async def open(self, request: dict[str, Any], limits: Limits) -> AsyncGenerator[Talk]:
        """Start a child (see `_conversation.Open`)."""
        use = "judge" if request["mode"] == "judge" else "run"
        async with self.lend(use) as worker, worker.open(request, limits) as talk:
            yield talk

    def close(self) -> None:
        """End all fork servers, lent ones too."""
        self._closed = True
        for worker in (*self._idle, *self._lent):
            worker.hang_up()  # so that all of them end at one time
        for worker in (*self._idle, *self._lent):
            worker.kill()
        self._idle.clear()

    def _take(self) -> Worker | None:
        while self._idle:
            worker = self._idle.pop()
            if worker.still_there():
                return worker
            worker.kill()
        return None

    async def _start(self) -> Worker:
        worker = Worker(self.launch)
        await worker.start()
        return worker
