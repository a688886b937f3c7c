"""The user's own rows: OpenAI, ShareGPT and text calls."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from foretrace.core.errors import UsageError
from foretrace.core.trace import Task
from foretrace.rows.base import Drop, RowRef
from foretrace.rows.files import FileRows
from foretrace.sources.base import RowError
from foretrace.sources.chat import Chat
from foretrace.sources.importing import import_rows
from sources.raw_rows import native_call, read_row, write_jsonl

AT = RowRef(0, "rows.jsonl")
USER = {"role": "user", "content": "hi"}


@pytest.mark.parametrize("other", [[USER, {"role": "assistant", "content": "b"}], "\n\nHuman: a\n\nAssistant: b"])
def test_two_conversations_are_not_guessed_between(other: Any) -> None:
    row = {"chosen": other, "rejected": other, "input": [{"role": "assistant", "content": "b"}]}
    with pytest.raises(RowError) as error:
        read_row(row)
    assert error.value.drop.reason == "several_conversations"
    assert "several columns hold a conversation: chosen, rejected" in str(error.value.drop)
    assert read_row(row, columns={"messages": "chosen"}).messages


def test_openai_messages() -> None:
    calls = [native_call(1, "a", x=1), native_call(2, "b")]
    tools = [{"type": "function", "function": {"name": "a", "description": "A", "parameters": {"type": "object"}}}]
    row = {
        "id": 7,
        "messages": [
            {"role": "developer", "content": "Be kind."},
            USER,
            {
                "role": "assistant",
                "content": None,
                "tool_calls": calls,
                "reasoning_content": "hm",
                "refusal": None,
                "mood": 3,
            },
            {"role": "tool", "tool_call_id": "call_1", "name": "a", "content": [{"type": "text", "text": "one"}]},
            {"role": "tool", "tool_call_id": "call_2", "content": "two", "is_error": True},
            {"role": "assistant", "content": "done", "weight": 0},
        ],
        "tools": tools,
        "resolved": 1,
        "reward": 0.5,
        "note": "mine",
    }
    trace = read_row(row, license="MIT")
    system, _, said, one, two, last = trace.messages
    assert (system.role, system.raw_role) == ("system", "developer")
    assert said.content == "" and said.reasoning == "hm" and said.extra == {"mood": 3}
    assert [(c.id, c.name, c.arguments) for c in said.tool_calls] == [
        ("call_1", "a", '{"x": 1}'),
        ("call_2", "b", "{}"),
    ]
    assert (one.content, one.tool_call_ids, one.extra) == ("one", ("call_1",), {"name": "a"})
    assert two.is_error is True and last.train is False
    assert [t.name for t in trace.tools] == ["a"]
    assert (trace.outcome.success, trace.outcome.reward) == (True, 0.5)
    assert trace.provenance.raw_id == "7" and trace.provenance.license == "MIT"
    assert trace.extra == {"note": "mine"}


@pytest.mark.parametrize(
    ("own", "given", "license"),
    [("MIT", None, "MIT"), ("MIT", "Apache-2.0", "Apache-2.0"), (["MIT"], None, None), (" ", None, None)],
)
def test_a_rows_own_license_counts_where_none_is_given(own: object, given: str | None, license: str | None) -> None:
    said = {"role": "assistant", "content": "done"}
    trace = read_row({"messages": [USER, said], "license": own}, license=given)
    assert trace.provenance.license == license
    assert trace.extra == ({} if license == own else {"license": own})


def test_calls_as_a_text_beside_the_content() -> None:
    said = {"role": "assistant", "content": None, "function_calls": "a(x=1)\nb(y='z')"}
    trace = read_row({"messages": [USER, said, {"role": "environment", "content": "1"}], "status": "Failed"})
    assert [(c.name, c.arguments) for c in trace.messages[1].tool_calls] == [("a", '{"x": 1}'), ("b", '{"y": "z"}')]
    assert trace.messages[2].role == "tool" and trace.outcome.success is False and not trace.extra
    trace = read_row({"messages": [USER, said], "status": "archived"})
    assert trace.outcome.success is None and trace.extra == {"status": "archived"}
    trace = read_row({"messages": [USER, said], "status": 0})
    assert trace.outcome.success is None and trace.extra == {"status": 0}


def test_sharegpt() -> None:
    call = json.dumps({"name": "find", "arguments": {"q": "x"}})
    turns = [("system", "s"), ("human", "h"), ("function_call", call), ("observation", "o"), ("gpt", "g")]
    trace = read_row({"conversations": [{"from": f, "value": v} for f, v in turns]})
    assert [m.role for m in trace.messages] == ["system", "user", "assistant", "tool", "assistant"]
    assert trace.messages[2].content == call and trace.messages[2].tool_calls[0].arguments == '{"q": "x"}'
    assert trace.messages[4].raw_role == "gpt"
    with pytest.raises(RowError, match="bad_tool_call"):
        read_row({"conversations": [{"from": "function_call", "value": "no call"}]})


def test_arguments_as_object_and_broken() -> None:
    def call_of(arguments: Any) -> Any:
        function = {"name": "f", "arguments": arguments}
        return read_row(
            {"messages": [{"role": "assistant", "content": "", "tool_calls": [{"function": function, "sig": "s"}]}]}
        )

    assert call_of({"a": [1]}).messages[0].tool_calls[0].arguments == '{"a": [1]}'
    assert call_of(None).messages[0].tool_calls[0].arguments == "{}"
    broken = call_of('{"a": "cut').messages[0].tool_calls[0]
    assert broken.error and broken.extra == {"sig": "s", "raw": '{"a": "cut'}


def test_map_names_columns() -> None:
    row = {
        "log": json.dumps([USER, {"role": "assistant", "content": "x"}]),
        "ok": "true",
        "repo": "a/b",
        "task": "t1",
        "who": "m",
    }
    columns = {"messages": "log", "success": "ok", "instance": "task", "model": "who"}
    trace = read_row(row, columns=columns)
    assert trace.outcome.success is True and trace.provenance.model == "m"
    assert (trace.task.id, trace.task.group) == ("t1", "a/b")
    assert trace.extra == {}
    with pytest.raises(UsageError, match="unknown field 'nope'"):
        Chat({"nope": "x"})


def test_a_number_names_a_task_only_within_its_dataset() -> None:
    def task(number: int, system: str, asked: str) -> Task:
        turns = [
            {"role": "system", "content": system},
            {**USER, "content": asked},
            {"role": "assistant", "content": "x"},
        ]
        return read_row({"messages": turns, "task_id": number}).task

    first = task(3, "Airline rules.", "Cancel my flight.")
    assert first == task(3, "Airline rules.", "Hi, I want to cancel.")  # a simulated user says it in other words
    other = task(3, "Shop rules.", "Send it back.")
    assert first.id != other.id and first.group == other.group == "3"


@pytest.mark.parametrize(
    ("value", "expected"), [(True, True), (0, False), (1.0, True), ("False", False), (None, None), (float("nan"), None)]
)
def test_success_values(value: Any, expected: bool | None) -> None:
    assert read_row({"messages": [{"role": "assistant", "content": "x"}], "success": value}).outcome.success is expected


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"text": "x"}, "missing_column"),
        ({"messages": None}, "null_messages"),
        ({"messages": []}, "empty_trace"),
        ({"messages": "[{"}, "bad_json"),
        ({"messages": "[" * 100_000}, "nested_too_deep"),
        ({"messages": 5}, "wrong_column_type"),
        ({"messages": ["hi"]}, "wrong_column_type"),
        ({"messages": [{"role": "wizard", "content": "x"}]}, "unknown_role"),
        ({"messages": [{"role": "assistant", "content": "x", "tool_calls": [{"id": "1"}]}]}, "bad_tool_call"),
        ({"messages": [USER]}, "empty_trace"),
        ({"messages": [{"role": None, "content": "x"}]}, "unknown_role"),
        ({"messages": [{"role": "assistant", "content": [{"type": "hologram", "body": "x"}]}]}, "unknown_part"),
        ({"messages": [{"role": "assistant", "content": "x", "tool_calls": {"a": 1}}]}, "wrong_column_type"),
    ],
)
def test_rows_that_are_refused(row: dict[str, Any], reason: str) -> None:
    try:
        result = Chat().to_trace(row, AT)
    except RowError as error:
        result = error.drop
    assert isinstance(result, Drop) and result.reason == reason


def test_a_mapped_column_that_is_missing_is_counted(tmp_path: Path) -> None:
    rows = [{"messages": [USER, {"role": "assistant", "content": "x"}], "ok": True}, {"log": [USER], "ok": False}]
    columns = {"messages": "log", "success": "ok", "model": "who"}
    file = write_jsonl(tmp_path / "rows.jsonl", rows)
    report = import_rows(Chat(columns), [FileRows(file)], tmp_path / "out")
    assert report.drops == {"missing_column": 1, "empty_trace": 1}, "and a conversation without the agent"
    report = import_rows(Chat({"success": "ok", "model": "who"}), [FileRows(file)], tmp_path / "other")
    assert report.total.counts.unclear == {"model": 1} and report.success["true"] == 1


SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}}
DECLARED = [{"functionDeclarations": [{"name": "f", "description": "d", "parameters": {
    "type": "OBJECT", "properties": {"n": {"type": "INTEGER"}}}}, {"name": "g"}]}]  # fmt: skip
SPECS = [{"toolSpec": {"name": "f", "description": "d", "inputSchema": {"json": SCHEMA}}}, {"cachePoint": {}}]
ASKED = [{"role": "user", "content": "Go."}]


@pytest.mark.parametrize(
    ("columns", "names"),
    [
        ({"toolConfig": {"tools": SPECS}}, ["f"]), ({"tool_config": json.dumps({"tools": SPECS})}, ["f"]),
        ({"tools": DECLARED}, ["f", "g"]), ({"tools": json.dumps(DECLARED)}, ["f", "g"]),
        ({"config": {"tools": DECLARED}}, ["f", "g"]), ({"tools": {"tools": SPECS}}, ["f"]),
        ({"tools": [{"name": "f", "inputSchema": SCHEMA}]}, ["f"]), ({"tools": {"f": {"inputSchema": SCHEMA}}}, ["f"]),
        ({"tools": {"type": "object"}}, []), ({"tools": [None, 5, {"toolSpec": 5}, {"functionDeclarations": 5}]}, []),
    ],
)  # fmt: skip
def test_tools_of_bedrock_and_gemini(columns: dict[str, Any], names: list[str]) -> None:
    call = {"type": "function", "id": "c", "function": {"name": "f", "arguments": '{"n": "5"}'}}
    row = {"messages": [*ASKED, {"role": "assistant", "content": None, "tool_calls": [call]}], **columns}
    trace = read_row(row)
    assert [tool.name for tool in trace.tools] == names
    if names:
        assert trace.messages[1].tool_calls[0].arguments == '{"n": 5}' and "properties" in trace.tools[0].parameters
