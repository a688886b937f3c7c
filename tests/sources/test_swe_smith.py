"""SWE-smith rows in their three encodings."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from foretrace.core.trace import Trace
from foretrace.rows.base import RowRef
from foretrace.sources.base import RowError
from foretrace.sources.chat import Chat
from foretrace.sources.swe_smith import SweSmith, find_repository
from sources.raw_rows import (
    INSTANCE,
    REWRITTEN,
    SUBMIT,
    native_call,
    swe_row,
    ticks_messages,
    tool_messages,
    xml_messages,
)

AT = RowRef(3, "rows.jsonl")


def read(row: dict[str, Any], at: RowRef = AT) -> Trace:
    trace = SweSmith().to_trace(row, at)
    assert isinstance(trace, Trace)
    return trace


def calls(trace: Trace) -> list[tuple[str, Any]]:
    return [(c.name, msgspec.json.decode(c.arguments)) for m in trace.messages for c in m.tool_calls]


@pytest.mark.parametrize("as_text", [True, False], ids=["json string", "list"])
@pytest.mark.parametrize("split", ["tool", "xml", "ticks"])
def test_the_three_encodings_say_the_same(split: str, as_text: bool) -> None:
    make = {"tool": tool_messages, "xml": xml_messages, "ticks": ticks_messages}[split]
    messages = make(["ls -la", "cat x.py"])
    trace = read(swe_row(json.dumps(messages) if as_text else messages))
    shell = [("bash", {"command": "ls -la"}), ("bash", {"command": "cat x.py"})]
    assert calls(trace) == [*shell, *[("submit", {})] * (2 if split == "tool" else 1)]
    assert trace.provenance.protocol == trace.provenance.split == split
    assert trace.key == f"swe_smith@local/{split}:{INSTANCE}.0000"
    assert trace.outcome.status == "done" and trace.outcome.success is True
    first = next(trace.steps())
    assert [(m.prefix, m.content) for m in first.observations] == [("OBSERVATION:\n", "ran ls -la")]
    assert all(m.author == "environment" for step in trace.steps() for m in step.observations)
    assert [m.role for m in trace.messages[:2]] == ["system", "user"]
    assert trace.task.group == "acme/gadget" and trace.task.id == INSTANCE
    assert trace.extra == {"patch": "diff --git a/x b/x"}
    assert (trace.provenance.raw_file, trace.provenance.raw_row) == ("rows.jsonl", 3)


def test_tool_history_keeps_ids_and_what_the_record_has_no_field_for() -> None:
    messages = tool_messages(["ls"])
    messages[2].update(thought="I had another thought.", content=None, new_field={"x": 1})
    messages[-1]["cache_control"] = {"type": "ephemeral"}
    trace = read(swe_row(messages))
    said, result = trace.messages[2:4]
    assert said.content == "" and said.tool_calls[0].id == "call_0"
    assert said.extra["thought"] == "I had another thought." and said.extra["new_field"] == {"x": 1}
    assert said.extra["action"] == "ls"
    assert result.tool_call_ids == ("call_0",)
    assert "thought" not in trace.messages[4].extra  # the same text as the content
    assert trace.messages[-1].extra["cache_control"] == {"type": "ephemeral"}


def test_double_submit_is_not_the_end() -> None:
    messages = tool_messages(["ls"])
    messages.insert(-2, {"role": "user", "content": "Please review first."})
    trace = read(swe_row(messages))
    assert [n for n, _ in calls(trace)] == ["bash", "submit", "submit"]
    assert trace.outcome.exit_reason == "submitted" and all(m.train is None for m in trace.messages)


@pytest.mark.parametrize("reason", ["cost limit", "context", "total execution time"])
def test_an_attempt_that_ended_on_a_limit(reason: str) -> None:
    trace = read(swe_row(tool_messages(["ls"], last=f"Exit due to {reason}")))
    assert trace.outcome.status == "limit" and trace.outcome.success is False
    assert trace.outcome.exit_reason == reason.replace(" ", "_") and not trace.outcome.fabricated
    assert trace.messages[-1].train is False and trace.messages[-1].author == "environment"
    assert all(m.train is None for m in trace.messages[:-1])


def test_the_rewritten_xml_ending_is_marked() -> None:
    trace = read(swe_row(xml_messages(["ls"], last=f"{REWRITTEN}\n\n{SUBMIT}")))
    assert trace.outcome.status == "limit" and trace.outcome.success is False and trace.outcome.fabricated
    assert [m.train for m in trace.messages][-1] is False
    assert all(m.train is None for m in trace.messages[:-1])


@pytest.mark.parametrize(
    ("instance", "group"),
    [
        ("acme__gadget.0123abcd.func_pm__x1", "acme/gadget"),
        ("acme__gadget.0123abcd.pr_77", "acme/gadget"),
        ("big-org__my.lib-x.0123abcd.lm_rewrite__k_9", "big-org/my.lib-x"),
        ("django__django-11099", "django/django"),
        ("a__b__c-12", "a/b__c"),
        ("plain", "plain"),
        ("_" * 100_000, "_" * 100_000),
    ],
)
def test_repository_of_an_instance(instance: str, group: str) -> None:
    assert find_repository(instance) == group


def test_tools_of_the_xml_system_text() -> None:
    tools = read(swe_row(xml_messages(["ls"]))).tools
    assert [(tool.name, tool.description) for tool in tools] == [("bash", "run a shell line"), ("submit", "hand in")]
    schema = json.loads(tools[0].parameters)
    assert schema["required"] == ["command"] and schema["properties"]["command"]["type"] == "string"
    messages = xml_messages(["ls"])
    messages[0]["content"] = "---- BEGIN FUNCTION #1: x ----\n" * 30_000 + "\n" * 100_000
    assert read(swe_row(messages)).tools == ()


def test_a_row_without_an_instance_is_refused() -> None:
    with pytest.raises(RowError, match="missing_column"):
        read({**swe_row(xml_messages(["ls"])), "instance_id": None})


def make_row(*names: str, **more: Any) -> dict[str, Any]:
    calls = [native_call(n, name) for n, name in enumerate(names)]
    turns = [{"role": "user", "content": "Go."}, {"role": "assistant", "content": "Yes.", "tool_calls": calls}]
    return {"messages": turns, "instance_id": "o__r.0123abcd.bug__x", **more}


@pytest.mark.parametrize("source", [Chat(), SweSmith()])
def test_tools_of_swe_agent(source: Any) -> None:
    trace = source.to_trace(make_row("str_replace_editor", "bash", "submit"), RowRef(0))
    assert isinstance(trace, Trace)
    assert [tool.name for tool in trace.tools] == ["bash", "str_replace_editor", "submit"]
    assert trace.provenance.transforms == ("tools of swe_agent",)
    properties = json.loads(trace.tools[1].parameters)["properties"]
    assert properties["view_range"] == {"type": "array", "items": {"type": "integer"}}
