"""Spans as other tracing tools export them: one conversation of each, told from the history of its last model call."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import foretrace
from foretrace.core.store import read_traces

CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"city": "Oslo"}'}}
TALK: list[dict[str, Any]] = [
    {"role": "user", "content": "Weather?"},
    {"role": "assistant", "content": "I look.", "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c1", "content": "3 C"},
    {"role": "assistant", "content": "It is 3 C."},
]
STEPS: list[tuple[str, str, Any, Any]] = [
    ("agent", "helper", {"question": "Weather?"}, "It is 3 C."),
    ("model", "llm", TALK[:1], TALK[1]),
    ("tool", "look", {"city": "Oslo"}, "3 C"),
    ("model", "llm", TALK[:3], TALK[3]),
]


def stamp(second: int) -> str:
    return f"2026-03-02T10:00:{second:02d}.000Z"


def parent(number: int) -> str | None:
    return "s0" if number else None


def agents_sdk(number: int, kind: str, name: str, asked: Any, said: Any) -> dict[str, Any]:
    types = {"agent": "agent", "model": "generation", "tool": "function"}
    said = [said] if kind == "model" else said
    data = {"type": types[kind], "name": name, "input": asked, "output": said, "model": "m"}
    ids = {"id": f"s{number}", "trace_id": "t1", "parent_id": parent(number)}
    return {
        "object": "trace.span", **ids, "started_at": stamp(number * 2), "ended_at": stamp(number * 2 + 1),
        "span_data": data,
    }  # fmt: skip


def langfuse(number: int, kind: str, name: str, asked: Any, said: Any) -> dict[str, Any]:
    types = {"agent": "SPAN", "model": "GENERATION", "tool": "TOOL"}
    return {
        "id": f"s{number}", "traceId": "t1", "type": types[kind], "name": name, "parentObservationId": parent(number),
        "startTime": stamp(number * 2), "endTime": stamp(number * 2 + 1), "input": asked, "output": said, "model": "m",
    }  # fmt: skip


def langchain(message: dict[str, Any]) -> dict[str, Any]:
    kinds = {"user": "HumanMessage", "assistant": "AIMessage", "tool": "ToolMessage"}
    held: dict[str, Any] = {"content": message["content"]}
    if "tool_calls" in message:
        held["tool_calls"] = [{"id": "c1", "name": "look", "args": {"city": "Oslo"}}]
    if "tool_call_id" in message:
        held["tool_call_id"] = "c1"
    return {"lc": 1, "type": "constructor", "id": ["langchain", kinds[message["role"]]], "kwargs": held}


def langsmith(number: int, kind: str, name: str, asked: Any, said: Any) -> dict[str, Any]:
    if kind == "model":
        asked = {"messages": [[langchain(message) for message in asked]]}
        said = {"generations": [[{"text": said["content"], "message": langchain(said)}]]}
    else:
        said = {"output": said}
    return {
        "id": f"s{number}", "trace_id": "t1", "parent_run_id": parent(number), "name": name, "inputs": asked,
        "run_type": {"agent": "chain", "model": "llm", "tool": "tool"}[kind], "outputs": said,
        "start_time": stamp(number * 2), "end_time": stamp(number * 2 + 1),
        "extra": {"invocation_params": {"model": "m"}},
    }  # fmt: skip


def mlflow(number: int, kind: str, name: str, asked: Any, said: Any) -> dict[str, Any]:
    if kind == "model":
        asked, said = {"messages": asked, "model": "m"}, {"choices": [{"message": said}]}
    types = {"agent": "AGENT", "model": "CHAT_MODEL", "tool": "TOOL"}
    held = {"spanType": types[kind], "spanInputs": asked, "spanOutputs": said}
    return {
        "trace_id": "t1", "span_id": f"s{number}", "parent_span_id": parent(number), "name": name,
        "start_time_unix_nano": 1772445600 * 10**9 + number * 2 * 10**9,
        "end_time_unix_nano": 1772445600 * 10**9 + number * 2 * 10**9 + 10**9,
        "attributes": {f"mlflow.{key}": json.dumps(value) for key, value in held.items()},
    }  # fmt: skip


@pytest.mark.parametrize("make", [agents_sdk, langfuse, langsmith, mlflow])
def test_a_conversation_of_two_model_calls_and_a_tool(tmp_path: Path, make: Any) -> None:
    spans = [make(number, *step) for number, step in enumerate(STEPS)]
    records: list[dict[str, Any]] = spans[::-1]  # spans come in any order
    if make is agents_sdk:
        records = [{"object": "trace", "id": "t1", "workflow_name": "w"}, *records]
    if make is langfuse:
        records = [{"id": "t1", "name": "run", "observations": records}]
    if make is mlflow:
        records = [{"info": {"trace_id": "t1"}, "data": {"spans": records}}]
    path = tmp_path / "spans.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    report = foretrace.import_source("auto", path, out=tmp_path / "traces")
    assert list(report.sources) == ["otlp"]
    (trace,) = read_traces(tmp_path / "traces")
    assert [(m.role, m.content) for m in trace.messages] == [(m["role"], m["content"]) for m in TALK]
    (call,) = trace.messages[1].tool_calls
    assert (call.id, call.name, json.loads(call.arguments)) == ("c1", "look", {"city": "Oslo"})
    assert [trace.messages[n].model_s for n in (1, 3)] == [1.0, 1.0] and trace.messages[2].tool_s == 1.0
    assert trace.messages[2].tool_call_ids == ("c1",) and trace.provenance.model == "m"


@pytest.mark.parametrize("text", ["[It is] 3 C.", "{3 C}"])
def test_a_text_that_only_begins_like_json_stays(tmp_path: Path, text: str) -> None:
    spans = [langfuse(0, *STEPS[0]), langfuse(1, "model", "llm", TALK[:1], text)]
    path = tmp_path / "spans.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in spans))
    foretrace.import_source("auto", path, out=tmp_path / "traces")
    (trace,) = read_traces(tmp_path / "traces")
    assert trace.messages[-1].content == text
