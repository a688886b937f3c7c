"""Tools of agents whose rows do not say what was offered."""

from __future__ import annotations

import json
from typing import Any

import pytest

from foretrace.core.trace import Trace
from foretrace.rows.base import RowRef
from foretrace.sources.chat import Chat
from foretrace.sources.swe_smith import SweSmith
from sources.raw_rows import native_call


def make_row(*names: str, **more: Any) -> dict[str, Any]:
    calls = [native_call(n, name) for n, name in enumerate(names)]
    turns = [{"role": "user", "content": "Go."}, {"role": "assistant", "content": "Yes.", "tool_calls": calls}]
    return {"messages": turns, "instance_id": "o__r.0123abcd.bug__x", **more}


@pytest.mark.parametrize("source", [Chat(), SweSmith()])
def test_tools_of_swe_agent(source: Any) -> None:
    trace = source.to_trace(make_row("str_replace_editor", "bash", "submit"), RowRef(0))
    assert isinstance(trace, Trace)
    assert [tool.name for tool in trace.tools] == ["bash", "str_replace_editor", "submit"]
    assert trace.provenance.transforms == ("tools of swe_agent",)
    properties = json.loads(trace.tools[1].parameters)["properties"]
    assert properties["view_range"] == {"type": "array", "items": {"type": "integer"}}
