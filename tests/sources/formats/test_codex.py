"""Codex: four vocabularies, copies, executions inside of calls, earlier histories, and who measured what."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import zstandard

from foretrace.core.trace import Parent
from sources.formats.reading import Read, count, write_lines
from sources.formats.reading import read as read_file


def envelope(kind: str, payload: dict[str, Any], at: float = 0) -> dict[str, Any]:
    return {"timestamp": f"2026-01-01T00:00:{at:06.3f}Z", "type": kind, "payload": payload}


def meta(**more: Any) -> dict[str, Any]:
    git = {"branch": "main", "repository_url": "git@github.com:owner/app.git"}
    return envelope("session_meta", {"id": "t1", "cwd": "/home/x/app", "cli_version": "0.150.0", "git": git, **more})


def item(kind: str, at: float = 0, **payload: Any) -> dict[str, Any]:
    return envelope("response_item", {"type": kind, **payload}, at)


def event(kind: str, at: float = 0, **payload: Any) -> dict[str, Any]:
    return envelope("event_msg", {"type": kind, **payload}, at)


def done(kind: str, at: float = 0, **fields: Any) -> dict[str, Any]:
    return event("item_completed", at, thread_id="t1", turn_id="x", item={"type": kind, **fields})


def said(role: str, text: str) -> dict[str, Any]:
    kind = "input_text" if role == "user" else "output_text"
    return item("message", role=role, content=[{"type": kind, "text": text}])


def call(call_id: str, at: float = 0, name: str = "exec_command") -> dict[str, Any]:
    return item("function_call", at, call_id=call_id, name=name, arguments="{}")


def output(call_id: str, value: Any, at: float = 0, kind: str = "function_call_output") -> dict[str, Any]:
    return item(kind, at, call_id=call_id, output=value)


def custom(call_id: str, name: str, text: str, at: float = 0) -> dict[str, Any]:
    return item("custom_tool_call", at, call_id=call_id, name=name, input=text)


def ended(kind: str, call_id: str, at: float, seconds: float, **more: Any) -> dict[str, Any]:
    duration = {"secs": int(seconds), "nanos": round(seconds % 1 * 1e9)}
    return event(kind, at, call_id=call_id, duration=duration, **more)


def read(folder: Path, *records: dict[str, Any] | str) -> Read:
    return read_file("codex", write_lines(folder / "rollout-2026-t1.jsonl", records))


def tools(found: Read) -> list[tuple[float | None, str | None]]:
    return [(m.tool_s, m.tool_s_source) for m in found.messages if m.role == "tool"]


GO = (meta(), said("user", "go"))
RAN = {"command": ["zsh", "-lc", "ls"], "aggregated_output": "a", "exit_code": 0}


def test_what_a_call_of_code_mode_ran_is_no_call_of_its_own(tmp_path: Path) -> None:
    runs = [done("CommandExecution", n, id=f"exec-{n}", **RAN, duration={"secs": 0, "nanos": 10**8}) for n in range(3)]
    change = {"changes": {"a": {}}, "auto_approved": False, "status": "completed"}
    completed = [{"type": "input_text", "text": "Script completed\nWall time 0.2 seconds"}]
    measured = json.dumps({"output": "Success", "metadata": {"exit_code": 0, "duration_seconds": 0.3}})
    kind = "custom_tool_call_output"
    found = read(
        tmp_path, *GO,
        custom("call_1", "exec", "tools.exec_command(...)", 1), *runs[:2],
        output("call_1", completed, 3, kind), runs[2],
        custom("call_2", "apply_patch", "*** Begin Patch", 4), done("FileChange", 40, id="exec-4", **change),
        output("call_2", "Success", 40, kind), custom("call_3", "apply_patch", "*** Begin Patch", 41),
        done("FileChange", 50, id="exec-5", **change), output("call_3", measured, 50, kind),
    )  # fmt: skip
    assert count(found.traces[0]) == {"turns": 3, "calls": 3, "results": 3}
    first = found.messages[1].tool_calls[0]
    assert [c["seconds"] for c in first.extra["commands"]] == [0.1] * 3 and first.name == "exec"
    assert tools(found) == [(0.2, "runner"), (None, None), (0.3, "runner")], "a person approved the second"


def test_durations_of_events_win_unless_the_call_came_back_before(tmp_path: Path) -> None:
    mcp = {"invocation": {"server": "s", "tool": "t", "arguments": {}}, "result": {"Ok": {"content": []}}}
    ran = {"command": ["x"], "exit_code": 0}
    found = read(
        tmp_path, *GO,
        call("a", 1), ended("exec_command_end", "a", 9, 9, **ran), output("a", "Wall time: 8.5 seconds\nOutput:\n", 10),
        call("b", 11), output("b", "Wall time: 1.0 seconds\nProcess running with session ID 3\nOutput:\n", 12),
        ended("exec_command_end", "b", 12, 9, **ran),
        call("m", 13, "s__t"), ended("mcp_tool_call_end", "m", 14, 0.004, **mcp),
        output("m", {"content": "ok", "success": True}, 14),
        call("late", 15), output("late", "x", 16), ended("exec_command_end", "late", 17, 0.5, **ran),
        ended("mcp_tool_call_end", "nobody", 18, 1, **mcp),
    )  # fmt: skip
    assert [seconds for seconds, _ in tools(found)] == [9, 1, 0.004, 0.5]
    assert found.account.ignored == {"mcp_tool_call_end without its call": 1}


def test_searches_and_images_of_the_server(tmp_path: Path) -> None:
    found = read(
        tmp_path, *GO,
        item("web_search_call", id="ws", action={"type": "search", "query": "q"}),
        event("web_search_end", call_id="ws", query="q", results=[{"title": "T"}]),
        item("tool_search_call", call_id="ts", arguments={"query": "z"}),
        item("tool_search_output", call_id="ts", tools=[]),
        item("image_generation_call", id="ig", revised_prompt="a cat", result="AAAA"),
    )  # fmt: skip
    assert [c.name for m in found.messages for c in m.tool_calls] == ["web_search", "tool_search", "image_generation"]
    results = [m for m in found.messages if m.role == "tool"]
    assert [m.tool_call_ids for m in results] == [("ws",), ("ts",), ("ig",)] and '"T"' in results[0].content
    assert results[2].parts[0].type == "image" and results[2].parts[0].sha256


def test_turns_that_were_rolled_back_are_counted_and_gone(tmp_path: Path) -> None:
    found = read(
        tmp_path, meta(), said("user", "one"), said("assistant", "1"), said("user", "two"), said("assistant", "2"),
        call("c"), event("thread_rolled_back", num_turns=1), said("user", "three"), said("assistant", "3"),
    )  # fmt: skip
    assert [m.content for m in found.messages] == ["one", "1", "three", "3"]
    assert found.account.ignored == {"rolled back": 3} and found.account.notes == {"abandoned branches": 1}


def test_packed_files_and_subagents(tmp_path: Path) -> None:
    spawn = {"subagent": {"thread_spawn": {"parent_thread_id": "t0", "depth": 1}}}
    lines = "".join(json.dumps(r) + "\n" for r in (meta(source=spawn), said("user", "go"), said("assistant", "yes")))
    file = tmp_path / "rollout-1.jsonl.zst"
    file.write_bytes(zstandard.ZstdCompressor().compress(lines.encode()))
    (trace,) = read_file("codex", file).traces
    assert trace.parent == Parent(key="codex@t0") and count(trace)["turns"] == 1
    file.write_bytes(file.read_bytes()[:-4])
    cut = read_file("codex", file)
    assert cut.account.dropped == {"truncated_file": 1} and cut.drops[0].reason == "no_agent_turn"


def test_unknown_types_are_counted_and_no_turn_is_said(tmp_path: Path) -> None:
    unknown = (event("brand_new"), item("brand_new_item"), done("BrandNew"), {"type": "strange"}, "{}")
    found = read(tmp_path, meta(), *unknown, '{"timest', event("error", message="429"))
    assert found.account.unknown == {"brand_new_item": 1, "strange": 1, "(no type)": 1}
    assert found.account.ignored == {"brand_new": 1, "BrandNew": 1, "error": 1}
    assert found.account.notes == {"errors of the model's API": 1} and found.account.dropped == {"bad_json": 1}
    assert found.drops[0].reason == "no_agent_turn" and "1 event_msg brand_new" in found.drops[0].detail
