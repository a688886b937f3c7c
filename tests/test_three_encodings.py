"""One trace in the tool, xml and ticks encoding: the same labels, effects, versions and failures."""

from __future__ import annotations

import json
from importlib.resources import files

from foretrace.actions.label_steps import label_trace
from foretrace.actions.same_action import Action, make_call_key
from foretrace.core.trace import Trace
from foretrace.rows.base import RowRef
from foretrace.sources.swe_smith import SweSmith


def test_one_trace_in_three_encodings() -> None:
    rows = json.loads(files("foretrace.samples").joinpath("same_trace.json").read_text("utf-8"))
    traces: list[Trace] = []
    for encoding in ("tool", "xml", "ticks"):
        made = SweSmith().to_trace(rows[encoding], RowRef(0))
        assert isinstance(made, Trace)
        traces.append(made)
    tool, *others = traces
    for other in others:
        for one, two in zip(label_trace(tool), label_trace(other), strict=True):
            assert (one.action, one.rule, one.effect, one.state_version, one.failed) == (
                two.action, two.rule, two.effect, two.state_version, two.failed,
            )  # fmt: skip
            calls = (tool.messages[one.index].tool_calls, other.messages[two.index].tool_calls)
            for a, b in zip(*calls, strict=True):
                mine, theirs = (Action(type=None, tool=c.name, arguments=c.arguments) for c in (a, b))
                assert make_call_key(mine) == make_call_key(theirs), (a, b)
