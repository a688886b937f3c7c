"""Write finished attempts to disk without blocking the event loop; attempts that wait at the same time share a sync."""

from __future__ import annotations

import asyncio

from foretrace.core.journal import Journal


class AsyncJournal:
    """A journal for use in an event loop."""

    def __init__(self, journal: Journal) -> None:
        self.path = journal.path
        self._journal = journal
        self._lines: list[tuple[bytes, asyncio.Future[None]]] = []
        self._writing: asyncio.Task[None] | None = None

    async def put(self, line: bytes) -> None:
        """Return when the line is durable, or raise what prevented writing it."""
        written = asyncio.get_running_loop().create_future()
        self._lines.append((line, written))
        if self._writing is None:
            self._writing = asyncio.create_task(self._write())
        await written

    async def close(self) -> None:
        """Write the remaining lines, and close the journal."""
        if self._writing is not None:
            await self._writing
        self._journal.close()

    async def _write(self) -> None:
        while self._lines:
            batch, self._lines = self._lines, []
            error: Exception | None = None
            try:
                await asyncio.to_thread(self._journal.append, [line for line, _ in batch])
            except Exception as caught:  # whatever it is, the waiting callers must get it
                error = caught
            for _, written in batch:
                if written.done():
                    continue
                if error is None:
                    written.set_result(None)
                else:
                    written.set_exception(error)
        self._writing = None
