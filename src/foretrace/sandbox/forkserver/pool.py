"""A pool of fork servers: each is lent to one user at a time, and replaced when it has died or served many runs."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncGenerator
from typing import Any, Literal

from foretrace.core.errors import SandboxError
from foretrace.sandbox.base import Limits
from foretrace.sandbox.forkserver.child_channel import ChildChannel, open_channel
from foretrace.sandbox.forkserver.server_process import ForkServer, LaunchSpec

_CLOSED = "the sandbox is closed: open a new one"
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
        self._waiters: deque[asyncio.Future[ForkServer]] = deque()
        self._starting: dict[ForkServer, asyncio.Task[None]] = {}
        self._lent: set[ForkServer] = set()
        self._closed = False
        self._slots: dict[Purpose, asyncio.Semaphore] = {
            "run": asyncio.Semaphore(runs),
            "judge": asyncio.Semaphore(runs),
            "session": asyncio.Semaphore(sessions),
        }

    @contextlib.asynccontextmanager
    async def lend(self, purpose: Purpose) -> AsyncGenerator[ForkServer]:
        """A fork server for as long as the block lasts; where none is idle, the first that is started or given back.

        Raises:
            ForkServerStartError: it could not be started.
        """
        async with self._slots[purpose]:
            if self._closed:
                raise SandboxError(_CLOSED)
            server = self._take_idle() or await self._wait_for_server()
            self._lent.add(server)
            try:
                yield server
            finally:
                self._lent.discard(server)
                if server.alive and server.runs < _MAX_RUNS and not self._closed:
                    self._offer(server)
                else:
                    server.kill()

    @contextlib.asynccontextmanager
    async def start_child(self, request: dict[str, Any], limits: Limits, /) -> AsyncGenerator[ChildChannel]:
        """Start a child on a fork server of the pool (see `child_channel.StartChild`)."""
        purpose: Purpose = "judge" if request["mode"] == "tests" else "run"
        async with self.lend(purpose) as server, open_channel(server, request, limits) as channel:
            yield channel

    def close(self) -> None:
        """End all fork servers, lent ones too."""
        self._closed = True
        for start in self._starting.values():
            start.cancel()
        while waiter := self._take_waiter():
            waiter.set_exception(SandboxError(_CLOSED))
        servers = (*self._idle, *self._lent, *self._starting)
        for server in servers:
            server.disconnect()  # so that all of them end at one time
        for server in servers:
            server.kill()
        self._idle.clear()

    def _take_idle(self) -> ForkServer | None:
        while self._idle:
            server = self._idle.pop()
            if server.check_alive():
                return server
            server.kill()
        return None

    async def _wait_for_server(self) -> ForkServer:
        """A server that is being started, or one that becomes free before that."""
        waiter: asyncio.Future[ForkServer] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        if len(self._starting) < len(self._waiters):
            server = ForkServer(self.launch)
            self._starting[server] = asyncio.create_task(self._start_server(server))
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter in self._waiters:
                self._waiters.remove(waiter)
            elif waiter.done() and not waiter.cancelled() and waiter.exception() is None:
                self._lent.discard(waiter.result())
                self._offer(waiter.result())
            raise

    async def _start_server(self, server: ForkServer) -> None:
        failure: Exception | None = None
        try:
            await server.start()
        except Exception as error:
            failure = error
        del self._starting[server]
        if failure is None:
            self._offer(server)
        elif waiter := self._take_waiter():
            waiter.set_exception(failure)

    def _offer(self, server: ForkServer) -> None:
        """Give a server to who has waited longest for one, or keep it."""
        if waiter := self._take_waiter():
            self._lent.add(server)
            waiter.set_result(server)
        else:
            self._idle.append(server)

    def _take_waiter(self) -> asyncio.Future[ForkServer] | None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                return waiter
        return None
