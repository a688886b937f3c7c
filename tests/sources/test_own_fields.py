"""What an export kept beside the format's own fields, where somebody edited those."""

from __future__ import annotations

import msgspec

from foretrace.core.trace import Message, Provenance, Task, ToolSpec, Trace
from foretrace.sources.own_fields import FIELD, keep_trace_fields, restore_fields

TOOL = ToolSpec(name="run", description="Runs.", parameters='{"type":"object"}')


def test_tools_that_were_edited_stay_edited() -> None:
    said = Message(role="assistant", author="model", content="Done.")
    origin = Provenance(origin="generated", source="made")
    trace = Trace(key="k", task=Task(id="t", group="g"), tools=(TOOL,), messages=(said,), provenance=origin)
    kept = {FIELD: keep_trace_fields(trace)}
    read = msgspec.structs.replace(TOOL, parameters='{"type": "object"}')
    other = msgspec.structs.replace(read, description="Walks.")
    for tools, wanted in (((read,), (TOOL,)), ((other,), (other,)), ((), ())):
        assert restore_fields(msgspec.structs.replace(trace, tools=tools, extra=kept)).tools == wanted
