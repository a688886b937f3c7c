"""OTLP: spans with ids that hang together, times where they are known, numbers as text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import Phase, given, settings

from exports import any_traces
from exports.any_traces import SAID
from exports.reading import as_carried, export, read_back
from exports.test_atif import started
from exports.test_row_formats import CALLING, RESULT, SYSTEM, USER, make
from foretrace.core.trace import Message, Sampled, Trace, Usage
from foretrace.exports.base import Family
from foretrace.registry import make_format
from foretrace.rows.base import Drop

TIMED = (
    msgspec.structs.replace(
        CALLING, started="2026-01-01T00:00:00Z", model_s=1.5,
        sampled=Sampled(usage=Usage(prompt_tokens=7, completion_tokens=2), finish_reason="tool_calls"),
    ),
    msgspec.structs.replace(RESULT, started="2026-01-01T00:00:02Z", tool_s=0.25, is_error=True),
)  # fmt: skip


def spans(data: bytes) -> list[dict[str, Any]]:
    groups = json.loads(data)["resourceSpans"]
    return [span for group in groups for scope in group["scopeSpans"] for span in scope["spans"]]


def attributes(span: dict[str, Any]) -> dict[str, Any]:
    return {item["key"]: item["value"] for item in span["attributes"]}


def test_spans_have_ids_times_and_numbers_as_the_protocol_writes_them() -> None:
    data = export("otlp", Family(make(SYSTEM, USER, *TIMED, SAID)))
    agent, first, tool, last = spans(data)
    assert {span["traceId"] for span in spans(data)} == {agent["traceId"]} and len(agent["traceId"]) == 32
    assert all(len(span["spanId"]) == 16 and int(span["spanId"], 16) for span in spans(data))
    assert [span.get("parentSpanId") for span in (agent, first, tool, last)] == [None, *[agent["spanId"]] * 3]
    assert int(first["endTimeUnixNano"]) - int(first["startTimeUnixNano"]) == 1_500_000_000
    assert int(tool["endTimeUnixNano"]) - int(tool["startTimeUnixNano"]) == 250_000_000
    assert last["startTimeUnixNano"] == last["endTimeUnixNano"]
    found = attributes(first)
    assert found["gen_ai.usage.input_tokens"] == {"intValue": "7"}
    assert found["gen_ai.response.finish_reasons"] == {"arrayValue": {"values": [{"stringValue": "tool_calls"}]}}
    assert json.loads(found["gen_ai.tool.definitions"]["stringValue"])[0]["function"]["name"] == "run"
    assert [m["role"] for m in json.loads(found["gen_ai.input.messages"]["stringValue"])] == ["system", "user"]
    assert [m["role"] for m in json.loads(attributes(last)["gen_ai.input.messages"]["stringValue"])] == ["tool"]
    assert tool["status"] == {"code": 2} and tool["name"] == "execute_tool run"


def test_nothing_is_lost_behind_the_last_reply_or_by_clocks_that_run_backwards(tmp_path: Path) -> None:
    """Of many traces in one file; an empty result without a call takes no other text."""
    empty = msgspec.structs.replace(RESULT, content="", prefix="", tool_call_ids=())
    times = ("2026-01-01T00:00:09Z", None, "2026-01-01T00:00:01Z", "2026-01-01T00:00:09Z")
    said = [msgspec.structs.replace(SAID, content=str(n), started=t, model_s=2.0) for n, t in enumerate(times)]
    tails = (said, *((CALLING, *tail) for tail in ((RESULT,), (RESULT, USER), (USER, USER), (empty, RESULT, SAID))))
    many = [msgspec.structs.replace(make(USER, *tail), key=f"k{n}") for n, tail in enumerate(tails)]
    back = read_back("otlp", export("otlp", *map(Family, many)), tmp_path)
    assert sorted(back, key=lambda trace: trace.key) == [as_carried(trace) for trace in many]


def test_agents_below_share_the_trace_and_lie_below_the_call(tmp_path: Path) -> None:
    below = [Family(started("k2", "k", "a")), Family(started("k3", "k"))]
    data = export("otlp", Family(make(USER, *TIMED, SAID), below))
    found = spans(data)
    (tool,) = (span for span in found if span["name"].startswith("execute_tool"))
    agents = [span for span in found if span["name"] == "invoke_agent"]
    assert [span.get("parentSpanId") for span in agents] == [None, tool["spanId"], agents[0]["spanId"]]
    assert len({span["traceId"] for span in found}) == 1
    back = read_back("otlp", data, tmp_path)
    assert {(t.key, t.parent.key if t.parent else None) for t in back} == {("k", None), ("k2", "k"), ("k3", "k")}


def test_a_trace_without_a_model_call_has_no_span() -> None:
    silent: Trace = make(USER, Message(role="assistant", author="demo", content="So."))
    assert make_format("otlp").write(Family(silent)) == Drop("no_model_call")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("exported")


@settings(phases=[Phase.generate], max_examples=12)  # examples are large: shrinking them takes minutes
@given(any_traces.traces())
def test_a_trace_comes_back_as_it_was(folder: Path, trace: Trace) -> None:
    data = export("otlp", Family(trace))
    (back,) = map(as_carried, read_back("otlp", data, folder))
    carried = as_carried(trace)
    assert back.messages == carried.messages
    assert msgspec.structs.replace(back, messages=()) == msgspec.structs.replace(carried, messages=())
    assert export("otlp", Family(back)) == data, "an export of an export"
