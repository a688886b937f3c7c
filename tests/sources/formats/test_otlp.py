"""OTLP JSON: every vocabulary, history that repeats, calls that are told twice, and what was never captured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from foretrace.core.trace import Parent, Trace
from foretrace.sources.account import Account
from sources.formats.reading import SHARED, Read, count, needs_shared, outline, read, read_one, write_document

START = 1_748_000_000 * 10**9


def encode(value: Any) -> dict[str, Any]:
    kinds: dict[type, str] = {bool: "boolValue", float: "doubleValue", str: "stringValue"}
    if isinstance(value, list):
        return {"arrayValue": {"values": [encode(item) for item in value]}}
    if isinstance(value, dict):
        return {"kvlistValue": {"values": pairs(value)}}
    return {kinds[type(value)]: value} if type(value) in kinds else {"intValue": str(value)}


def pairs(value: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"key": key, "value": encode(item)} for key, item in value.items()]


def span(name: str, at: float, seconds: float, parent: str = "", **more: Any) -> dict[str, Any]:
    events = [{"name": n, "attributes": pairs(values)} for n, values in more.get("events", ())]
    made = {
        "traceId": "t", "spanId": name, "parentSpanId": parent, "name": name,
        "startTimeUnixNano": str(START + round(at * 1e9)), "endTimeUnixNano": str(START + round((at + seconds) * 1e9)),
        "attributes": pairs(more.get("attributes", {})), "events": events,
    }  # fmt: skip
    return made | ({"status": more["status"]} if "status" in more else {})


def read_all(folder: Path, *spans: dict[str, Any], logs: list[dict[str, Any]] | None = None) -> Read:
    made: dict[str, Any] = {"resourceSpans": [{"resource": {"attributes": []}, "scopeSpans": [{"spans": list(spans)}]}]}
    made |= {"resourceLogs": [{"scopeLogs": [{"logRecords": logs}]}]} if logs else {}
    return read("otlp", write_document(folder / "t.json", made))


def read_talk(folder: Path, *spans: dict[str, Any], logs: list[dict[str, Any]] | None = None) -> tuple[Trace, Account]:
    found = read_all(folder, *spans, logs=logs)
    assert len(found.traces) == 1 and not found.drops, found
    return found.traces[0], found.account


def text(role: str, content: str) -> dict[str, Any]:
    return {"role": role, "parts": [{"type": "text", "content": content}]}


def call(call_id: str, **arguments: Any) -> dict[str, Any]:
    part = {"type": "tool_call", "id": call_id, "name": "run", "arguments": arguments}
    return {"role": "assistant", "parts": [part]}


def result(call_id: str, response: Any, role: str = "tool") -> dict[str, Any]:
    return {"role": role, "parts": [{"type": "tool_call_response", "id": call_id, "response": response}]}


def chat(name: str, at: float, inputs: list[Any], outputs: list[Any], parent: str = "", **more: Any) -> dict[str, Any]:
    attributes = {"gen_ai.operation.name": "chat", "gen_ai.input.messages": json.dumps(inputs),
                  "gen_ai.output.messages": json.dumps(outputs), **more}  # fmt: skip
    return span(name, at, 2.0, parent, attributes=attributes)


def tool(name: str, at: float, call_id: str, parent: str = "", **more: Any) -> dict[str, Any]:
    attributes = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "run", "gen_ai.tool.call.id": call_id}
    return span(name, at, 0.5, parent, attributes=attributes | more)


def agent(name: str, at: float, parent: str = "") -> dict[str, Any]:
    return span(name, at, 60, parent, attributes={"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": name})


@needs_shared
def test_the_lengths_of_spans_are_the_times() -> None:
    """Sums over the fixtures, counted from the spans by hand."""
    traces, _, _ = read("otlp", SHARED / "formats" / "otlp_genai" / "langfuse_pydantic-ai-tools-2025-12-04.otlp.json")
    messages = [m for trace in traces for m in trace.messages]
    assert sum(m.model_s or 0 for m in messages) == pytest.approx(2.362 + 1.707 + 1.283 + 2.05)
    assert sum(m.tool_s or 0 for m in messages) == pytest.approx(0.006 + 0.005 + 0.005)
    measured = {m.model_s_source for m in messages if m.model_s} | {m.tool_s_source for m in messages if m.tool_s}
    assert measured == {"span"}
    assert [len(t.tools) for t in traces] == [5, 1] and traces[0].provenance.agent == "joke_agent"


@needs_shared
def test_content_that_was_not_captured_is_a_named_drop() -> None:
    path = SHARED / "formats" / "otlp_genai" / "akmon_openai_v2_weather_legacy.otlp.json"
    traces, (drop,), account = read("otlp", path)
    assert not traces and drop.reason == "content_not_captured" and drop.remedy
    assert account.notes["model calls whose content was not captured"] == 1


@needs_shared
def test_a_reply_whose_beginning_was_cut_is_not_trained_on() -> None:
    trace, account = read_one("otlp", SHARED / "formats" / "openinference" / "langfuse_beeai-2025-08-01.otlp.json")
    assert trace.messages[-1].train is False and trace.messages[-1].model_s is None
    assert account.notes["replies whose beginning is missing"] == 1


CALLS = [{"id": "c1", "function": {"name": "run", "arguments": "{}"}}]
CHOICE = {"index": 0, "finish_reason": "tool_calls", "message": {"role": "assistant", "tool_calls": CALLS}}
TALK = [text("user", "go"), call("c1", command="ls")]
ASKED = chat("m1", 0, TALK[:1], TALK[1:])
DONE = [text("assistant", "done")]
KIND = {"gen_ai.operation.name": "chat"}


def test_history_is_not_repeated(tmp_path: Path) -> None:
    second = [*TALK, result("c1", "a.py")]
    third = [*second, call("c2", command="cat a.py"), result("c2", {"x": 1}, "user")]
    spans = [chat("m3", 6, third, DONE), tool("r1", 2, "c1"), ASKED, chat("m2", 3, second, third[3:4])]
    trace, account = read_talk(tmp_path, *spans)
    assert outline(trace) == [
        ("user", "user", "go"), ("assistant", "model", "run"), ("tool", "environment", "a.py"),
        ("assistant", "model", "run"), ("tool", "environment", '{"x": 1}'), ("assistant", "model", "done"),
    ]  # fmt: skip
    assert [m.model_s for m in trace.messages if m.role == "assistant"] == [2.0, 2.0, 2.0]
    assert [m.tool_s for m in trace.messages if m.role == "tool"] == [0.5, None]
    assert account.used == 4 and trace.messages[1].started == "2025-05-23T11:33:20+00:00"


def test_a_call_told_twice_counts_once(tmp_path: Path) -> None:
    inner = span("inner", 0.1, 1.8, "m1", attributes={"openinference.span.kind": "LLM", "output.value": "x"})
    ran = tool("r1", 2.1, "c1", "m1", **{"gen_ai.tool.call.result": "ok"})
    trace, account = read_talk(tmp_path, ASKED, inner, ran, tool("r2", 2.2, "c1", "r1"))
    assert count(trace) == {"turns": 1, "calls": 1, "results": 1} and trace.messages[-1].tool_s == 0.5
    assert account.ignored == {"second span of one model call": 1, "second span of one tool run": 1}


def test_the_inner_span_may_be_the_one_that_says_something(tmp_path: Path) -> None:
    outer = span("outer", 0, 2, attributes=KIND | {"gen_ai.response.id": "r"})
    inner = chat("inner", 0.1, [text("user", "a")], [text("assistant", "b")], "outer")
    trace, _ = read_talk(tmp_path, outer, inner)
    assert count(trace)["turns"] == 1 and trace.messages[-1].model_s == 2.0


def test_agents_that_agents_start(tmp_path: Path) -> None:
    main = [agent("main", 0), chat("m1", 0, TALK[:1], TALK[1:], "main"), tool("r1", 3, "c1", "main")]
    sub = [agent("sub", 3.1, "r1"), chat("m2", 3.2, [text("user", "look")], [text("assistant", "seen")], "sub")]
    last = chat("m3", 9, [*TALK, result("c1", "seen")], DONE, "main")
    traces, _, account = read_all(tmp_path, *main, *sub, last)
    assert [(t.provenance.agent, count(t)["turns"]) for t in traces] == [("main", 2), ("sub", 1)]
    assert traces[1].parent == Parent(key=traces[0].key, call_id="c1") and traces[0].parent is None
    assert traces[0].task.group == traces[1].task.group and account.ignored == {"agent span": 2}


def test_a_model_call_inside_of_a_tool_is_another_one(tmp_path: Path) -> None:
    """Spans of tools that lie in the call that asked for them, and of what such a tool asks a model."""
    ran = tool("r1", 2, "c1", "m1", **{"gen_ai.tool.call.result": "ok"})
    inside = chat("m2", 2.1, [text("user", "sum up")], [text("assistant", "short")], "r1")
    traces, _, account = read_all(tmp_path, ASKED, ran, inside)
    assert [count(t)["turns"] for t in traces] == [1, 1] and not account.ignored
    assert traces[1].parent == Parent(key=traces[0].key, call_id="c1")


def test_two_samples_of_one_prompt_are_two_conversations(tmp_path: Path) -> None:
    made = [chat(f"m{i}", i, [text("user", "a")], [text("assistant", f"b{i}")]) for i in range(2)]
    assert len(read_all(tmp_path, *made).traces) == 2


def test_servers_that_keep_the_history(tmp_path: Path) -> None:
    """A later call is sent nothing but the results of its calls."""
    trace, _ = read_talk(tmp_path, ASKED, chat("m2", 3, [result("c1", "a.py")], DONE))
    assert count(trace) == {"turns": 2, "calls": 1, "results": 1}


def test_a_history_that_was_cut_goes_on_after_the_last_known_turn(tmp_path: Path) -> None:
    reply = text("assistant", "so far")
    said = [text("system", "be good"), text("user", "one"), reply]
    later = [text("system", "be good"), text("user", "summary"), reply, text("user", "two")]
    trace, _ = read_talk(tmp_path, chat("m1", 0, said[:2], said[2:]), chat("m2", 3, later, DONE))
    assert [m.content for m in trace.messages] == ["be good", "one", "so far", "two", "done"]


def test_messages_as_lists_of_pairs(tmp_path: Path) -> None:
    attributes = KIND | {"gen_ai.input.messages": TALK[:1], "gen_ai.output.messages": TALK[1:],
                         "gen_ai.system_instructions": [{"type": "text", "content": "be good"}]}  # fmt: skip
    trace, _ = read_talk(tmp_path, span("m", 0, 1, attributes=attributes))
    assert outline(trace)[0] == ("system", "user", "be good")
    assert trace.messages[-1].tool_calls[0].arguments == '{"command": "ls"}'


def test_flat_attributes(tmp_path: Path) -> None:
    flat = {
        "llm.request.type": "chat", "gen_ai.prompt.0.role": "system", "gen_ai.prompt.0.content": "be good",
        "gen_ai.prompt.1.role": "user", "gen_ai.prompt.1.content": "go",
        "gen_ai.completion.0.role": "assistant", "gen_ai.completion.0.content": "I look",
        "gen_ai.completion.0.finish_reason": "tool_calls", "gen_ai.completion.0.tool_calls.0.id": "c1",
        "gen_ai.completion.0.tool_calls.0.name": "run", "gen_ai.completion.0.tool_calls.0.arguments": '{"a": 1}',
        "llm.request.functions.0.name": "run", "llm.request.functions.0.parameters": '{"type": "object"}',
        "gen_ai.usage.prompt_tokens": 7,
    }  # fmt: skip
    trace, _ = read_talk(tmp_path, span("m", 0, 1, attributes=flat))
    reply = trace.messages[-1]
    assert [m.role for m in trace.messages] == ["system", "user", "assistant"] and trace.tools[0].name == "run"
    assert reply.content == "I look" and reply.tool_calls[0].arguments == '{"a": 1}' and reply.sampled
    assert reply.sampled.finish_reason == "tool_calls"
    assert reply.sampled.usage and reply.sampled.usage.prompt_tokens == 7


def test_one_id_for_all_calls_of_a_run(tmp_path: Path) -> None:
    """Microsoft's agents: the id of the response is that of the run, and the server keeps the history."""
    run, own = {"gen_ai.response.id": "run_1"}, '["run_1", "call_1"]'
    first = chat("m1", 0, TALK[:1], [call(own)], **run)
    second = chat("m2", 2.5, [call(own), result(own, "ok")], DONE, **run, **{"gen_ai.conversation.id": "thread"})
    trace, account = read_talk(tmp_path, first, tool("r1", 2, own), second)
    assert count(trace) == {"turns": 2, "calls": 1, "results": 1} and not account.ignored
    assert trace.messages[2].tool_s == 0.5
    _, account = read_talk(tmp_path, first, chat("m3", 0.5, TALK[:1], [call(own)], **run), second)
    assert account.ignored == {"second span of one model call": 1}


