"""Pi: linear sessions of the first version, trees of entries since; replies with a start and an end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sources.formats.reading import Read, count, write_lines
from sources.formats.reading import read as read_file

START = 1_767_225_600_000  # ms, 2026-01-01


def header(version: int | None = 3) -> dict[str, Any]:
    more = {} if version is None else {"version": version}
    return {"type": "session", "id": "p1", "timestamp": "2026-01-01T00:00:00Z", "cwd": "/home/x/code/app", **more}


def entry(kind: str, number: str | None, parent: str | None = None, at: float = 0, **more: Any) -> dict[str, Any]:
    ids = {} if number is None else {"id": number, "parentId": parent}
    return {"type": kind, "timestamp": f"2026-01-01T00:00:{at:06.3f}Z", **ids, **more}


def said(role: str, content: Any, began: float = 0, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, "timestamp": START + round(began * 1000), **more}


def call(call_id: str) -> dict[str, Any]:
    return {"type": "toolCall", "id": call_id, "name": "read", "arguments": {"path": "a"}}


def read(folder: Path, records: list[Any]) -> Read:
    return read_file("pi", write_lines(folder / "2026_p1.jsonl", records))


def test_a_tree_is_read_along_its_last_branch(tmp_path: Path) -> None:
    found = read(tmp_path, [
        header(), entry("model_change", "a", None, modelId="m"),
        entry("message", "b", "a", 1, message=said("user", [{"type": "text", "text": "go"}], 1)),
        entry("message", "c", "b", 4, message=said(
            "assistant", [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "I look"}, call("t")], 1.5,
            model="claude-x", usage={"input": 1, "cost": {}}, stopReason="toolUse")),
        entry("message", "d", "c", 4.5, message=said(
            "toolResult", [{"type": "text", "text": "x"}], toolCallId="t", isError=True)),
        entry("message", "lost", "d", 5, message=said("user", "wrong")),
        entry("message", "lost2", "lost", 5, message=said("assistant", [{"type": "text", "text": "lost"}])),
        entry("branch_summary", "e", "d", 6, summary="came back", fromId="lost2"),
        entry("compaction", "f", "e", 7, summary="so far"), entry("label", "g", "f", targetId="d", label="x"),
        entry("custom_message", "h", "g", 7, customType="hook", content="injected", display=True),
        entry("message", "i", "h", 7, message={"role": "bashExecution", "command": "ls", "output": "a", "exitCode": 0}),
        entry("message", "j", "i", 9, message=said("assistant", [{"type": "text", "text": "done"}], 8)),
        entry("message", "k", "j", 9, message=said("assistant", [], 8, stopReason="error", errorMessage="429")),
        entry("session_info", "l", "k", name="a title"), entry("brand_new", "m", "l"),
    ])  # fmt: skip
    (trace,) = found.traces
    assert [(m.role, m.author, m.content) for m in trace.messages] == [
        ("user", "user", "go"), ("assistant", "model", "I look"), ("tool", "environment", "x"),
        ("user", "environment", "came back"), ("user", "environment", "so far"), ("user", "environment", "injected"),
        ("user", "environment", "$ ls\na"), ("assistant", "model", "done"),
    ]  # fmt: skip
    asked = trace.messages[1]
    assert asked.reasoning == "hm"
    assert (asked.model_s, trace.messages[2].tool_s) == (2.5, 0.5), "start in the message, end beside"
    assert trace.messages[2].is_error and asked.extra["usage"] == {"input": 1}
    assert asked.extra["stop_reason"] == "toolUse"
    assert (trace.key, trace.task.group, trace.extra["title"]) == ("pi@p1", "app", "a title")
    assert found.account.ignored["abandoned branch"] == 2 and found.account.notes["abandoned branches"] == 1
    assert found.account.unknown == {"brand_new": 1} and found.account.notes["errors of the model's API"] == 1


def test_the_first_version_is_linear(tmp_path: Path) -> None:
    found = read(tmp_path, [
        header(None), entry("thinking_level_change", None), entry("message", None, message=said("user", "go")),
        entry("message", None, message=said("assistant", [call("t")])),
        entry("message", None, message=said("toolResult", [{"type": "text", "text": "x"}], toolCallId="t")),
        entry("message", None, message=said("assistant", [{"type": "text", "text": "done"}])),
        entry("message", None, message=said("hookMessage", "hook")),
    ])  # fmt: skip
    assert count(found.traces[0]) == {"turns": 2, "calls": 1, "results": 1}
    assert found.traces[0].extra["format_version"] == 1
    assert found.traces[0].extra["notices_at_the_end"] == ["hook"]


def test_what_a_fork_copied_is_not_trained_on_twice(tmp_path: Path) -> None:
    reply = [{"type": "text", "text": "yes"}]
    before = {"timestamp": "2025-12-31T00:00:00Z"}
    found = read(tmp_path, [
        {**header(), "parentSession": "/home/x/.pi/agent/sessions/y/2025_p0.jsonl"},
        entry("message", "a", None, message=said("user", "go")) | before,
        entry("message", "b", "a", message=said("assistant", reply)) | before,
        entry("message", "c", "b", 1, message=said("assistant", reply)),
    ])  # fmt: skip
    assert [m.train for m in found.messages] == [None, False, None]
    assert found.traces[0].extra["forked_from"] == "2025_p0.jsonl" and found.messages[1].extra["inherited"]
