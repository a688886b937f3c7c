"""Sessions of GitHub's Copilot CLI: events with their stamps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import foretrace
from foretrace.core.store import read_traces

EVENTS: list[tuple[str, dict[str, Any]]] = [
    ("session.start", {"sessionId": "s1", "copilotVersion": "1.2", "context": {"cwd": "/w", "repository": "o/r"}}),
    ("user.message", {"content": "Read it.", "transformedContent": "<datetime/>Read it."}),
    ("assistant.turn_start", {"turnId": "0"}),
    ("assistant.message", {"messageId": "m1", "content": "", "reasoningText": "Hm.", "toolRequests": [
        {"toolCallId": "c1", "name": "view", "arguments": {"path": "a.py"}, "type": "function"}]}),
    ("tool.execution_start", {"toolCallId": "c1", "toolName": "view", "arguments": {"path": "a.py"}}),
    ("assistant.message", {"messageId": "m9", "content": "not mine", "parentToolCallId": "c1"}),
    ("tool.execution_complete", {"toolCallId": "c1", "success": False, "error": {"message": "no such file"}}),
    ("assistant.message", {"messageId": "m2", "content": "There is none.", "toolRequests": []}),
    ("weather.report", {}),
]  # fmt: skip


def test_a_session(tmp_path: Path) -> None:
    path = tmp_path / "in" / "s1" / "events.jsonl"
    path.parent.mkdir(parents=True)
    lines = [
        json.dumps({"type": kind, "data": data, "id": str(n), "timestamp": f"2026-03-02T10:00:{n:02d}.000Z"}) + "\n"
        for n, (kind, data) in enumerate(EVENTS)
    ]
    path.write_text("".join(lines))
    report = foretrace.import_source("auto", tmp_path / "in", out=tmp_path / "traces")
    (trace,) = read_traces(tmp_path / "traces")
    assert trace.key == "copilot_cli@s1" and trace.task.group == "o/r" and trace.task.statement == "Read it."
    assert [(m.role, m.content) for m in trace.messages] == [
        ("user", "Read it."), ("assistant", ""), ("tool", "no such file"), ("assistant", "There is none."),
    ]  # fmt: skip
    call, result = trace.messages[1], trace.messages[2]
    assert call.reasoning == "Hm." and json.loads(call.tool_calls[0].arguments) == {"path": "a.py"}
    assert result.is_error is True and (result.tool_s, result.tool_s_source) == (3.0, "stamps")
    account = report.sources["copilot_cli"].account
    assert account.unknown == {"weather.report": 1} and account.ignored["assistant.message of a subagent"] == 1
