"""An event loop in its own thread, in which a sandbox stays open between a trainer's steps."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

import msgspec

from foretrace.core.errors import Setting, UsageError
from foretrace.registry import make_sandbox
from foretrace.sandbox.base import Sandbox, SandboxSettings

_T = TypeVar("_T")


class BackgroundLoop:
    """Runs episodes while a trainer waits, whose own thread may already have a loop (in a notebook).

    The thread starts with the first work. Everything is closed by `close`, or at the end of the process, also the
    sandbox, which is a name with its settings, or one that is not started. `max_concurrency` episodes run at one time,
    each of which may have a session of a named sandbox.
    """

    def __init__(self, sandbox: str | Sandbox, settings: SandboxSettings | None, max_concurrency: int = 256) -> None:
        if max_concurrency < 1:
            raise UsageError(Setting("max_concurrency", max_concurrency), ": choose 1 or more")
        if isinstance(sandbox, str):
            settings = msgspec.structs.replace(settings or SandboxSettings(), max_sessions=max_concurrency)
            sandbox = make_sandbox(sandbox, settings)
        elif settings is not None:
            remedy = " is for a sandbox that is named: leave it out, and make the Sandbox object with it"
            raise UsageError(Setting("sandbox_settings"), remedy)
        self.sandbox, self.max_concurrency = sandbox, max_concurrency
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closers: list[Callable[[], Awaitable[None]]] = [sandbox.close]
        self._lock = threading.Lock()

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop; started on first use."""
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=self._loop.run_forever, name="foretrace-episodes", daemon=True).start()
                atexit.register(self.close)
            return self._loop

    def submit(self, work: Coroutine[Any, Any, _T]) -> Future[_T]:
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def close_at_end(self, closer: Callable[[], Awaitable[None]]) -> None:
        """Register something to be closed at the end, in reverse order."""
        self._closers.append(closer)

    def close(self) -> None:
        """Close everything, and end the thread. May be called twice."""
        loop = self.loop
        atexit.unregister(self.close)
        try:
            self.submit(self._run_closers()).result()
        finally:
            self._loop = None
            loop.call_soon_threadsafe(loop.stop)

    async def _run_closers(self) -> None:
        async with contextlib.AsyncExitStack() as stack:
            for closer in self._closers:
                stack.push_async_callback(closer)