@pytest.mark.parametrize("left", [[{"message.role": "assistant"}], []])
def test_history_that_lacks_the_calls(left: list[dict[str, str]], tmp_path: Path) -> None:
    """OpenInference of some libraries: a message that only calls comes back empty, or not at all."""
    listed = json.dumps([{"type": "result", "title": "a"}])

    def ask(name: str, at: float, inputs: list[dict[str, str]], output: dict[str, str]) -> dict[str, Any]:
        attributes = {"openinference.span.kind": "LLM"}
        for kind, messages in (("input", inputs), ("output", [output])):
            for n, message in enumerate(messages):
                attributes |= {f"llm.{kind}_messages.{n}.{key}": value for key, value in message.items()}
        return span(name, at, 1, attributes=attributes)

    asked, prefix = {"message.role": "user", "message.content": "go"}, "message.tool_calls.0.tool_call"
    reply = {"message.role": "assistant", f"{prefix}.id": "c1", f"{prefix}.function.name": "run"}
    result = {"message.role": "tool", "message.tool_call_id": "c1", "message.content": listed}
    done = {"message.role": "assistant", "message.content": "done"}
    trace, _ = read_talk(tmp_path, ask("m1", 0, [asked], reply), ask("m2", 2, [asked, *left, result], done))
    assert count(trace) == {"turns": 2, "calls": 1, "results": 1}
    assert trace.messages[2].content == listed, "what a tool gives is not a list of parts"


