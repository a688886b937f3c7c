"""A pool of fork servers: each is lent to one user at a time, and replaced when it has died or served many runs."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from typing import Any, Literal

from foretrace.core.errors import SandboxError
from foretrace.sandbox.base import Limits
from foretrace.sandbox.forkserver.child_channel import ChildChannel, Link, open_channel
from foretrace.sandbox.forkserver.server_process import ForkServer, LaunchSpec

_MAX_RUNS = 2000
"""Runs after which a fork server is replaced."""
Purpose = Literal["run", "judge", "session"]
"""What a fork server is lent for."""


class ForkServerPool:
    """Lends fork servers.

    Args:
        launch: How they are started.
        runs: How many are lent for runs at one time, and how many for judges, so that neither waits for the other.
        sessions: How many are lent for sessions at one time.
    """

    def __init__(self, launch: LaunchSpec, runs: int, sessions: int) -> None:
        self.launch = launch
        self._idle: list[ForkServer] = []
        self._lent: set[ForkServer] = set()
        self._closed = False
        self._slots: dict[Purpose, asyncio.Semaphore] = {
            "run": asyncio.Semaphore(runs),
            "judge": asyncio.Semaphore(runs),
            "session": asyncio.Semaphore(sessions),
        }

    async def start_servers(self, count: int) -> None:
        """Have `count` fork servers ready.

        Raises:
            ForkServerStartError: one could not be started.
        """

        async def add() -> None:
            self._idle.append(await self._start_server())

        # All are waited for, whatever becomes of one: none may start behind our back.
        missing = range(count - len(self._idle))
        for failed in await asyncio.gather(*(add() for _ in missing), return_exceptions=True):
            if failed is not None:
                raise failed

    @contextlib.asynccontextmanager
    async def lend(self, purpose: Purpose) -> AsyncGenerator[ForkServer]:
        """A fork server for as long as the block lasts."""
        async with self._slots[purpose]:
            if self._closed:
                raise SandboxError("the sandbox is closed: open a new one")
            server = self._take_idle() or await self._start_server()
            self._lent.add(server)
            try:
                yield server
            finally:
                self._lent.discard(server)
                if server.alive and server.runs < _MAX_RUNS and not self._closed:
                    self._idle.append(server)
                else:
                    server.kill()

    @contextlib.asynccontextmanager
    async def start_child(
        self, request: dict[str, Any], limits: Limits, link: Link | None = None, /
    ) -> AsyncGenerator[ChildChannel]:
        """Start a child on a fork server of the pool (see `child_channel.StartChild`)."""
        purpose: Purpose = "judge" if request["mode"] == "judge" else "run"
        async with self.lend(purpose) as server, open_channel(server, request, limits, link) as channel:
            yield channel

    def close(self) -> None:
        """End all fork servers, lent ones too."""
        self._closed = True
        for server in (*self._idle, *self._lent):
            server.disconnect()  # so that all of them end at one time
        for server in (*self._idle, *self._lent):
            server.kill()
        self._idle.clear()

    def _take_idle(self) -> ForkServer | None:
        while self._idle:
            server = self._idle.pop()
            if server.check_alive():
                return server
            server.kill()
        return None

    async def _start_server(self) -> ForkServer:
        server = ForkServer(self.launch)
        await server.start()
        return server
