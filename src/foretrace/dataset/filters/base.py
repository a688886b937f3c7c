"""The interface of a filter of whole traces, and its input: examined traces in a table on disk, since a build may have
more of them than fit into memory."""

from __future__ import annotations

import contextlib
import sqlite3
from array import array
from collections.abc import Generator, Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec
import numpy as np

from foretrace.actions.label_steps import LabelEvidence
from foretrace.core.digest import digest
from foretrace.core.errors import BuildError
from foretrace.core.trace import Trace


class ExaminedTrace(msgspec.Struct, frozen=True, kw_only=True):
    key: str
    task: str
    group: str
    source: str
    """`source:split`, as in the manifest."""
    success: bool | None
    n_steps: int
    names_tools: bool
    """Whether its source lists the agent's tools."""
    findings: dict[str, Any] = {}
    """By filter; filters that found nothing are missing."""


class Decision(msgspec.Struct, kw_only=True):
    left_out: dict[str, str] = {}
    """The reason, by key of a trace that is left out."""
    merged_groups: list[tuple[str, ...]] = []
    """Groups that are merged into one."""
    kept_together: list[tuple[str, ...]] = []
    """Keys of traces that caused merges: their rows must never be in different splits."""
    figures: dict[str, Any] = {}
    """For the manifest."""
    notes: list[str] = []
    """Sentences for the card."""


class TraceFilter(Protocol):
    """A reason to leave traces out, or to merge groups."""

    name: str

    def examine(self, trace: Trace, evidence: Sequence[LabelEvidence]) -> Any:
        """What the decision needs to know about one trace, in plain values; `None` if nothing. Runs in a worker
        process, and is given the trace's `collect_evidence`."""
        ...

    def decide(self, traces: Sequence[ExaminedTrace]) -> Decision:
        """Decide about the traces that earlier filters kept, in order of their keys."""
        ...


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(ExaminedTrace).decode
FoundTrace = tuple[str, bytes]
"""Key of an examined trace, and the trace encoded."""


def encode_examined(trace: ExaminedTrace) -> FoundTrace:
    """The trace in the form that `sort_examined` accepts, also from another process."""
    return trace.key, _encode(trace)


class ExaminedTraces(Sequence[ExaminedTrace]):
    """In order of their keys. They are read from a table on disk each time; only 8 bytes per trace are in memory."""

    def __init__(self, table: sqlite3.Connection, rows: array[int]) -> None:
        self._table, self._rows = table, rows

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, place: int) -> ExaminedTrace:  # type: ignore[override]
        row = (self._rows[place],)
        return _decode(self._table.execute("SELECT data FROM traces WHERE rowid = ?", row).fetchone()[0])

    def choose(self, places: Iterable[int]) -> ExaminedTraces:
        return ExaminedTraces(self._table, array("q", (self._rows[place] for place in places)))


@contextlib.contextmanager
def sort_examined(found: Iterable[FoundTrace], scratch: Path | None = None) -> Generator[ExaminedTraces]:
    """Sort examined traces by key, in a table in `scratch` or a temporary folder that is deleted after the block."""
    path = None if scratch is None else scratch / "examined"
    try:
        with contextlib.closing(sqlite3.connect(path or "")) as table:
            table.executescript("PRAGMA journal_mode = OFF; CREATE TABLE traces (key TEXT PRIMARY KEY, data BLOB)")
            for key, data in found:
                try:
                    table.execute("INSERT INTO traces VALUES (?, ?)", (key, data))
                except sqlite3.IntegrityError:
                    (known,) = table.execute("SELECT data FROM traces WHERE key = ?", (key,)).fetchone()
                    raise BuildError(
                        f"{key} stands in two folders, as a trace of the task {_decode(known).task} and of "
                        f"{_decode(data).task}: leave one of the folders out, or import its rows again"
                    ) from None
            rows = table.execute("SELECT rowid FROM traces ORDER BY key")
            yield ExaminedTraces(table, array("q", (row for (row,) in rows)))
    except sqlite3.OperationalError as error:
        raise BuildError(f"{path or 'the folder of temporary files'}: cannot write: {error}") from None


def count_tasks(traces: Iterable[ExaminedTrace]) -> int:
    digests = b"".join(bytes.fromhex(digest(trace.task)) for trace in traces)
    return len(np.unique(np.frombuffer(digests, dtype="<u8")))
