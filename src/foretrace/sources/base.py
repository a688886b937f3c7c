"""The contract of a source: one raw row in, one Trace or one counted Drop out.

To add one, write a module in this folder whose `PLUGIN` has the members of `Source`, and name it in `BUILT_IN` of
`core/plugins.py`. It may have more: `scan`, if it must see all rows once before it can decide, and `settings`, a
text, if its settings change what traces the rows give (an import goes on from a cursor only under the same
settings).
See docs/add-a-source.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol, runtime_checkable

import msgspec

from foretrace.core.digest import digest
from foretrace.core.errors import Setting
from foretrace.core.trace import Trace
from foretrace.rows.base import Drop, Hub, RawRow, RowRef


class Source(Protocol):
    """An importer of one raw format."""

    name: str
    license: str | None
    hub: Hub | None

    def to_trace(self, row: dict[str, Any], at: RowRef) -> Trace | Drop:
        """Turn one raw row into a Trace without an id. May raise anything: the row is dropped and counted."""
        ...


@runtime_checkable
class TwoPassSource(Protocol):
    """A source that must see all rows once, in order, before the first `to_trace`."""

    def scan(self, rows: Iterable[RawRow]) -> None:
        """Look at all rows, and remember only what `to_trace` needs to decide."""
        ...


def make_row_id(row: dict[str, Any]) -> str:
    """A name for a row that has no id of its own: the same in whatever file and place the row stands."""
    return "row-" + digest(msgspec.json.encode(row, order="sorted").decode())


class RowError(ValueError):
    """Raised inside `to_trace` to drop the row: `RowError("reason", "detail")`, and a remedy as a `Drop` has."""

    def __init__(self, reason: str, detail: str = "", *remedy: str | Setting) -> None:
        super().__init__(reason, detail)
        self.drop = Drop(reason, detail, remedy)
