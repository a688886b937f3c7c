"""Conversations in the forms of other APIs and toolkits: the same turns, calls, results and thoughts in each."""

from __future__ import annotations

import json
from typing import Any

import pytest

from foretrace.core.trace import Trace
from foretrace.rows.base import Drop, RowRef
from foretrace.sources.base import RowError
from foretrace.sources.chat import Chat
from foretrace.sources.row_turns import find_turns

ASK: dict[str, Any] = {"role": "user", "content": "Weather?"}
CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"city": "Oslo"}'}}
OPENAI = [
    ASK,
    {"role": "assistant", "content": "I look.", "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c1", "content": "3 C"},
    {"role": "assistant", "content": "It is 3 C."},
]
GEMINI = [
    {"role": "user", "parts": [{"text": "Weather?"}]},
    {
        "role": "model",
        "parts": [{"text": "I look."}, {"functionCall": {"id": "c1", "name": "look", "args": {"city": "Oslo"}}}],
    },
    {"role": "user", "parts": [{"functionResponse": {"id": "c1", "name": "look", "response": "3 C"}}]},
    {"role": "model", "parts": [{"text": "It is 3 C."}]},
]
BEDROCK = [
    {"role": "user", "content": [{"text": "Weather?"}]},
    {
        "role": "assistant",
        "content": [{"text": "I look."}, {"toolUse": {"toolUseId": "c1", "name": "look", "input": {"city": "Oslo"}}}],
    },
    {"role": "user", "content": [{"toolResult": {"toolUseId": "c1", "content": [{"text": "3 C"}]}}]},
    {"role": "assistant", "content": [{"text": "It is 3 C."}]},
]
AMP = [
    {"role": "user", "messageId": 0, "content": [{"type": "text", "text": "Weather?"}]},
    {"role": "assistant", "messageId": 1, "content": [
        {"type": "text", "text": "I look."},
        {"type": "tool_use", "complete": True, "id": "c1", "name": "look", "input": {"city": "Oslo"}},
    ]},
    {"role": "user", "messageId": 2, "content": [
        {"type": "tool_result", "toolUseID": "c1", "run": {"status": "done", "result": {"output": "3 C"}}}
    ]},
    {"role": "assistant", "messageId": 3, "content": [{"type": "text", "text": "It is 3 C."}]},
]  # fmt: skip
GOOSE_CALL = {"status": "success", "value": {"name": "look", "arguments": {"city": "Oslo"}}}
GOOSE = [
    {"role": "user", "created": 1, "content": [{"type": "text", "text": "Weather?"}]},
    {"role": "assistant", "content": [
        {"type": "text", "text": "I look."}, {"type": "toolRequest", "id": "c1", "toolCall": GOOSE_CALL}
    ]},
    {"role": "user", "content": [{"type": "toolResponse", "id": "c1", "toolResult": {
        "status": "success", "value": {"content": [{"type": "text", "text": "3 C"}], "isError": False}}}]},
    {"role": "assistant", "content": [{"type": "text", "text": "It is 3 C."}]},
]  # fmt: skip
CALL_STATE = {"toolCallId": "c1", "toolCall": CALL, "status": "done", "output": [{"name": "look", "content": "3 C"}]}
CONTINUE = [
    {"message": {"role": "user", "content": [{"type": "text", "text": "Weather?"}]}, "contextItems": []},
    {"message": {"role": "assistant", "content": "I look.", "toolCalls": [CALL]}, "toolCallStates": [CALL_STATE]},
    {"message": {"role": "tool", "content": "3 C", "toolCallId": "c1"}, "contextItems": []},
    {"message": {"role": "assistant", "content": "It is 3 C."}, "contextItems": []},
]
ADK = [
    {"author": "user", "content": {"role": "user", "parts": [{"text": "Weather?"}]}},
    {"author": "helper", "content": {"role": "model", "parts": [
        {"text": "I look."}, {"function_call": {"id": "c1", "name": "look", "args": {"city": "Oslo"}}}]}},
    {"author": "helper", "content": {"role": "user", "parts": [
        {"function_response": {"id": "c1", "name": "look", "response": "3 C"}}]}},
    {"author": "helper", "content": {"role": "model", "parts": [{"text": "It is 3 C."}]}},
]  # fmt: skip
PYDANTIC_AI = [
    {"kind": "request", "parts": [{"part_kind": "user-prompt", "content": "Weather?"}]},
    {"kind": "response", "parts": [
        {"part_kind": "text", "content": "I look."},
        {"part_kind": "tool-call", "tool_name": "look", "args": {"city": "Oslo"}, "tool_call_id": "c1"}]},
    {"kind": "request", "parts": [
        {"part_kind": "tool-return", "tool_name": "look", "content": "3 C", "tool_call_id": "c1"}]},
    {"kind": "response", "parts": [{"part_kind": "text", "content": "It is 3 C."}]},
]  # fmt: skip
SDK_MODEL = [
    ASK,
    {
        "role": "assistant",
        "content": [
            {"type": "text", "text": "I look."},
            {"type": "tool-call", "toolCallId": "c1", "toolName": "look", "input": {"city": "Oslo"}},
        ],
    },
    {
        "role": "tool",
        "content": [{"type": "tool-result", "toolCallId": "c1", "output": {"type": "text", "value": "3 C"}}],
    },
    {"role": "assistant", "content": [{"type": "text", "text": "It is 3 C."}]},
]
SHOWN_CALL = {"toolCallId": "c1", "state": "output-available", "input": {"city": "Oslo"}, "output": "3 C"}
SDK_SHOWN = [
    {"role": "user", "parts": [{"type": "text", "text": "Weather?"}]},
    {
        "role": "assistant",
        "parts": [
            {"type": "step-start"},
            {"type": "text", "text": "I look."},
            {"type": "tool-look", **SHOWN_CALL},
            {"type": "step-start"},
            {"type": "text", "text": "It is 3 C."},
        ],
    },
]
LLAMA_INDEX = [
    {"role": "user", "additional_kwargs": {}, "blocks": [{"block_type": "text", "text": "Weather?"}]},
    {
        "role": "assistant",
        "additional_kwargs": {"tool_calls": [CALL]},
        "blocks": [{"block_type": "text", "text": "I look."}],
    },
    {
        "role": "tool",
        "additional_kwargs": {"tool_call_id": "c1"},
        "blocks": [{"block_type": "text", "text": "3 C"}],
    },
    {"role": "assistant", "blocks": [{"block_type": "text", "text": "It is 3 C."}]},
]
REPLY = {"role": "assistant", "content": "It is 3 C."}
ROWS: dict[str, dict[str, Any]] = {
    "gemini": {"contents": GEMINI},
    "bedrock": {"messages": BEDROCK},
    "amp": {"messages": AMP},
    "goose": {"messages": GOOSE},
    "continue": {"history": CONTINUE},
    "adk": {"events": ADK},
    "pydantic ai": {"messages": PYDANTIC_AI},
    "messages beside a response": {"messages": OPENAI[:3], "response": {"choices": [{"message": OPENAI[3]}]}},
    "state of a graph": {"values": {"messages": OPENAI}, "next": []},
    "sdk for the model": {"messages": SDK_MODEL},
    "sdk as it is shown": {"id": "x", "messages": SDK_SHOWN},
    "llama index": {"chat_history": LLAMA_INDEX},
    "request and choices": {"request": {"messages": OPENAI[:3]}, "response": {"choices": [{"message": REPLY}]}},
    "as JSON text": {
        "request": json.dumps({"messages": OPENAI[:3]}),
        "response": json.dumps({"choices": [{"message": REPLY}]}),
    },
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


def read(row: dict[str, Any]) -> Trace:
    trace = Chat().to_trace(row, RowRef(0))
    assert isinstance(trace, Trace)
    return trace


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS.keys())
def test_one_conversation_in_every_form(row: dict[str, Any]) -> None:
    messages = read(row).messages
    assert [(m.role, m.content) for m in messages] == [
        ("user", "Weather?"),
        ("assistant", "I look."),
        ("tool", "3 C"),
        ("assistant", "It is 3 C."),
    ]
    (call,) = messages[1].tool_calls
    assert (call.id, call.name) == ("c1", "look")
    assert json.loads(call.arguments) == {"city": "Oslo"} and messages[2].tool_call_ids == ("c1",)


