"""Rows of all forms, as `chat` reads them: by structure, whatever the columns are called."""

from __future__ import annotations

import json
from typing import Any

import pytest

from foretrace.core.trace import Message, Trace
from foretrace.rows.base import RowRef
from foretrace.sources.base import RowError
from foretrace.sources.chat import Chat
from sources.raw_rows import native_call

AT = RowRef(0, "rows.jsonl")
ASK = {"role": "user", "content": "Find it."}


def read(row: dict[str, Any], **settings: Any) -> Trace:
    trace = Chat(**settings).to_trace(row, AT)
    assert isinstance(trace, Trace)
    return trace


def sketch(trace: Trace) -> list[tuple[str, str, list[str]]]:
    return [(m.role, m.content, [c.name for c in m.tool_calls]) for m in trace.messages]


def agent(trace: Trace) -> list[Message]:
    return [m for m in trace.messages if m.role == "assistant"]


@pytest.mark.parametrize("completion", ["Here.", {"role": "assistant", "content": "Here."}, None])
def test_halves(completion: Any) -> None:
    said = completion or [{"role": "assistant", "content": "Here."}]
    for row in ({"messages": [ASK], "completion": said}, {"prompt": [ASK], "completion": said}):
        assert sketch(read(row)) == [("user", "Find it.", []), ("assistant", "Here.", [])]
    assert sketch(read({"prompt": "Find it.", "response": "Here."}))[0] == ("user", "Find it.", [])
    assert agent(read({"prompt": "Find it.", "completion": said}))[0].raw_index == 0


def test_a_conversation_in_input() -> None:
    """Whole, or with its last reply as a text in `output`."""
    said = {"role": "assistant", "content": "Here."}
    expected = [("user", "Find it.", []), ("assistant", "Here.", [])]
    assert sketch(read({"input": [ASK, said]})) == sketch(read({"input": [ASK], "output": "Here."})) == expected
    with pytest.raises(RowError, match="no column messages"):
        read({"input": "Find it.", "output": "Here."})


def test_attachments_are_part_of_the_text() -> None:
    """Claude's exported chats."""
    files = [{"file_name": "a.txt", "extracted_content": "The text of the file."}, {"file_name": "b.png"}]
    turns = [{"sender": "human", "text": "Look.", "attachments": files}, {"sender": "assistant", "text": "Nice."}]
    asked = read({"chat_messages": turns}).messages[0]
    assert asked.content == "Look.\n\na.txt\nThe text of the file."
    assert asked.extra["attachments"] == [{"file_name": "a.txt"}, {"file_name": "b.png"}]


