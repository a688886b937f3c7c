"""Files that are one conversation: a list of messages, or a message a line, bare or in an envelope."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import foretrace
from foretrace.core.errors import ForetraceError
from foretrace.core.store import read_traces
from foretrace.core.trace import Trace
from sources.formats.reading import read_one, write_lines

TAGS = "<read_file>\n<path>a.py</path>\n</read_file>"
CLINE = [
    {"role": "user", "content": [{"type": "text", "text": "<task>\nRead it.\n</task>"}]},
    {"role": "assistant", "content": [{"type": "text", "text": f"I read.\n{TAGS}"}]},
    {"role": "user", "content": [
        {"type": "text", "text": "[read_file for 'a.py'] Result:\n"}, {"type": "text", "text": "x = 1"}]},
    {"role": "assistant", "content": [
        {"type": "text", "text": "<attempt_completion>\n<result>Read.</result>\n</attempt_completion>"}]},
]  # fmt: skip
DROID = [
    {"type": "session_start", "id": "s9", "cwd": "/w"},
    {"type": "message", "id": "a", "message": {"role": "user", "content": [{"type": "text", "text": "Read it."}]}},
    {"type": "message", "id": "b", "message": {"role": "assistant", "content": [
        {"type": "tool_use", "id": "c1", "name": "Read", "input": {"path": "a.py"}}]}},
    {"type": "message", "id": "c", "message": {"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": "c1", "content": "x = 1"}]}},
    {"type": "message", "id": "d", "message": {"role": "assistant", "content": [{"type": "text", "text": "Read."}]}},
]  # fmt: skip
QWEN = [
    {"uuid": str(number), "sessionId": "s8", "type": kind, "message": {"role": role, "parts": parts}}
    for number, (kind, role, parts) in enumerate(
        [
            ("user", "user", [{"text": "Read it."}]),
            ("assistant", "model", [{"functionCall": {"id": "c1", "name": "Read", "args": {"path": "a.py"}}}]),
            ("tool_result", "user", [{"functionResponse": {"id": "c1", "response": "x = 1"}}]),
            ("assistant", "model", [{"text": "Read."}]),
        ]
    )
]


def load(folder: Path, name: str, records: list[dict[str, Any]]) -> tuple[list[Trace], Any]:
    path = folder / "in" / name
    path.parent.mkdir(parents=True)
    lines = "".join(json.dumps(record) + "\n" for record in records)
    path.write_text(lines if name.endswith(".jsonl") else json.dumps(records, indent=1))
    report = foretrace.import_source("auto", folder / "in", out=folder / "traces")
    return sorted(read_traces(folder / "traces"), key=lambda trace: trace.key), report


@pytest.mark.parametrize(
    ("name", "records", "key", "others"),
    [
        ("t7/api_conversation_history.json", CLINE, "t7", {}),
        ("s9.jsonl", DROID, "s9", {"session_start": 1}),
        ("chats/x.jsonl", QWEN, "s8", {}),
    ],
)
def test_a_call_its_result_and_an_answer(
    tmp_path: Path, name: str, records: list[dict[str, Any]], key: str, others: dict[str, int]
) -> None:
    (trace,), report = load(tmp_path, name, records)
    assert trace.key == f"message_list@{key}" and trace.provenance.source == "message_list"
    assert trace.task.statement is not None and "Read it." in trace.task.statement
    said = [message for message in trace.messages if message.role == "assistant"]
    assert len(said) == 2 and json.loads(said[0].tool_calls[0].arguments) == {"path": "a.py"}
    assert [m.content for m in trace.messages if m.role == "tool"] == ["x = 1"]
    assert report.sources["message_list"].account.ignored == others


def test_messages_of_a_subagent_are_a_trace_with_a_parent(tmp_path: Path) -> None:
    """What `claude -p --output-format stream-json` prints."""
    records = [
        {"type": kind, "session_id": "s1", "parent_tool_use_id": parent, "message": {"role": kind, "content": content}}
        for kind, parent, content in [
            ("assistant", None, [{"type": "tool_use", "id": "c1", "name": "Task", "input": {"prompt": "Look."}}]),
            ("user", "c1", [{"type": "text", "text": "Look."}]),
            ("assistant", "c1", [{"type": "text", "text": "Seen."}]),
            ("user", None, [{"type": "tool_result", "tool_use_id": "c1", "content": "Seen."}]),
            ("assistant", None, [{"type": "text", "text": "Done."}]),
        ]
    ]
    first = {"type": "system", "subtype": "init", "session_id": "s1", "cwd": "/w"}
    (main, child), _ = load(tmp_path, "run.jsonl", [first, *records])
    assert [m.content for m in main.messages] == ["", "Seen.", "Done."]
    assert child.key == "message_list@s1/c1" and child.parent is not None
    assert (child.parent.key, child.parent.call_id) == (main.key, "c1")
    assert [m.content for m in child.messages] == ["Look.", "Seen."]


def say(role: str, content: str) -> dict[str, Any]:
    return {"role": role, "content": content}


NO_LISTS: dict[str, list[dict[str, Any]]] = {
    "replies to questions of their own": [{"id": n, **say("assistant", f"poem {n}"), "label": 1} for n in range(4)],
    "replies in envelopes": [{"id": n, "question": "q", "message": say("assistant", "a")} for n in range(4)],
    "choices": [{"choices": [{"index": n, "message": say("assistant", "a")} for n in range(2)]}],
    "choices without a number": [{"candidates": [{"message": say("assistant", "a")}] * 2}],
    "a stream": [say("user", "Hi."), *[{"model": "m", "message": say("assistant", "a"), "done": False}] * 3],
    "questions": [say("user", f"question {n}") for n in range(4)],
    "staff": [{"name": "Bob", "role": "user", "text": "bio"}, {"name": "Al", "role": "agent", "text": "bio"}],
    "mails": [{"from": "user", "to": "b", "message": "x"}, {"from": "bot", "to": "u", "message": "y"}],
    "a log with a few messages": [say("user", "q"), say("assistant", "a"), *[{"type": "tool_ran"}] * 9],
}


@pytest.mark.parametrize("records", NO_LISTS.values(), ids=NO_LISTS.keys())
def test_what_is_no_conversation_is_not_made_one(tmp_path: Path, records: list[dict[str, Any]]) -> None:
    with pytest.raises(ForetraceError, match="nothing in a known format"):
        load(tmp_path, "rows.jsonl", records)


def test_sessions_in_one_file_are_a_trace_each(tmp_path: Path) -> None:
    """A session in which nobody asks is a drop, and a number is a name too."""
    talks = [("A", ["user", "assistant"]), (7, ["user", "assistant"]), ("C", ["assistant", "assistant"])]
    records = [{"session_id": session, **say(role, f"{role} {session}")} for session, roles in talks for role in roles]
    traces, report = load(tmp_path, "rows.jsonl", records)
    assert [(t.key, [m.content for m in t.messages]) for t in traces] == [
        ("message_list@7", ["user 7", "assistant 7"]),
        ("message_list@A", ["user A", "assistant A"]),
    ]
    assert dict(report.drops) == {"no_user_turn": 1}


def test_steps_of_smolagents_with_their_task(tmp_path: Path) -> None:
    step = {"step_number": 1, "model_output": "Done.", "tool_calls": None, "observations": None}
    (trace,), _ = load(tmp_path, "steps.json", [{"task": "Weather?"}, step])
    assert [(m.role, m.content) for m in trace.messages] == [("user", "Weather?"), ("assistant", "Done.")]


STAMPED = [
    {"role": "user", "content": "Go.", "ts": 1772445600000},
    {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "ls", "input": {}}], "ts": 1772445603000},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "a"}], "ts": 1772445603500},
    {"role": "assistant", "content": "Thinking.", "ts": 1772445605500},
    {"role": "assistant", "content": "Done.", "ts": 1772445606500},
]


def test_times_from_stamps(tmp_path: Path) -> None:
    trace, account = read_one("message_list", write_lines(tmp_path / "a.jsonl", STAMPED))
    assert trace.messages[0].started == "2026-03-02T10:00:00+00:00"
    assert [m.model_s for m in trace.messages] == [None, 3.0, None, 2.0, 1.0]
    assert (trace.messages[2].tool_s, trace.messages[2].tool_s_source) == (0.5, "stamps")
    assert trace.provenance.created_at == trace.messages[0].started and not account.notes
    inside = [{"type": "x", "timestamp": f"2026-03-02T10:00:0{n}Z", "message": r} for n, r in enumerate(STAMPED)]
    trace, _ = read_one("message_list", write_lines(tmp_path / "b.jsonl", inside))
    assert [m.model_s for m in trace.messages] == [None, 1.0, None, 1.0, 1.0]
