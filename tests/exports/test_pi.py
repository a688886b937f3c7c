"""Pi's sessions: what its own reader and that of `datasets` find in them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from exports.any_traces import SAID
from exports.reading import export, read_back
from exports.test_row_formats import CALLING, RESULT, SYSTEM, USER, make
from foretrace.api.traces import export as export_traces
from foretrace.core.store import read_traces
from foretrace.core.trace import ToolCall, Trace
from foretrace.exports.base import Family
from foretrace.exports.pi import Pi


def lines(trace: Trace) -> list[dict[str, Any]]:
    return [json.loads(line) for line in export("pi", Family(trace)).splitlines()]


def test_entries_follow_one_another(tmp_path: Path) -> None:
    timed = msgspec.structs.replace(CALLING, started="2026-01-01T00:00:01Z")
    trace = make(SYSTEM, USER, timed, RESULT, SAID)
    head, *entries = lines(trace)
    assert (head["type"], head["id"], head["timestamp"]) == ("session", "k", "2026-01-01T00:00:01.000Z")
    assert [entry["parentId"] for entry in entries] == [None, *(entry["id"] for entry in entries[:-1])]
    assert [entry["type"] for entry in entries] == ["model_change", "custom", *["message"] * 5]
    said, result = entries[4]["message"], entries[5]["message"]
    assert [block["type"] for block in said["content"]] == ["thinking", "text", "toolCall"]
    assert said["content"][2] == {"type": "toolCall", "id": "a", "name": "run", "arguments": {"x": 1}}
    assert (result["toolCallId"], result["toolName"], result["isError"]) == ("a", "run", False)
    (back,) = read_back("pi", export("pi", Family(trace)), tmp_path)
    assert [m.role for m in back.messages] == ["system", "user", "assistant", "tool", "assistant"]
    (call,) = back.messages[2].tool_calls
    assert (call.name, json.loads(call.arguments), back.messages[2].reasoning) == ("run", {"x": 1}, "Hm.")
    assert back.tools == trace.tools
    assert [m.started for m in back.messages] == [None, None, "2026-01-01T00:00:01+00:00", None, None]
    (back,) = read_back("pi", export("pi", Family(make(USER, SAID))), tmp_path)
    assert [m.started for m in back.messages] == [None, None] and back.provenance.created_at is None


def test_arguments_that_are_not_an_object_and_a_result_without_a_call() -> None:
    odd = msgspec.structs.replace(CALLING, tool_calls=(ToolCall(id="a", name="run", arguments="ls -la"),))
    alone = msgspec.structs.replace(RESULT, tool_call_ids=())
    trace = make(USER, odd, RESULT, SAID, alone)
    messages = [entry["message"] for entry in lines(trace) if "message" in entry]
    assert messages[1]["content"][-1]["arguments"] == {"arguments": "ls -la"}
    assert messages[-1] == {"role": "user", "content": [{"type": "text", "text": "OBSERVATION:\nok"}]}
    assert Pi().write(Family(trace)).lost["results.role"] == 1


@pytest.mark.integration
def test_datasets_loads_them_as_agent_traces(sample_traces: Path, tmp_path: Path) -> None:
    """Every call of every session, by the reader that `datasets` takes for agent traces."""
    pytest.importorskip("teich", reason="teich is not installed")
    import datasets

    export_traces(sample_traces, format="pi", out=tmp_path / "pi")
    files = sorted(map(str, (tmp_path / "pi").iterdir()))
    loaded = datasets.load_dataset("json", data_files=files, cache_dir=str(tmp_path / "cache"))["train"]
    rows: dict[str, dict[str, Any]] = {row["session_id"]: dict(row) for row in loaded}
    traces = list(read_traces(sample_traces))
    assert len(rows) == len(traces) and {row["harness"] for row in rows.values()} == {"pi"}
    for trace in traces:
        calls = [call["function"] for m in rows[trace.key]["messages"] for call in m.get("tool_calls", ())]
        wanted = [call for message in trace.messages for call in message.tool_calls]
        assert [call["name"] for call in calls] == [call.name for call in wanted]
        assert [call["arguments"] for call in calls] == [json.loads(call.arguments) for call in wanted]
