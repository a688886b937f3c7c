"""Raw rows: where each was read, and why one could not be read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

import msgspec

from foretrace.core.errors import Parts


class Hub(NamedTuple):
    """Where a source lives on the Hugging Face Hub."""

    repo: str
    split: str
    """The split that is read by default."""
    config: str | None = None


class Drop(msgspec.Struct, frozen=True):
    """Why one row was refused."""

    reason: str
    """A slug for counting, e.g. `bad_json`."""
    detail: str = ""
    remedy: Parts = ()
    """What the user can do, if the detail does not make it clear: text and settings, as in an error."""


class RowRef(NamedTuple):
    """Where a raw row was read."""

    row: int
    """0-based row number, including bad lines."""
    file: str | None = None
    """Base name of the file, with as many folders as it takes to be unique; `None` for the Hub."""
    revision: str | None = None
    """Commit of the Hub repository; `None` for local files."""
    split: str | None = None


class RawRow(NamedTuple):
    """One raw row, or why it could not be read."""

    at: RowRef
    value: dict[str, Any] | Drop


UndecodedRow = tuple[RowRef, bytes | dict[str, Any] | Drop]
"""One raw row, as undecoded JSON text if possible."""


class Rows(Protocol):
    """Raw rows of one input, which can be read repeatedly and from any row.

    It may also have `read_undecoded(start)`, if JSON lines can be read as bytes, so that worker processes decode them,
    and `count()`, if the rows can be counted much faster than they are read.
    """

    label: str
    """The input's name in messages."""
    fingerprint: str
    """Changes when the input changes: an import only continues from a cursor with the same fingerprint."""

    def read(self, start: int = 0) -> Iterator[RawRow]:
        """Rows from number `start`."""
        ...
