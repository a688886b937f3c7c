"""The interfaces of sources: raw rows, or files that hold whole conversations, become Traces or counted Drops.

A `Source` reads rows, each of which is one trace. A `FileSource` reads files (or folders) in which a whole conversation
spans many records: sessions, spans, events. Both may recognize their format from the beginning of a file (`recognize`).

To add one, write a module in this folder whose `PLUGIN` has the members of `Source`, and name it in `BUILT_IN` of
`core/plugins.py` (see docs/sources.md). It may also have `scan`, if it must see all rows once before it can decide, and
`settings`, a text, if its settings change its traces (an import only continues from a cursor under the same settings).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from foretrace.core.digest import digest
from foretrace.core.errors import Setting
from foretrace.core.trace import Provenance, Trace
from foretrace.rows.base import Drop, Hub, RawRow, RowRef
from foretrace.rows.head import FileHead
from foretrace.sources.account import Account
from foretrace.sources.json_values import write_sorted

UNCLEAR = "unclear"
"""In a trace's `extra`: fields that could not be read, each with what the row has instead."""


class Source(Protocol):
    """An importer of one raw format."""

    name: str
    license: str | None
    hub: Hub | None

    def to_trace(self, row: dict[str, Any], at: RowRef) -> Trace | Drop:
        """Turn one raw row into a Trace without an id. May raise anything: the row is then dropped and counted."""
        ...


@runtime_checkable
class TwoPassSource(Protocol):
    """A source that must see all rows once, in order, before the first `to_trace`."""

    def scan(self, rows: Iterable[RawRow]) -> None:
        """Look at all rows, and keep only what `to_trace` needs to decide."""
        ...


class FileSource(Protocol):
    """An importer of one format whose files, or folders, each hold whole conversations.

    It may have `list_companions(path)`: files next to `path` that `read_traces` reads together with it, and that are
    not inputs themselves.
    """

    name: str
    license: str | None

    def recognize(self, head: FileHead) -> str | None:
        """Why a file or folder is in this format, in a few words that name the evidence (`line 1 has sessionId and
        parentUuid`); `None` if it is not. Only looks at the head, and never guesses: what two formats share is not
        evidence for either."""
        ...

    def read_traces(self, path: Path, account: Account) -> Iterator[Trace | Drop]:
        """The conversations of a recognized file or folder, without ids; every record is counted in `account`. A
        conversation that cannot be read is a Drop. Raises an error if the whole file is unreadable."""
        ...


@runtime_checkable
class RecognizedSource(Protocol):
    """A source of rows that can recognize its format from the first rows of a file (`FileHead.rows`).

    If it has a true `is_general`, it knows a shape that rows of many formats share, and only gets files that no other
    source recognizes.
    """

    def recognize(self, head: FileHead) -> str | None:
        """See `FileSource.recognize`."""
        ...


def make_origin(source: Any, at: RowRef, *, split: str, **more: Any) -> Provenance:
    """The provenance of a row; `more` has further fields."""
    fields: dict[str, Any] = {"source": source.name, "license": source.license, "split": split, **more}
    return Provenance(origin="imported", revision=at.revision, raw_file=at.file, raw_row=at.row, **fields)


def make_row_id(row: dict[str, Any]) -> str:
    """A name for a row without an id of its own; it does not depend on the file or the row's position."""
    return "row-" + digest(write_sorted(row))


class RowError(ValueError):
    """Raised inside `to_trace` to drop the row: `RowError("reason", "detail")`; may have a remedy, like a `Drop`."""

    def __init__(self, reason: str, detail: str = "", *remedy: str | Setting) -> None:
        super().__init__(reason, detail)
        self.drop = Drop(reason, detail, remedy)
