"""Our own Traces, one a line, as `foretrace export --format jsonl` writes them."""

from __future__ import annotations

from typing import Any

import msgspec

from foretrace.core.trace import SCHEMA_VERSION, Trace, trace_id
from foretrace.sources.base import Drop, Hub, RowRef


class Jsonl:
    """Key, provenance and content come back as they were; the id is made anew and must agree."""

    name = "jsonl"
    licence: str | None = None
    hub: Hub | None = None

    def to_trace(self, row: dict[str, Any], at: RowRef) -> Trace | Drop:
        """One row is one Trace."""
        version = row.get("schema_version", SCHEMA_VERSION)
        if version != SCHEMA_VERSION:
            return Drop("schema_version", f"schema version {version!r}, this foretrace reads {SCHEMA_VERSION}")
        try:
            trace = msgspec.convert(row, Trace)
        except msgspec.ValidationError as error:
            return Drop("not_a_trace", str(error))
        if trace.id and trace.id != (made := trace_id(trace)):
            return Drop("id_mismatch", f"id is {trace.id}, the content's is {made}; an edited trace has no id")
        return trace


PLUGIN = Jsonl
