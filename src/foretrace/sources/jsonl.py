"""Our own Traces, one a line, as `foretrace export --format jsonl` writes them."""

from __future__ import annotations

import math
from typing import Any

import msgspec

from foretrace.core.trace import SCHEMA_VERSION, Trace, compute_trace_id, upgrade_record
from foretrace.rows.base import Drop, Hub, RowRef
from foretrace.rows.head import FileHead
from foretrace.sources.json_values import get_dict, get_dicts, get_list


class Jsonl:
    """Key, provenance and content come back unchanged; the id is computed again and must match."""

    name = "jsonl"
    license: str | None = None
    hub: Hub | None = None

    def recognize(self, head: FileHead) -> str | None:
        """By the fields of a Trace."""
        for row in head.rows:
            origin = get_dict(row, "provenance").get("origin")
            if {"key", "task", "messages"} <= row.keys() and origin in ("imported", "generated"):
                return f"key, task and messages of a trace that was {origin}"
        return None

    def to_trace(self, row: dict[str, Any], at: RowRef) -> Trace | Drop:
        version = row.get("schema_version", SCHEMA_VERSION)
        if version != SCHEMA_VERSION:
            return Drop("schema_version", f"schema version {version!r}, this foretrace reads {SCHEMA_VERSION}")
        try:
            trace = msgspec.convert(upgrade_record(_restore_infinities(row)), Trace)
        except msgspec.ValidationError as error:
            return Drop("not_a_trace", str(error))
        if trace.id and trace.id != (made := compute_trace_id(trace)):
            return Drop("id_mismatch", f"id is {trace.id}, the content's is {made}; an edited trace has no id")
        return trace


def _restore_infinities(row: dict[str, Any]) -> dict[str, Any]:
    """Read a missing logprob as minus infinity, which JSON cannot represent: the token could not be sampled."""
    for message in get_dicts(row, "messages"):
        sampled = get_dict(message, "sampled")
        if None in (logprobs := get_list(sampled, "logprobs")):
            sampled["logprobs"] = [-math.inf if p is None else p for p in logprobs]
    return row


PLUGIN = Jsonl
