"""Rollouts as traces on disk, without secrets: each is durable when stored, and all are sealed at the end."""

from __future__ import annotations

from collections import defaultdict
from contextlib import ExitStack
from pathlib import Path

from foretrace.clean.redact import Redactor
from foretrace.core.journal import Journal, JournalEntry, encode_entry
from foretrace.core.store import TraceStore, TraceWriter
from foretrace.core.trace import Trace
from foretrace.episodes.generate.journal import AsyncJournal


class TraceSink:
    """A traces folder to which rollouts are added, by a journal with the name of the run; `None` only numbers them.
    StoreError if the folder cannot be written, or another process writes there."""

    def __init__(self, folder: str | None, run: str) -> None:
        self._stack = ExitStack()
        self._journal: AsyncJournal | None = None
        self._next_sample: defaultdict[str, int] = defaultdict(int)
        if folder is None:
            return
        self._writer = self._stack.enter_context(TraceWriter(Path(folder)))  # seals what a killed run left
        self._writer.checkpoint()
        self._redactor = Redactor()
        self._journal = AsyncJournal(Journal(self._writer.folder, run))
        for key in TraceStore(folder).read_columns("key")["key"].to_pylist():
            prefix, _, sample = key.rpartition("/")
            if sample.isdecimal():
                self._next_sample[prefix] = max(self._next_sample[prefix], int(sample) + 1)

    def next_sample(self, key: str) -> int:
        """The next free sample number of attempts whose key differs from this one only in the sample."""
        prefix = key.rpartition("/")[0]
        self._next_sample[prefix] += 1
        return self._next_sample[prefix] - 1

    async def put(self, trace: Trace) -> None:
        """Store a trace; returns when it is durable."""
        if self._journal is not None:
            redacted = self._redactor.redact_attempt(trace)
            await self._journal.put(encode_entry(JournalEntry(key=trace.key, trace=redacted)))

    async def close(self) -> None:
        """Seal what was added. May be called twice."""
        journal, self._journal = self._journal, None
        try:
            if journal is not None:
                await journal.close()
                self._writer.seal(journal.path)
        finally:
            self._stack.close()
