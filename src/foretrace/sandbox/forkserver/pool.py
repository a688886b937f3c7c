"""A pool of fork servers: each is lent to one user at a time, and replaced once it has died or served many runs."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from typing import Any, Literal

from foretrace.core.errors import SandboxError
from foretrace.sandbox.base import Limits
from foretrace.sandbox.forkserver.child_channel import ChildChannel, open_channel
from foretrace.sandbox.forkserver.server_process import ForkServer, ForkServerStartError, LaunchSpec

_CLOSED = "the sandbox is closed: open a new one"
_MAX_RUNS = 2000
"""Runs after which a fork server is replaced."""
_Purpose = Literal["run", "judge", "session"]
_PURPOSES: dict[str, _Purpose] = {"tests": "judge", "replay": "session"}
"""By the mode of a request; for all others it is `run`."""


class ForkServerPool:
    """Lends fork servers.

    Args:
        launch: How they are started.
        runs: Most that are lent for runs at a time, and as many again for judges, so that neither waits for the other.
        sessions: Most that are lent for sessions at a time.
    """

    def __init__(self, launch: LaunchSpec, runs: int, sessions: int) -> None:
        self.launch = launch
        self._idle: list[ForkServer] = []
        self._lent: set[ForkServer] = set()
        self._closed = False
        counts = {"run": runs, "judge": runs, "session": sessions}
        self._slots = {purpose: asyncio.Semaphore(count) for purpose, count in counts.items()}

    @contextlib.asynccontextmanager
    async def lend(self, purpose: _Purpose) -> AsyncGenerator[ForkServer]:
        """A fork server for the duration of the block: an idle one, or else a new one, which may not start
        (ForkServerStartError)."""
        async with self._slots[purpose]:
            if self._closed:
                raise SandboxError(_CLOSED)
            server = self._take_idle() or ForkServer(self.launch)
            self._lent.add(server)
            try:
                if not server.alive:
                    await server.start()
                yield server
            except ForkServerStartError:
                if self._closed:
                    raise SandboxError(_CLOSED) from None
                raise
            finally:
                self._lent.discard(server)
                if server.alive and server.runs < _MAX_RUNS and not self._closed:
                    self._idle.append(server)
                else:
                    server.kill()

    @contextlib.asynccontextmanager
    async def start_child(self, request: dict[str, Any], limits: Limits, /) -> AsyncGenerator[ChildChannel]:
        """Start a child on a fork server of the pool (see `child_channel.StartChild`)."""
        purpose = _PURPOSES.get(request["mode"], "run")
        async with self.lend(purpose) as server, open_channel(server, request, limits) as channel:
            yield channel

    def close(self) -> None:
        self._closed = True
        servers = (*self._idle, *self._lent)
        for server in servers:
            server.disconnect()  # first all of them, so that they end in parallel
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
