"""The user's own rows: OpenAI, ShareGPT and text calls."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import foretrace
from foretrace.core.errors import UsageError, render_parts
from foretrace.core.store import read_traces
from foretrace.core.trace import Trace
from foretrace.rows.base import Drop, RowRef
from foretrace.rows.files import FileRows
from foretrace.sources.base import RowError
from foretrace.sources.chat import Chat
from foretrace.sources.importing import import_source
from sources.raw_rows import native_call, write_jsonl

AT = RowRef(0, "rows.jsonl")
USER = {"role": "user", "content": "hi"}


def read(row: dict[str, Any], **settings: Any) -> Trace:
    trace = Chat(**settings).to_trace(row, AT)
    assert isinstance(trace, Trace)
    return trace


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
    trace = read(row, license="MIT")
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
    trace = read({"messages": [USER, said], "license": own}, license=given)
    assert trace.provenance.license == license
    assert trace.extra == ({} if license == own else {"license": own})


def test_sharegpt() -> None:
    call = json.dumps({"name": "find", "arguments": {"q": "x"}})
    turns = [("system", "s"), ("human", "h"), ("function_call", call), ("observation", "o"), ("gpt", "g")]
    trace = read({"conversations": [{"from": f, "value": v} for f, v in turns]})
    assert [m.role for m in trace.messages] == ["system", "user", "assistant", "tool", "assistant"]
    assert trace.messages[2].content == call and trace.messages[2].tool_calls[0].arguments == '{"q": "x"}'
    assert trace.messages[4].raw_role == "gpt"
    with pytest.raises(RowError, match="bad_tool_call"):
        read({"conversations": [{"from": "function_call", "value": "no call"}]})


def test_older_function_call_and_empty_arguments() -> None:
    said = {"role": "assistant", "content": "", "function_call": {"name": "now", "arguments": ""}}
    trace = read({"messages": [USER, said, {"role": "function", "name": "now", "content": "12:00"}]})
    (call,) = trace.messages[1].tool_calls
    assert (call.name, call.arguments, call.error) == ("now", "{}", None)
    assert trace.messages[2].role == "tool" and trace.messages[2].raw_role == "function"


def test_arguments_as_object_and_broken() -> None:
    def call_of(arguments: Any) -> Any:
        function = {"name": "f", "arguments": arguments}
        return read(
            {"messages": [{"role": "assistant", "content": "", "tool_calls": [{"function": function, "sig": "s"}]}]}
        )

    assert call_of({"a": [1]}).messages[0].tool_calls[0].arguments == '{"a": [1]}'
    assert call_of(None).messages[0].tool_calls[0].arguments == "{}"
    broken = call_of('{"a": "cut').messages[0].tool_calls[0]
    assert broken.error and broken.extra == {"sig": "s", "raw": '{"a": "cut'}


@pytest.mark.parametrize(
    "marker",
    [
        "OBSERVATION:\n", "Observation: ", "EXECUTION RESULT of [bash]:\n", "Execution result:\n",
        "The output of the OS:\n", "<returncode>",
        "<tool_response>",
    ],
)  # fmt: skip
def test_observations_that_arrive_as_user(marker: str) -> None:
    text = f"{marker}0\nrest"
    trace = read({"messages": [USER, {"role": "assistant", "content": "go"}, {"role": "user", "content": text}]})
    observed = trace.messages[2]
    assert observed.role == "tool" and observed.author == "environment" and observed.raw_role == "user"
    assert observed.prefix + observed.content == text
    first = read({"messages": [{"role": "user", "content": text}, {"role": "assistant", "content": "go"}]})
    assert first.messages[0].role == "user"


def test_calls_written_as_text() -> None:
    hermes = 'I look.\n<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'
    xml = "I look.\n<function=f>\n<parameter=a>1</parameter>\n</function>"
    for text in (hermes, xml):
        (call,) = read({"messages": [USER, {"role": "assistant", "content": text}]}).messages[1].tool_calls
        assert call.name == "f" and call.span == (8, len(text))
    both = {"role": "assistant", "content": hermes, "tool_calls": [native_call(1, "native")]}
    assert [c.name for c in read({"messages": [both]}).messages[0].tool_calls] == ["native"]


def test_map_names_columns() -> None:
    row = {
        "log": json.dumps([USER, {"role": "assistant", "content": "x"}]),
        "ok": "true",
        "repo": "a/b",
        "task": "t1",
        "who": "m",
    }
    columns = {"messages": "log", "success": "ok", "instance": "task", "model": "who"}
    trace = read(row, columns=columns)
    assert trace.outcome.success is True and trace.provenance.model == "m"
    assert (trace.task.id, trace.task.group) == ("t1", "a/b")
    assert trace.extra == {}
    with pytest.raises(UsageError, match="unknown field 'nope'"):
        Chat({"nope": "x"})


@pytest.mark.parametrize(
    ("value", "expected"),
    [(True, True), (0, False), (1.0, True), ("False", False), (None, None), (float("nan"), None)],
)
def test_success_values(value: Any, expected: bool | None) -> None:
    assert read({"messages": [{"role": "assistant", "content": "x"}], "success": value}).outcome.success is expected


@pytest.mark.parametrize("name", ["is_resolved", "correct", "pass", "tests_passed"])
def test_columns_of_success(name: str) -> None:
    said = [{"role": "assistant", "content": "x"}]
    trace = read({"messages": said, name: False, "reward": 1.0})
    assert trace.outcome.success is False and name not in trace.extra
    answer = read({"messages": said, name: 2})
    assert answer.outcome.success is None and answer.extra[name] == 2


def test_columns_of_other_types_stay_in_extra() -> None:
    said = [{"role": "assistant", "content": "x"}]
    row = {"messages": said, "id": {"a": 1}, "model": ["m"], "reward": "high", "tools": "bash, python", "repo": None}
    assert read(row).extra == {"id": {"a": 1}, "model": ["m"], "reward": "high", "tools": "bash, python"}


def test_rows_without_ids_are_known_by_content_and_not_siblings_by_accident(tmp_path: Path) -> None:
    """Files of one name in two folders: many data sets call theirs rows.jsonl."""
    rows = [{"messages": [{"role": "assistant", "content": f"x{n}"}]} for n in range(3)]
    other = {"messages": [USER, *rows[0]["messages"]]}
    files = []
    for name, some in (("a", rows), ("b", [other, *rows])):
        (tmp_path / name).mkdir()
        files.append(FileRows(write_jsonl(tmp_path / name / "rows.jsonl", some)))
    report = import_source(Chat(), files, tmp_path / "out")
    assert (report.traces, report.already_done, dict(report.drops)) == (4, 3, {})
    assert len({t.task.id for t in read_traces(tmp_path / "out")}) == 4


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"text": "x"}, "missing_column"),
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


def test_what_is_no_yes_or_no_is_counted_and_kept(tmp_path: Path) -> None:
    said = [USER, {"role": "assistant", "content": "x"}]
    values = [{"passed": 12}, {"resolved": "yes"}, {"success": " No "}, {"reward": 1.0}, {"reward": 0.5}, {"score": 1}]
    rows = write_jsonl(tmp_path / "rows.jsonl", [{"messages": said, **value} for value in values])
    report = import_source(Chat(), [FileRows(rows)], tmp_path / "out")
    assert report.success == {"true": 2, "false": 1, "unknown": 3} and not report.drops
    counts = report.total.counts
    assert counts.unclear == {"success": 1} and "has no success: passed is 12" in counts.unclear_rows[0]
    (unclear,) = [trace for trace in read_traces(tmp_path / "out") if "unclear" in trace.extra]
    assert unclear.extra["passed"] == 12


def test_the_model_may_stand_in_the_metadata() -> None:
    said = [USER, {"role": "assistant", "content": "x"}]
    assert read({"messages": said, "metadata": {"model": "m", "run": 1}}).provenance.model == "m"


def test_a_mapped_column_that_is_missing_is_counted(tmp_path: Path) -> None:
    rows = [{"messages": [USER, {"role": "assistant", "content": "x"}], "ok": True}, {"log": [USER], "ok": False}]
    columns = {"messages": "log", "success": "ok", "model": "who"}
    file = write_jsonl(tmp_path / "rows.jsonl", rows)
    report = import_source(Chat(columns), [FileRows(file)], tmp_path / "out")
    assert report.drops == {"missing_column": 1, "empty_trace": 1}, "and a conversation without the agent"
    report = import_source(Chat({"success": "ok", "model": "who"}), [FileRows(file)], tmp_path / "other")
    assert report.total.counts.unclear == {"model": 1} and report.success["true"] == 1


def test_counted_rows_of_several_files_are_told_apart(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("b/run", "a/run", "c")]
    for number, folder in enumerate(folders):
        folder.mkdir(parents=True)
        said = [USER, {"role": "assistant", "content": f"{number}"}]
        write_jsonl(folder / "rows.jsonl", [{"id": 0, "messages": said}, {"id": "row_1", "messages": said}])
    keys: list[set[str]] = []
    for out, paths in (("one", folders), ("two", folders[::-1])):
        report = foretrace.import_source("chat", paths, out=tmp_path / out)
        assert report.traces == 6 and not report.drops
        keys.append({trace.key for trace in read_traces(tmp_path / out)})
    for folder in folders:  # by commands of their own
        assert foretrace.import_source("chat", folder, out=tmp_path / "three").traces == 2
    keys.append({trace.key for trace in read_traces(tmp_path / "three")})
    assert keys[0] == keys[1] == keys[2] and str(tmp_path) not in str(keys[0])


def test_rows_of_one_id_are_not_told_to_replace_each_other(tmp_path: Path) -> None:
    rows = [{"id": "same", "messages": [USER, {"role": "assistant", "content": f"{n}"}]} for n in range(5)]
    report = import_source(Chat(), [FileRows(write_jsonl(tmp_path / "rows.jsonl", rows))], tmp_path / "out")
    assert (report.traces, dict(report.drops)) == (1, {"key_conflict": 4})
    assert "ids of their own" in report.examples["key_conflict"][0] and "replace" not in str(report.examples)


def test_real_chat_rows(shared: Path, tmp_path: Path) -> None:
    for folder in ("swe_gym_openhands", "swe_play", "agenttuning_db", "eto", "code_feedback"):
        path = shared / "data" / "traces" / folder / "rows.jsonl"
        report = import_source(Chat(), [FileRows(path)], tmp_path / folder)
        assert report.traces == report.rows > 0
        for trace, raw in zip(
            sorted(read_traces(tmp_path / folder), key=lambda t: t.provenance.raw_row or 0),
            FileRows(path).read(),
            strict=True,
        ):
            assert isinstance(raw.value, dict)
            turns = raw.value.get("messages") or raw.value["conversations"]
            texts = [t.get("content", t.get("value")) for t in turns]
            assert [m.prefix + m.content for m in trace.messages] == [
                "".join(p["text"] for p in t if "text" in p) if isinstance(t, list) else t or "" for t in texts
            ]


def test_a_row_without_messages_says_what_it_has() -> None:
    with pytest.raises(RowError) as caught:
        read({"text": "x", "dialogue": []})
    drop = caught.value.drop
    assert (drop.reason, drop.detail) == ("missing_column", "there is no column messages; the row has dialogue, text")
    assert render_parts(drop.remedy) == "name the one that holds the messages: columns={'messages': 'COLUMN'}"


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
    trace = Chat().to_trace(row, RowRef(0))
    assert isinstance(trace, Trace) and [tool.name for tool in trace.tools] == names
    if names:
        assert trace.messages[1].tool_calls[0].arguments == '{"n": 5}' and "properties" in trace.tools[0].parameters


def test_tools_of_a_logged_request() -> None:
    body = {"messages": [{"role": "user", "content": [{"text": "Go."}]}], "toolConfig": {"tools": SPECS}}
    said = {"output": {"message": {"role": "assistant", "content": [{"text": "Gone."}]}}}
    row = {"input": {"inputBodyJson": body}, "output": {"outputBodyJson": said}}
    trace = Chat().to_trace(row, RowRef(0))
    assert isinstance(trace, Trace) and [tool.name for tool in trace.tools] == ["f"]
