"""Events that `codex exec --json` prints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from foretrace.actions.label_steps import label_trace
from sources.formats.reading import outline, read, read_one, recognize, write_lines


def event(kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": kind, **fields}


def item(kind: str, own: str, type: str, **fields: Any) -> dict[str, Any]:
    return event(f"item.{kind}", item={"id": own, "type": type, **fields})


LIST = [{"text": "look", "completed": False}]
RUN = [
    event("thread.started", thread_id="t1"),
    event("turn.started"),
    item("completed", "item_0", "reasoning", text="**Look**"),
    item("started", "item_1", "command_execution", command="bash -lc 'cat a.py'", aggregated_output="",
         exit_code=None, status="in_progress"),
    item("completed", "item_1", "command_execution", command="bash -lc 'cat a.py'", aggregated_output="x = 1\n",
         exit_code=0, status="completed"),
    item("started", "item_2", "todo_list", items=LIST),
    item("updated", "item_2", "todo_list", items=[{"text": "look", "completed": True}]),
    item("completed", "item_3", "file_change", changes=[{"path": "a.py", "kind": "update"}], status="completed"),
    item("started", "item_4", "command_execution", command="pytest -q", aggregated_output="", status="in_progress"),
    item("started", "item_5", "mcp_tool_call", server="docs", tool="search", arguments={"q": "x"}),
    item("completed", "item_4", "command_execution", command="pytest -q", aggregated_output="1 failed", exit_code=1,
         status="failed"),
    item("completed", "item_5", "mcp_tool_call", server="docs", tool="search", arguments={"q": "x"},
         result={"content": [{"type": "text", "text": "none"}], "structured_content": None}, status="completed"),
    item("completed", "item_6", "agent_message", text="Done."),
    item("completed", "item_2", "todo_list", items=[{"text": "look", "completed": True}]),
    event("turn.completed", usage={"input_tokens": 1, "cached_input_tokens": 0, "output_tokens": 2}),
    item("completed", "item_7", "hologram"),
    event("aurora"),
]  # fmt: skip


def test_a_run(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "out.jsonl", RUN)
    assert set(recognize(path)) == {"codex_exec"}
    trace, account = read_one("codex_exec", path)
    assert trace.key == "codex_exec@t1"
    assert outline(trace) == [
        ("assistant", "model", "shell"), ("tool", "environment", "x = 1\n"), ("assistant", "model", "update_plan"),
        ("assistant", "model", "update_plan"), ("assistant", "model", "apply_patch"), ("tool", "environment", ""),
        ("assistant", "model", "shell+docs.search"), ("tool", "environment", "1 failed"),
        ("tool", "environment", "none"), ("assistant", "model", "Done."),
    ]  # fmt: skip
    assert trace.messages[0].reasoning == "**Look**"
    assert [m.is_error for m in trace.messages if m.role == "tool"] == [False, None, True, None]
    assert account.unknown == {"item.completed hologram": 1, "aurora": 1}
    kinds = [label.action and label.action.value for label in label_trace(trace)]
    assert (kinds[0], kinds[3], kinds[4]) == ("file_read", "file_write", "verifier")


def test_items_without_an_id(tmp_path: Path) -> None:
    records = json.loads(json.dumps([e for e in RUN if e.get("item", {}).get("id") not in ("item_4", "item_5")]))
    for record in records:
        record.get("item", {}).pop("id", None)
    trace, _ = read_one("codex_exec", write_lines(tmp_path / "out.jsonl", records))
    calls = [call.name for message in trace.messages for call in message.tool_calls]
    assert calls == ["shell", "update_plan", "update_plan", "apply_patch"]
    assert [message.content for message in trace.messages if message.role == "tool"] == ["x = 1\n", ""]


def test_a_thread_that_goes_on_and_one_that_fails(tmp_path: Path) -> None:
    def say(thread: str, text: str) -> list[dict[str, Any]]:
        return [event("thread.started", thread_id=thread), item("completed", "item_0", "agent_message", text=text)]

    failed = event("turn.failed", error={"message": "stream closed"})
    path = write_lines(tmp_path / "out.jsonl", [*say("t1", "One."), *say("t1", "More."), *say("t2", "Hm."), failed])
    traces, drops, _ = read("codex_exec", path)
    assert not drops and [[m.content for m in t.messages] for t in traces] == [["One.", "More."], ["Hm."]]
    assert traces[1].outcome.error and traces[1].outcome.error.message == "stream closed"
