"""Raw rows as they were read: where each stands, and why one could not be read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

import msgspec

from foretrace.core.errors import Parts


class Hub(NamedTuple):
    """Where a source lives on the Hugging Face Hub."""

    repo: str
    split: str
    """The split that is read when none is named."""
    config: str | None = None


class Drop(msgspec.Struct, frozen=True):
    """The refusal of one row."""

    reason: str
    """A slug that is counted, e.g. `bad_json`."""
    detail: str = ""
    remedy: Parts = ()
    """What the user can do, where that is not plain from the detail: text and settings, as of an error."""


class RowRef(NamedTuple):
    """Where a raw row was read."""

    row: int
    """0-based row; bad lines count."""
    file: str | None = None
    """Base name of the file, after its folder where two files have the same one; `None` for the Hub."""
    revision: str | None = None
    """Commit of the Hub repository; `None` for local files."""
    split: str | None = None


class RawRow(NamedTuple):
    """One raw row, or why it could not be read."""

    at: RowRef
    value: dict[str, Any] | Drop


UndecodedRow = tuple[RowRef, bytes | dict[str, Any] | Drop]
"""One raw row, as JSON text where it was read as such."""


class Rows(Protocol):
    """Raw rows of one input, from any row on, as often as asked.

    It may have more: `count()`, if the number of rows can be found much faster than they are read, so that progress can
    show a share; and `read_undecoded(start)`, if JSON lines can be read as bytes, so that worker processes decode them.
    """

    label: str
    """The input's name in messages."""
    fingerprint: str
    """Changes when the input changes: an import goes on from a cursor only if its fingerprint is the same."""

    def read(self, start: int = 0) -> Iterator[RawRow]:
        """Rows from number `start` on."""
        ...