def item(kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": kind, **fields}


def test_responses_items() -> None:
    """Calls are batched, one has no output, and reasoning comes after the call that it explains."""
    output = [
        item("function_call", call_id="c1", name="f", arguments='{"a": 1}'),
        item("reasoning", summary=[{"type": "summary_text", "text": "because"}]),
        item("function_call", call_id="c2", name="g", arguments=""),
        item("function_call_output", call_id="c2", output="two"),
        item("function_call_output", call_id="c1", output="one"),
        item("reasoning", summary=[{"type": "summary_text", "text": "so"}]),
        item("message", role="assistant", content=[{"type": "output_text", "text": "done"}]),
        item("function_call", call_id="c3", name="h", arguments="{}"),
        item("reasoning", summary=[]),
    ]
    asked = [{"role": "assistant", "content": "hello"}, {"role": "user", "content": "hi"}]
    row = {
        "id": "r1",
        "responses_create_params": {"instructions": "Be kind.", "input": asked, "tools": [{"name": "f"}]},
        "response": {"model": "m", "output": output},
        "reward": 1.0,
    }
    trace = read(row)
    assert [m.raw_index for m in trace.messages] == [None, None, None, 0, 2, 3, 4, 6, 7]
    assert [m.reasoning for m in agent(trace)] == [None, "because", None, "so", None]
    assert [m.train for m in agent(trace)] == [False, None, None, None, None]
    assert trace.provenance.model == "m" and trace.outcome.reward == 1.0 and [t.name for t in trace.tools] == ["f"]
    first = next(s for s in trace.steps() if s.calls and s.calls[0].name == "f")
    assert [m.content for m in first.observations] == ["one"]
    mapped = read({"log": {"steps": output}}, columns={"messages": "log.steps"})
    assert len(agent(mapped)) == 4


def test_turns_whose_text_is_elsewhere() -> None:
    """nebius: the system text is in `system_prompt`."""
    turns = [
        {"role": "system", "text": None, "system_prompt": "SETTING"}, {"role": "user", "text": "Issue"},
        {"role": "ai", "text": "Look.\n```\nls\n```"}, {"role": "user", "text": "a.py\nbash-$"},
    ]  # fmt: skip
    found = sketch(read({"trajectory": turns}))
    assert [(role, calls) for role, _, calls in found] == [
        ("system", []), ("user", []), ("assistant", ["bash"]), ("tool", []),
    ]  # fmt: skip
    assert found[0][1] == "SETTING" and found[3][1] == turns[3]["text"]


def test_wanted_calls() -> None:
    """xLAM: a question, and the calls that answer it."""
    answers = [{"name": "f", "arguments": {"a": 1}}, {"name": "g", "arguments": {}}]
    trace = read({"query": "How?", "answers": json.dumps(answers), "tools": json.dumps([{"name": "f"}])})
    assert sketch(trace) == [("user", "How?", []), ("assistant", "", ["f", "g"])] and len(trace.tools) == 1


def test_parallel_lists_and_a_system_column() -> None:
    row = {"system": "S", "conversations": {"from": ["human", "gpt"], "value": ["hi", "ho"]}}
    assert sketch(read(row)) == [("system", "S", []), ("user", "hi", []), ("assistant", "ho", [])]


@pytest.mark.parametrize("role", ["system", "System", "developer"])
def test_a_system_prompt_in_a_column_and_as_a_turn_is_kept_once(role: str) -> None:
    turns = [{"role": role, "content": "S"}, {"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}]
    trace = read({"system": "S", "messages": turns})
    assert [m.content for m in trace.messages] == ["S", "hi", "ho"] and not trace.extra


def test_a_transcript_as_one_text() -> None:
    text = "user: hi\nthere\nassistant: None\ntool: {}\nassistant: Your balance is 3.\nuser: bye"
    trace = read({"messages_display": text})
    assert [(m.role, m.content, m.raw_index) for m in trace.messages] == [
        ("user", "hi\nthere", 0),
        ("assistant", "None", 1),
        ("tool", "{}", 2),
        ("assistant", "Your balance is 3.", 3),
        ("user", "bye", 4),
    ]


def test_map_names_role_and_content() -> None:
    row = {"dialog": [{"who": "user", "said": "hi"}, {"who": "assistant", "said": "ho"}]}
    trace = read(row, columns={"messages": "dialog", "role": "who", "content": "said"})
    assert sketch(trace) == [("user", "hi", []), ("assistant", "ho", [])]
    with pytest.raises(RowError, match="message 0 has no role; it has said, who"):
        read(row, columns={"messages": "dialog", "role": "absent"})
    with pytest.raises(RowError, match="message 0 has the role 'guide'; known are system, developer, user"):
        read({"messages": [{"role": "guide", "content": "hi"}]})


def test_arguments_get_the_type_of_the_schema() -> None:
    properties = {"view_range": {"type": "array"}, "line": {"type": "integer"}, "path": {"type": "string"}}
    tool = {"type": "function", "function": {"name": "view", "parameters": {"properties": properties}}}
    text = "<function=view>\n<parameter=path>7</parameter>\n<parameter=view_range>[1, 5]</parameter>\n</function>"
    native = native_call(1, "view", line="12", view_range="all", path="7")
    row = {"tools": [tool], "messages": [ASK, {"role": "assistant", "content": text}, {"role": "tool", "content": "x"}]}
    (call,) = agent(read(row))[0].tool_calls
    assert json.loads(call.arguments) == {"path": "7", "view_range": [1, 5]} and call.repairs == ("typed",)
    row["messages"][1] = {"role": "assistant", "content": "", "tool_calls": [native]}
    (call,) = agent(read(row))[0].tool_calls
    assert json.loads(call.arguments) == {"line": 12, "view_range": "all", "path": "7"}
