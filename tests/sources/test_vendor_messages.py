"""Conversations in the forms of other APIs and toolkits: the same turns, calls, results and thoughts in each.

What else stands in such a row is kept, and a value of a kind that nobody writes is a named drop.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from foretrace.core.trace import Trace, encode_trace
from foretrace.rows.base import Drop, RowRef
from foretrace.sources.base import RowError
from foretrace.sources.chat import Chat
from foretrace.sources.importing import import_rows
from foretrace.sources.leftovers import find_rest
from foretrace.sources.row_turns import find_turns
from sources.formats.reading import find_places, put
from sources.raw_rows import Given, read_row

ASK: dict[str, Any] = {"role": "user", "content": "Weather?"}
CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"city": "Oslo"}'}}
OPENAI = [
    ASK,
    {"role": "assistant", "content": "I look.", "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c1", "content": "3 C"},
    {"role": "assistant", "content": "It is 3 C."},
]
CALL_ARGS = {"city": "Oslo"}


def tell(
    text: Any, call: Any, result: Any, *, agent: str = "assistant", tool: str = "user", key: str = "content"
) -> Any:
    """The conversation in blocks of a vendor: a function makes those of text; messages have them under `key`."""
    said = [[text("Weather?")], [text("I look."), call], [result], [text("It is 3 C.")]]
    return [{"role": role, key: blocks} for role, blocks in zip(("user", agent, tool, agent), said, strict=True)]


def bare(text: str) -> dict[str, Any]:
    return {"text": text}


def typed(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


GEMINI = tell(
    bare, {"functionCall": {"id": "c1", "name": "look", "args": CALL_ARGS}},
    {"functionResponse": {"id": "c1", "name": "look", "response": "3 C"}}, agent="model", key="parts",
)  # fmt: skip
BEDROCK = tell(
    bare, {"toolUse": {"toolUseId": "c1", "name": "look", "input": CALL_ARGS}},
    {"toolResult": {"toolUseId": "c1", "content": [{"text": "3 C"}]}},
)  # fmt: skip
ANTHROPIC_CALL = {"type": "tool_use", "id": "c1", "name": "look", "input": CALL_ARGS}
ANTHROPIC = tell(typed, ANTHROPIC_CALL, {"type": "tool_result", "tool_use_id": "c1", "content": "3 C"})
RAN = {"status": "done", "result": {"output": "3 C"}}
AMP = tell(typed, {**ANTHROPIC_CALL, "complete": True}, {"type": "tool_result", "toolUseID": "c1", "run": RAN})
GOOSE = tell(
    typed, {"type": "toolRequest", "id": "c1", "toolCall": {
        "status": "success", "value": {"name": "look", "arguments": CALL_ARGS}}},
    {"type": "toolResponse", "id": "c1", "toolResult": {
        "status": "success", "value": {"content": [typed("3 C")], "isError": False}}},
)  # fmt: skip
CALL_STATE = {"toolCallId": "c1", "toolCall": CALL, "status": "done", "output": [{"name": "look", "content": "3 C"}]}
CONTINUE = [
    {"message": {"role": "user", "content": [typed("Weather?")]}, "contextItems": []},
    {"message": {"role": "assistant", "content": "I look.", "toolCalls": [CALL]}, "toolCallStates": [CALL_STATE]},
    {"message": {"role": "tool", "content": "3 C", "toolCallId": "c1"}, "contextItems": []},
    {"message": {"role": "assistant", "content": "It is 3 C."}, "contextItems": []},
]
SNAKE = tell(
    bare, {"function_call": {"id": "c1", "name": "look", "args": CALL_ARGS}},
    {"function_response": {"id": "c1", "name": "look", "response": "3 C"}}, agent="model", key="parts",
)  # fmt: skip
ADK = [{"author": "helper" if number else "user", "content": message} for number, message in enumerate(SNAKE)]
PYDANTIC_AI = [
    {"kind": "request", "parts": [{"part_kind": "user-prompt", "content": "Weather?"}]},
    {"kind": "response", "parts": [
        {"part_kind": "text", "content": "I look."},
        {"part_kind": "tool-call", "tool_name": "look", "args": CALL_ARGS, "tool_call_id": "c1"}]},
    {"kind": "request", "parts": [
        {"part_kind": "tool-return", "tool_name": "look", "content": "3 C", "tool_call_id": "c1"}]},
    {"kind": "response", "parts": [{"part_kind": "text", "content": "It is 3 C."}]},
]  # fmt: skip
SDK_MODEL = tell(
    typed, {"type": "tool-call", "toolCallId": "c1", "toolName": "look", "input": CALL_ARGS},
    {"type": "tool-result", "toolCallId": "c1", "output": {"type": "text", "value": "3 C"}}, tool="tool",
)  # fmt: skip
SHOWN_CALL = {"toolCallId": "c1", "state": "output-available", "input": CALL_ARGS, "output": "3 C"}
STEPS = [typed("I look."), {"type": "tool-look", **SHOWN_CALL}, {"type": "step-start"}, typed("It is 3 C.")]
SDK_SHOWN = [
    {"role": "user", "parts": [typed("Weather?")]},
    {"role": "assistant", "parts": [{"type": "step-start"}, *STEPS]},
]
LLAMA_INDEX = [
    {"role": role, "blocks": [{"block_type": "text", "text": text}], "additional_kwargs": more}
    for role, text, more in (
        ("user", "Weather?", {}), ("assistant", "I look.", {"tool_calls": [CALL]}),
        ("tool", "3 C", {"tool_call_id": "c1"}), ("assistant", "It is 3 C.", {}),
    )
]  # fmt: skip
LANGCHAIN = [
    {"type": "human", "content": "Weather?"},
    {"type": "ai", "content": "I look.", "tool_calls": [{"name": "look", "args": CALL_ARGS, "id": "c1"}]},
    {"type": "tool", "content": "3 C", "tool_call_id": "c1"},
    {"type": "ai", "content": "It is 3 C."},
]
WRAPPED = [{"type": m["type"], "data": {k: v for k, v in m.items() if k != "type"}} for m in LANGCHAIN]
CLASSES = {"human": "HumanMessage", "ai": "AIMessage", "tool": "ToolMessage"}
BUILT = [
    {"lc": 1, "type": "constructor", "id": ["langchain", "schema", CLASSES[str(m["type"])]], "kwargs": m["data"]}
    for m in WRAPPED
]
REPLY = OPENAI[3]
CHOICES = {"choices": [{"message": REPLY}]}
ROWS: dict[str, dict[str, Any]] = {
    "openai": {"messages": OPENAI},
    "anthropic": {"messages": ANTHROPIC},
    "langchain": {"messages": LANGCHAIN},
    "langchain, wrapped": {"messages": WRAPPED},
    "langchain, built": {"messages": BUILT},
    "gemini": {"contents": GEMINI},
    "bedrock": {"messages": BEDROCK},
    "amp": {"messages": AMP},
    "goose": {"messages": GOOSE},
    "continue": {"history": CONTINUE},
    "adk": {"events": ADK},
    "pydantic ai": {"messages": PYDANTIC_AI},
    "messages beside a response": {"messages": OPENAI[:3], "response": CHOICES},
    "state of a graph": {"values": {"messages": OPENAI}, "next": []},
    "sdk for the model": {"messages": SDK_MODEL},
    "sdk as it is shown": {"id": "x", "messages": SDK_SHOWN},
    "llama index": {"chat_history": LLAMA_INDEX},
    "request and choices": {"request": {"messages": OPENAI[:3]}, "response": CHOICES},
    "as JSON text": {"request": json.dumps({"messages": OPENAI[:3]}), "response": json.dumps(CHOICES)},
    "gemini's log": {"request": {"contents": GEMINI[:3]}, "response": {"candidates": [{"content": GEMINI[3]}]}},
    "bedrock's log": {
        "input": {"inputBodyJson": {"messages": BEDROCK[:3]}},
        "output": {"outputBodyJson": {"output": {"message": BEDROCK[3]}}},
    },
    "a run's inputs": {
        "inputs": {"messages": [OPENAI[:3]]},
        "outputs": {"generations": [[{"text": "It is 3 C.", "message": REPLY}]]},
    },
}


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS.keys())
def test_one_conversation_in_every_form(row: dict[str, Any]) -> None:
    messages = read_row(row).messages
    assert [m.role for m in messages] == ["user", "assistant", "tool", "assistant"]
    assert [m.content for m in messages] == ["Weather?", "I look.", "3 C", "It is 3 C."]
    (call,) = messages[1].tool_calls
    assert (call.id, call.name) == ("c1", "look")
    assert json.loads(call.arguments) == {"city": "Oslo"} and messages[2].tool_call_ids == ("c1",)


STEP = {"thought": "look", "action": "ls", "action_input": {"path": "."}, "observation": "a.py"}
RESPONSES = [
    {"type": "reasoning", "id": "r1", "summary": [{"type": "summary_text", "text": "Hm."}]},
    {"type": "function_call", "call_id": "c1", "name": "ls", "arguments": "{}", "status": "done"},
    {"type": "function_call_output", "call_id": "c1", "output": "a.py"},
]
FORMS = ROWS | {
    "responses": {"input": [ASK], "output": RESPONSES},
    "autogen": {"messages": [
        {"type": "TextMessage", "source": "user", "content": "Look."},
        {"type": "ToolCallRequestEvent", "source": "a", "content": [{"id": "1", "name": "ls", "arguments": ""}]}]},
    "steps": {"question": "Which files?", "steps": [STEP, {**STEP, "thought": "again"}], "final_answer": "a.py"},
}  # fmt: skip


def add_values(value: Any, added: list[str]) -> Any:
    """The value with one more text and number in each of its objects, except in the arguments of calls."""
    if isinstance(value, list):
        return [add_values(each, added) for each in value]
    if not isinstance(value, dict):
        return value
    number = 770_000 + len(added)
    added += [f"added-{number}-", f"{number + 1}"]
    opaque = ("arguments", "input", "args", "action_input")
    inner = {
        key: each if key in opaque and "city" in str(each) else add_values(each, added) for key, each in value.items()
    }
    return {**inner, f"more_{number}": f"added-{number}-", f"count_{number}": number + 1}


@pytest.mark.parametrize("form", FORMS)
def test_what_stands_beside_messages_is_kept(form: str) -> None:
    added: list[str] = []
    trace = Chat().to_trace(add_values(FORMS[form], added), RowRef(0, "rows.jsonl"))
    assert isinstance(trace, Trace)
    text = encode_trace(trace).decode()
    assert [value for value in added if value not in text] == []


def test_parallel_lists_of_other_things_are_kept() -> None:
    lists = {"from": ["human", "gpt"], "value": ["Which?", "None."], "reward": [0.0, 0.7], "tags": ["x"], "title": "t"}
    trace = read_row({"conversations": lists})
    kept = json.dumps([trace.extra, *(message.extra for message in trace.messages)])
    assert all(value in kept for value in ("0.7", '"x"', '"t"'))


def test_a_value_that_is_nested_deep_is_kept_whole() -> None:
    value: Any = "deep"
    for _ in range(900):
        value = {"in": [value]}
    assert find_rest(value, "other") == value


@pytest.mark.parametrize("form", FORMS)
def test_an_odd_value_anywhere_is_a_trace_or_a_named_drop(tmp_path: Path, form: str) -> None:
    whole = FORMS[form]
    odd: list[Any] = [["x"], {"a": ["b"]}, 3, None, "", [["q"]], "x\ud800"]
    rows = [{**put(whole, path, each), "id": f"{path}{n}"} for path in find_places(whole) for n, each in enumerate(odd)]
    report = import_rows(Chat(), [Given([*rows, {**whole, "id": "whole"}])], tmp_path / "out")
    assert "internal_error" not in report.drops, report.examples
    assert report.traces + report.drops.total() == len(rows) + 1
    assert form == "as JSON text" or "half of a surrogate pair" in report.examples["not_utf8"][0]


@pytest.mark.parametrize(
    ("asked", "response"),
    [([[ASK], [ASK]], CHOICES), ([ASK], {"choices": [{"message": REPLY}] * 2}), ([ASK], {"choices": []}),
     ([ASK], {"error": {"message": "rate limit"}})],
)  # fmt: skip
def test_a_log_without_one_reply_to_one_conversation_is_none(asked: Any, response: dict[str, Any]) -> None:
    assert find_turns({"request": {"messages": asked}, "response": response}) is None


@pytest.mark.parametrize(
    "row",
    [
        {"systemInstruction": {"parts": [{"text": "Be brief."}]}, "contents": GEMINI},
        {"system": [{"text": "Be brief."}], "messages": BEDROCK},
        {"request": {"system": "Be brief.", "messages": OPENAI[:3]}, "response": REPLY},
    ],
)
def test_system_prompts_beside_the_messages(row: dict[str, Any]) -> None:
    first = read_row(row).messages[0]
    assert (first.role, first.content) == ("system", "Be brief.")


def test_thoughts_errors_and_parallel_calls() -> None:
    parts = [
        {"type": "reasoning", "text": "Hm."},
        {"type": "tool-look", **SHOWN_CALL},
        {"type": "dynamic-tool", "toolName": "ask", "toolCallId": "c2", "state": "output-error", "errorText": "no"},
        {"type": "text", "text": "Done."},
    ]
    messages = read_row({"messages": [SDK_SHOWN[0], {"role": "assistant", "parts": parts}]}).messages
    assert [m.role for m in messages] == ["user", "assistant", "tool", "tool", "assistant"]
    assert messages[1].reasoning == "Hm." and [call.name for call in messages[1].tool_calls] == ["look", "ask"]
    assert [m.is_error for m in messages[2:4]] == [None, True] and messages[3].content == "no"
    thought = {"role": "model", "parts": [{"text": "Hm.", "thought": True}, {"text": "Hi."}]}
    assert read_row({"contents": [GEMINI[0], thought]}).messages[1].reasoning == "Hm."


@pytest.mark.parametrize(
    "message",
    [
        {"role": "model", "parts": [{"executableCode": {"code": "1"}}]},
        {"role": "assistant", "parts": [{"type": "data-chart", "data": {}}]},
        {"role": "assistant", "content": [{"type": "tool-call", "toolCallId": "c"}]},
    ],
)
def test_what_is_not_known_is_refused_by_name(message: dict[str, Any]) -> None:
    try:
        found = Chat().to_trace({"messages": [ASK, message]}, RowRef(0))
    except RowError as error:
        found = error.drop
    assert isinstance(found, Drop) and found.reason in ("unknown_part", "bad_tool_call")


def test_calls_and_texts_under_other_keys() -> None:
    """Blocks and calls of AgentDojo."""
    text = [{"type": "text", "content": "Pay it."}]
    call = {"function": "pay", "args": {"sum": 10}, "id": "t-1"}
    trace = read_row({"messages": [{"role": "user", "content": text}, {"role": "assistant", "tool_calls": [call]}]})
    assert trace.messages[0].content == "Pay it." and trace.messages[1].tool_calls[0].arguments == '{"sum": 10}'


def test_autogen_tells_thoughts_results_and_their_repetition_apart() -> None:
    events: list[dict[str, Any]] = [
        {"source": "user", "type": "TextMessage", "content": "Weather?"},
        {"source": "helper", "type": "ThoughtEvent", "content": "Hm."},
        {"source": "helper", "type": "ToolCallRequestEvent", "content": [
            {"id": "c1", "name": "look", "arguments": '{"city": "Oslo"}'}]},
        {"source": "helper", "type": "ToolCallExecutionEvent", "content": [
            {"call_id": "c1", "name": "look", "content": "no", "is_error": True}]},
        {"source": "helper", "type": "ToolCallSummaryMessage", "content": "no"},
    ]  # fmt: skip
    messages = read_row({"messages": events, "stop_reason": "done"}).messages
    assert [m.role for m in messages] == ["user", "assistant", "tool"]
    assert messages[1].reasoning == "Hm." and messages[1].tool_calls[0].name == "look"
    assert messages[2].is_error is True and messages[2].tool_call_ids == ("c1",)


def test_steps_of_smolagents() -> None:
    """A task, a step with code, a step whose code fails, and the answer."""
    steps = [
        {"task": "Weather?", "task_images": None},
        {"step_number": 1, "model_output": "Thought: Hm.\n<code>\nlook()\n</code>", "observations": "3 C",
         "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "python_interpreter", "arguments": "look()"}}]},
        {"step_number": 2, "model_output": "Thought: So.", "observations": None, "error": {"message": "no"},
         "tool_calls": [
            {"id": "c2", "type": "function", "function": {"name": "final_answer", "arguments": {"answer": "3 C"}}}]},
    ]  # fmt: skip
    messages = read_row({"question": "q", "intermediate_steps": steps}).messages
    assert [m.role for m in messages] == ["user", "assistant", "tool", "assistant", "tool"]
    assert json.loads(messages[1].tool_calls[0].arguments) == {"code": "look()"}
    assert messages[1].reasoning == "Thought: Hm." and messages[2].tool_call_ids == ("c1",)
    assert (messages[4].content, messages[4].is_error) == ("no", True)
