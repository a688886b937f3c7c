"""Complete traces in canonical JSON, one per line."""

from __future__ import annotations

from foretrace.core.trace import encode_trace
from foretrace.exports.base import Exported, Family, FieldCounts, TraceFormat


class Jsonl(TraceFormat):
    """Read by the source `jsonl`: nothing is lost."""

    name = "jsonl"

    def write(self, family: Family) -> Exported:
        return Exported(data=encode_trace(family.trace) + b"\n", lost=FieldCounts())


PLUGIN = Jsonl
