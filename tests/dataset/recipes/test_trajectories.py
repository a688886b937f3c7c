"""Whole attempts as chat templates and the `datasets` library take them."""

from __future__ import annotations

from pathlib import Path

import datasets
import msgspec
import pytest

from dataset.little import build, calls, rows, runs, says, seen, system, trace, user
from foretrace.core.trace import Message, ToolCall, ToolSpec, Trace


def test_trajectory_results_name_their_calls(tmp_path: Path) -> None:
    """Calls without ids get some, and each result names the call that it answers, and its tool."""
    two = says("", tool_calls=runs("ls").tool_calls + runs("id").tool_calls)
    build(tmp_path, trace("a", user("x"), two, seen("1"), seen("2"), runs("pwd"), seen("3"), says("end")))
    messages = next(rows(tmp_path / "d", "trajectories"))["messages"]
    ids = [c["id"] for m in messages for c in m.get("tool_calls", ())]
    assert len(set(ids)) == 3 and all(ids)
    assert [(m["tool_call_id"], m["name"]) for m in messages if m["role"] == "tool"] == [(own, "bash") for own in ids]
    assert [t["function"]["name"] for t in next(rows(tmp_path / "d", "trajectories"))["tools"]] == ["bash"]


@pytest.mark.parametrize(("text", "first"), [("", "user"), ("Be brief.", "system")])
def test_an_empty_system_message_is_left_out(tmp_path: Path, text: str, first: str) -> None:
    build(tmp_path, trace("a", system(text), user("x"), runs("pwd"), seen("3"), says("end")))
    (row,) = rows(tmp_path / "d", "trajectories")
    assert row["messages"][0]["role"] == first and row["steps"] == 2


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        ('{"n": 18446744073709551615, "m": -9223372036854775808}', {"n": 2**64 - 1, "m": -(2**63)}),
        ('{"n": [18446744073709551616, -9223372036854775809]}', {"n": [str(2**64), str(-(2**63) - 1)]}),
        ("ls -la", "ls -la"),
        ('["a", "b"]', ["a", "b"]),
    ],
)
def test_datasets_reads_any_arguments(tmp_path: Path, arguments: str, shown: object) -> None:
    """Its reader takes 64 bits at most: a longer number is written as text."""
    build(tmp_path, trace("a", user("x"), calls("go", arguments), seen("1"), says("end")))
    loaded = datasets.load_dataset(str(tmp_path / "d"), "trajectories", cache_dir=str(tmp_path / "cache"))
    (split,) = loaded.values()
    assert split[0]["messages"][1]["tool_calls"][0]["function"] == {"name": "go", "arguments": shown}


def generated(*messages: Message) -> Trace:
    one = trace("a", user("x"), *messages, tools=(ToolSpec(name="python"),))
    return msgspec.structs.replace(one, provenance=msgspec.structs.replace(one.provenance, origin="generated"))


CODE = "So:\n<code>\nprint(1)\n</code>"
CALL = ToolCall(id="a", name="python", arguments='{"code": "print(1)"}', span=(4, len(CODE)))
WRITTEN = says(CODE, tool_calls=(CALL,))
ANSWER = Message(role="tool", author="environment", content="1", tool_call_ids=("a",))


def test_a_generated_trace_keeps_its_text_and_offers_no_tools(tmp_path: Path) -> None:
    """Its instructions ask for calls in the text: a template that listed tools would contradict them."""
    build(tmp_path, generated(WRITTEN, ANSWER, says("end")))
    row = next(rows(tmp_path / "d", "trajectories"))
    assert row["tools"] == []
    assert [(m["role"], m["content"]) for m in row["messages"]] == [
        ("user", "x"), ("assistant", CODE), ("user", "1"), ("assistant", "end"),
    ]  # fmt: skip
    assert [m["trained"] for m in row["messages"]] == [False, True, False, True]


def test_results_within_the_agents_own_turn_have_no_chat_form(tmp_path: Path) -> None:
    within = msgspec.structs.replace(ANSWER, injected=True)
    manifest = build(tmp_path, generated(WRITTEN, within, msgspec.structs.replace(says("end"), continues=True)))
    assert manifest["drops"]["trajectories"] == {"results_within_a_turn": 1}
    assert not list(rows(tmp_path / "d", "trajectories"))


def test_a_result_of_several_calls_stands_once_for_each(tmp_path: Path) -> None:
    two = says("", tool_calls=tuple(ToolCall(id=own, name="bash") for own in ("a", "b")))
    both = msgspec.structs.replace(seen("1"), tool_call_ids=("a", "b"))
    build(tmp_path, trace("a", user("x"), two, both, says("end")))
    messages = next(rows(tmp_path / "d", "trajectories"))["messages"]
    assert [m["tool_call_id"] for m in messages if m["role"] == "tool"] == ["a", "b"]
