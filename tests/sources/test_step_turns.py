"""Rows of home-made loops, of LangChain and browser-use, and chats that people take home."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from foretrace.core.trace import Trace
from foretrace.rows.base import RowRef
from foretrace.sources.base import RowError
from foretrace.sources.chat import Chat
from foretrace.sources.exported_chats import find_exported_chat


def read(row: dict[str, Any]) -> Trace:
    trace = Chat().to_trace(row, RowRef(0))
    assert isinstance(trace, Trace)
    return trace


def outline(trace: Trace) -> list[tuple[str, str]]:
    return [(m.role, m.content or ", ".join(f"{c.name} {c.arguments}" for c in m.tool_calls)) for m in trace.messages]


def calls(trace: Trace) -> list[tuple[str, dict[str, Any]]]:
    return [(c.name, json.loads(c.arguments)) for m in trace.messages for c in m.tool_calls]


@pytest.mark.parametrize(
    ("row", "found"),
    [
        ({"task": "T", "trajectory": [{"thought": "t", "action": "search[x]", "observation": "o"}]},
         [("search", {"input": "x"})]),
        ({"question": "Q", "steps": json.dumps([{"tool": "look", "tool_input": {"q": 1}, "observation": None},
                                                {"tool": "look", "tool_input": "", "observation": "o"}])},
         [("look", {"q": 1}), ("look", {})]),
        ({"goal": "G", "actions": [{"action": "go", "args": {"url": "u"}, "result": "ok"}]}, [("go", {"url": "u"})]),
        ({"task": "T", "history": [{"thought": "t", "command": "ls", "output": "a"}]}, [("bash", {"command": "ls"})]),
        ({"task": "T", "steps": [{"thought": "t", "action": "go north", "observation": "o"}]},
         [("act", {"input": "go north"})]),
        ({"task": "T", "steps": [{"action": {"name": "f", "arguments": '{"n": 1}'}, "observation": "o"}]},
         [("f", {"n": 1})]),
        ({"input": "Q", "intermediate_steps": [[{"tool": "f", "tool_input": {"n": 1}, "log": "l"}, "o"]]},
         [("f", {"n": 1})]),
        ({"input": "Q", "intermediate_steps": [[["f", '{"n": 1}', "l"], "o"]], "output": "A"}, [("f", {"n": 1})]),
        ({"history": [{"model_output": {"current_state": {"next_goal": "g"}, "action": [{"click": {"index": 1}}]},
                       "result": [{"error": "gone"}], "state": {}}]}, [("click", {"index": 1})]),
    ],
)  # fmt: skip
def test_steps(row: dict[str, Any], found: list[tuple[str, dict[str, Any]]]) -> None:
    trace = read(row)
    assert calls(trace) == found
    assert any(m.role == "tool" for m in trace.messages)


def test_the_answer_and_what_failed() -> None:
    steps = [[{"tool": "f", "tool_input": "", "log": "l"}, {"a": 1}]]
    row = {"input": "Q", "output": "A", "intermediate_steps": steps}
    assert outline(read(row)) == [("user", "Q"), ("assistant", "l"), ("tool", '{"a": 1}'), ("assistant", "A")]
    step = {"model_output": {"action": [{"a": {}}, {"b": None, "c": {}}]}, "result": [{"error": "gone"}]}
    last = read({"history": [step]}).messages[-1]
    assert last.is_error is True and last.tool_call_ids == ("step_0.0", "step_0.1")


@pytest.mark.parametrize(
    "row",
    [
        {"steps": [{"action": "Mix it.", "result": "dough"}]}, {"steps": [{"action": "mix(it)", "result": "x"}]},
        {"goal": "Test", "steps": [{"action": "Click", "input": "button", "result": "ok"}]},
        {"title": "Login", "steps": [{"action": "Press (twice) on login", "expected": "page", "result": "passed"}]},
        {"actions": [{"action": "open", "args": {}}]}, {"steps": [{"tool": "saw"}]}, {"steps": [1, {"action": "f[x]"}]},
        {"history": [["Hi", "Hello"]]}, {"trajectory": [[1, 2]]},
        {"task": "build", "steps": [{"command": "make", "output": "ok"}, {"command": "make test", "output": "ok"}]},
        {"task": "build", "steps": [{"command": "make", "output": "ok", "log": "13:01 started"}]},
        {"task": "ci", "steps": [{"name": "b", "action": "actions/checkout", "args": {"ref": "x"}, "result": "ok"}]},
        {"query": "login test", "steps": [{"action": "click", "args": {"id": "x"}, "result": "ok"}]},
    ],
)  # fmt: skip
def test_words_about_actions_are_no_steps(row: dict[str, Any]) -> None:
    with pytest.raises(RowError):
        read(row)


def node(own: str, parent: str | None, children: list[str], message: dict[str, Any] | None) -> dict[str, Any]:
    return {"id": own, "parent": parent, "children": children, "message": message}


def said(role: str, text: str, **more: Any) -> dict[str, Any]:
    return {"author": {"role": role}, "content": {"content_type": "text", "parts": [text]}, **more}


TREE = {
    "r": node("r", None, ["u"], None), "u": node("u", "r", ["a", "b"], said("user", "Sum?", create_time=1767261600.0)),
    "a": node("a", "u", [], said("assistant", "No.")),
    "b": node("b", "u", ["c"], {"author": {"role": "assistant"}, "id": "b", "recipient": "python",
                                "content": {"content_type": "code", "text": "1 + 1"}, "create_time": 1767261602.0}),
    "c": node("c", "b", ["d"], {"author": {"role": "tool", "name": "python"},
                                "content": {"content_type": "execution_output", "text": "2"}}),
    "d": node("d", "c", [], said("assistant", "2", recipient="all")),
}  # fmt: skip


def test_a_chat_of_chatgpt() -> None:
    trace = read({"title": "t", "mapping": TREE, "current_node": "d"})
    assert outline(trace) == [
        ("user", "Sum?"),
        ("assistant", 'python {"input": "1 + 1"}'),
        ("tool", "2"),
        ("assistant", "2"),
    ]
    assert trace.messages[1].model_s == 2.0 and trace.extra["title"] == "t"
    assert trace.extra["mapping"]["a"]["message"]["content"]["parts"] == ["No."], "the other branch"
    assert outline(read({"mapping": TREE}))[-1] == ("assistant", "2"), "the last line where none is named"
    loop = {"a": node("a", "b", ["b"], said("user", "x")), "b": node("b", "a", ["a"], said("assistant", "y"))}
    assert len(read({"mapping": loop, "current_node": "b"}).messages) == 2


def test_files_in_an_export_of_claude() -> None:
    file = {"file_name": "a.csv", "file_type": "csv", "file_size": 3, "extracted_content": "x,y"}
    turns = [
        {"uuid": "1", "sender": "human", "text": "Sum.", "content": [{"type": "text", "text": "Sum."}],
         "attachments": [file], "files": [{"file_name": "b.png"}]},
        {"uuid": "2", "sender": "assistant", "text": "", "content": []},
        {"uuid": "3", "sender": "human", "text": "", "attachments": [{**file, "extracted_content": "z"}]},
        {"uuid": "4", "sender": "assistant", "text": "Done."},
    ]  # fmt: skip
    asked, _, again, done = read({"chat_messages": turns}).messages
    assert asked.content == "Sum.\n\na.csv\nx,y" and again.content.endswith("a.csv\nz") and done.content == "Done."
    assert asked.extra["files"] == [{"file_name": "b.png"}] and asked.extra["uuid"] == "1"
    assert asked.extra["attachments"] == [{"file_name": "a.csv", "file_type": "csv", "file_size": 3}]


def test_calls_beside_a_response() -> None:
    row = {"prompt": "Go.", "response": "I go.", "tool_calls": [{"name": "f", "arguments": {"n": 1}}]}
    assert calls(read(row)) == [("f", {"n": 1})]


def test_a_speaker_who_calls() -> None:
    call = {"id": "c", "function": {"name": "f", "arguments": "{}"}}
    said = {"sender": "assistant", "content": "", "tool_calls": [call]}
    assert calls(read({"messages": [{"sender": "user", "content": "Go."}, said]})) == [("f", {})]


def test_a_system_that_does_not_answer() -> None:
    """Beside an assistant, the system is who tells it what it is."""
    said = [("system", "You help."), ("user", "Hi."), ("assistant", "Yes.")]
    assert outline(read({"turns": [{"speaker": who, "text": text} for who, text in said]})) == said


def test_a_tree_whose_last_node_is_not_there_or_not_said() -> None:
    """A row with a loop raised an error, one that names a node which is missing held no chat, and many children that
    are their own parents took minutes."""
    assert outline(read({"mapping": TREE, "current_node": "missing"}))[-1] == ("assistant", "2")
    loop: dict[str, Any] = {"a": {"parent": "b"}, "b": {"parent": "a"}}
    odd: dict[str, Any] = {"r": {"parent": ["x"], "children": ["r"] * 30_000}}
    odd |= {str(number): {"parent": "r"} for number in range(30_000)}
    begun = time.perf_counter()
    assert find_exported_chat({"mapping": loop}) is None and find_exported_chat({"mapping": odd}) is None
    assert time.perf_counter() - begun < 2


def test_a_column_of_calls_that_holds_none() -> None:
    """Such a row was read before the column was."""
    for value in ([{"id": 1}], ["x"], [3], 2):
        trace = read({"prompt": "Go.", "completion": "I go.", "tool_calls": value})
        assert outline(trace) == [("user", "Go."), ("assistant", "I go.")]


def test_steps_without_a_call_and_with_several() -> None:
    """One thought at the end, or one reply that could not be read, made the whole row unreadable."""
    step = {"thought": "a", "action": "f", "args": {"x": 1}, "observation": "o"}
    trace = read({"task": "T", "steps": [step, {"thought": "So it is 4.", "action": None}]})
    assert outline(trace)[-2:] == [("tool", "o"), ("assistant", "So it is 4.")]
    several = {"thought": "b", "tool_calls": [{"name": "f", "arguments": {}}, {"function": {"name": "g"}}]}
    trace = read({"task": "T", "steps": [{**several, "observation": "o"}]})
    assert [name for name, _ in calls(trace)] == ["f", "g"] and trace.messages[-1].role == "tool"
    done = {"model_output": {"action": [{"done": {"text": "x"}}]}, "result": [{"extracted_content": "x"}]}
    trace = read({"task": "T", "history": [{"model_output": None, "result": [{"error": "boom"}]}, done]})
    assert outline(trace)[1:] == [("user", "boom"), ("assistant", 'done {"text": "x"}'), ("tool", "x")]
    with pytest.raises(RowError):
        read({"task": "T", "steps": [{"thought": "a", "result": "b"}]})