@pytest.mark.parametrize(
    ("request_", "response"),
    [
        ({"messages": [OPENAI[:1], OPENAI[:1]]}, {"choices": [{"message": REPLY}]}),
        ({"messages": OPENAI[:1]}, {"choices": [{"message": REPLY}] * 2}),
        ({"messages": OPENAI[:1]}, {"choices": []}),
        ({"messages": OPENAI[:1]}, {"error": {"message": "rate limit"}}),
    ],
)
def test_a_log_without_one_reply_to_one_conversation_is_none(
    request_: dict[str, Any], response: dict[str, Any]
) -> None:
    assert find_turns({"request": request_, "response": response}) is None


@pytest.mark.parametrize(
    "row",
    [
        {"systemInstruction": {"parts": [{"text": "Be brief."}]}, "contents": GEMINI},
        {"system": [{"text": "Be brief."}], "messages": BEDROCK},
        {
            "request": {"system": "Be brief.", "messages": OPENAI[:3]},
            "response": {"role": "assistant", "content": "It is 3 C."},
        },
    ],
)
def test_system_prompts_beside_the_messages(row: dict[str, Any]) -> None:
    first = read(row).messages[0]
    assert (first.role, first.content) == ("system", "Be brief.")


def test_thoughts_errors_and_parallel_calls() -> None:
    parts = [
        {"type": "reasoning", "text": "Hm."},
        {"type": "tool-look", **SHOWN_CALL},
        {"type": "dynamic-tool", "toolName": "ask", "toolCallId": "c2", "state": "output-error", "errorText": "no"},
        {"type": "text", "text": "Done."},
    ]
    messages = read({"messages": [SDK_SHOWN[0], {"role": "assistant", "parts": parts}]}).messages
    assert [m.role for m in messages] == ["user", "assistant", "tool", "tool", "assistant"]
    assert messages[1].reasoning == "Hm." and [call.name for call in messages[1].tool_calls] == ["look", "ask"]
    assert [m.is_error for m in messages[2:4]] == [None, True] and messages[3].content == "no"
    thought = {"role": "model", "parts": [{"text": "Hm.", "thought": True}, {"text": "Hi."}]}
    assert read({"contents": [GEMINI[0], thought]}).messages[1].reasoning == "Hm."


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
    trace = read({"messages": [{"role": "user", "content": text}, {"role": "assistant", "tool_calls": [call]}]})
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
    messages = read({"messages": events, "stop_reason": "done"}).messages
    assert [m.role for m in messages] == ["user", "assistant", "tool"]
    assert messages[1].reasoning == "Hm." and messages[1].tool_calls[0].name == "look"
    assert messages[2].is_error is True and messages[2].tool_call_ids == ("c1",)