def test_alternatives_are_counted_and_not_joined(tmp_path: Path) -> None:
    trace, account = read_talk(tmp_path, chat("m", 0, TALK[:1], [text("assistant", "b"), text("assistant", "c")]))
    assert trace.messages[-1].content == "b" and account.notes == {"alternative replies that were not kept": 1}


def test_events_of_the_span(tmp_path: Path) -> None:
    events = [
        ("gen_ai.system.message", {"content": "be good"}),
        ("gen_ai.user.message", {"gen_ai.event.content": '{"content": "go"}'}),
        ("gen_ai.choice", {"index": 0, "message": json.dumps(CHOICE["message"])}),
    ]
    trace, _ = read_talk(tmp_path, span("m", 0, 1, attributes=KIND, events=events))
    assert [m.content for m in trace.messages] == ["be good", "go", ""]
    assert trace.messages[-1].tool_calls[0].id == "c1"


def test_log_records_of_spans(tmp_path: Path) -> None:
    def log(name: str, body: Any, span_id: str = "m", attributes: Any = None) -> dict[str, Any]:
        facts = {"eventName": name, "body": encode(body), "attributes": pairs(attributes or {})}
        return {"traceId": "t", "spanId": span_id, **facts}

    logs = [log("gen_ai.user.message", {"content": "go"}), log("gen_ai.choice", CHOICE),
            log("gen_ai.choice", CHOICE, "gone"), log("http.request", {})]  # fmt: skip
    made = span("m", 0, 1, attributes=KIND, events=[("gen_ai.choice", {"index": 0})])
    trace, account = read_talk(tmp_path, made, logs=logs)
    assert count(trace) == {"turns": 1, "calls": 1, "results": 0}
    assert account.dropped == {"log_without_span": 1} and account.ignored == {"log record of another kind": 1}
    said = {"gen_ai.input.messages": TALK[:1], "gen_ai.output.messages": TALK[1:]}
    details = log("gen_ai.client.inference.operation.details", {}, attributes=said)
    trace, _ = read_talk(tmp_path, span("m", 0, 1, attributes=KIND), logs=[details])
    assert count(trace)["calls"] == 1


def test_failed_calls_and_results_that_were_not_captured(tmp_path: Path) -> None:
    failed = span("m2", 4, 1, attributes=KIND, status={"code": 2, "message": "429 too many requests"})
    _, (drop,), account = read_all(tmp_path, failed)
    assert drop.reason == "failed_model_call" and "429" in drop.detail
    assert account.notes == {"model calls that failed": 1}
    trace, account = read_talk(tmp_path, ASKED, tool("r", 3, "c1"), failed)
    assert trace.outcome.status == "error" and trace.outcome.error
    assert account.notes["results that were not captured"] == 1 and count(trace)["results"] == 0


def test_no_model_call_at_all(tmp_path: Path) -> None:
    _, (drop,), account = read_all(tmp_path, span("GET /", 0, 1), span("GET /", 2, 1))
    assert drop.reason == "no_agent_turn" and "1 'GET /'" in drop.detail
    assert account.ignored == {"span that was exported twice": 1, "span of another kind": 1}
