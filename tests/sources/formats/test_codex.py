"""Codex: four vocabularies, copies, executions inside of calls, earlier histories, and who measured what."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import zstandard

from foretrace.core.trace import Parent
from foretrace.sources.formats.codex import Codex
from sources.session_files import Read, count, read_file, write_lines

Records = list[dict[str, Any] | str]


def envelope(kind: str, payload: dict[str, Any], at: float = 0, **more: Any) -> dict[str, Any]:
    return {"timestamp": f"2026-01-01T00:00:{at:06.3f}Z", "type": kind, "payload": payload, **more}


def meta(session: str = "t1", **more: Any) -> dict[str, Any]:
    git = {"branch": "main", "repository_url": "git@github.com:owner/app.git"}
    return envelope("session_meta", {"id": session, "cwd": "/home/x/app", "cli_version": "0.150.0", "git": git, **more})


def item(kind: str, at: float = 0, **payload: Any) -> dict[str, Any]:
    return envelope("response_item", {"type": kind, **payload}, at)


def event(kind: str, at: float = 0, **payload: Any) -> dict[str, Any]:
    return envelope("event_msg", {"type": kind, **payload}, at)


def done(kind: str, at: float = 0, **fields: Any) -> dict[str, Any]:
    return event("item_completed", at, thread_id="t1", turn_id="x", item={"type": kind, **fields})


def user(text: str, at: float = 0, **more: Any) -> dict[str, Any]:
    return item("message", at, role="user", content=[{"type": "input_text", "text": text}], **more)


def agent(text: str, at: float = 0) -> dict[str, Any]:
    return item("message", at, role="assistant", content=[{"type": "output_text", "text": text}])


def call(call_id: str, at: float = 0, name: str = "exec_command", **arguments: Any) -> dict[str, Any]:
    return item("function_call", at, call_id=call_id, name=name, arguments=json.dumps(arguments))


def output(call_id: str, value: Any, at: float = 0) -> dict[str, Any]:
    return item("function_call_output", at, call_id=call_id, output=value)


def custom(call_id: str, name: str, text: str, at: float = 0) -> dict[str, Any]:
    return item("custom_tool_call", at, call_id=call_id, name=name, input=text)


def wrapped(text: str, **metadata: Any) -> str:
    return json.dumps({"output": text, "metadata": metadata})


def read(folder: Path, records: Records, name: str = "rollout-2026-t1.jsonl") -> Read:
    return read_file(Codex(), write_lines(folder / name, records))


def tools(found: Read) -> list[tuple[float | None, str | None]]:
    return [(m.tool_s, m.tool_s_source) for m in found.messages if m.role == "tool"]


def test_what_a_call_of_code_mode_ran_is_no_call_of_its_own(tmp_path: Path) -> None:
    ran = {
        "command": ["zsh", "-lc", "ls"],
        "aggregated_output": "a",
        "exit_code": 0,
        "duration": {"secs": 0, "nanos": 10**8},
    }
    found = read(
        tmp_path,
        [
            meta(history_mode="paginated"),
            user("go"),
            custom("call_1", "exec", "tools.exec_command(...)", 1),
            done("CommandExecution", 2, id="exec-1", **ran),
            done("CommandExecution", 2, id="exec-2", **ran),
            item(
                "custom_tool_call_output",
                3,
                call_id="call_1",
                output=[{"type": "input_text", "text": "Script completed\nWall time 0.2 seconds"}],
            ),
            done("CommandExecution", 3, id="exec-3", **ran),
            custom("call_2", "apply_patch", "*** Begin Patch", 4),
            done("FileChange", 40, id="exec-4", changes={"a": {}}, auto_approved=False, status="completed"),
            item("custom_tool_call_output", 40, call_id="call_2", output="Success"),
            custom("call_3", "apply_patch", "*** Begin Patch", 41),
            done("FileChange", 50, id="exec-5", changes={"a": {}}, auto_approved=False, status="completed"),
            item(
                "custom_tool_call_output",
                50,
                call_id="call_3",
                output=wrapped("Success", exit_code=0, duration_seconds=0.3),
            ),
        ],
    )
    assert count(found.traces[0]) == {"turns": 3, "calls": 3, "results": 3, "prompts": 1}
    first = found.messages[1].tool_calls[0]
    assert [c["seconds"] for c in first.extra["commands"]] == [0.1] * 3 and first.name == "exec"
    assert tools(found) == [(0.2, "runner"), (None, None), (0.3, "runner")], "a person approved the second"


def test_durations_of_events_win_unless_the_call_came_back_before(tmp_path: Path) -> None:
    def ended(call_id: str) -> dict[str, Any]:
        duration = {"secs": 9, "nanos": 0}
        return event("exec_command_end", 9, call_id=call_id, command=["x"], exit_code=0, duration=duration)

    mcp = {"invocation": {"server": "s", "tool": "t", "arguments": {}}, "result": {"Ok": {"content": []}}}
    found = read(
        tmp_path,
        [
            meta(),
            user("go"),
            call("a", 1),
            ended("a"),
            output("a", "Wall time: 8.5 seconds\nOutput:\n", 10),
            call("b", 11),
            output("b", "Wall time: 1.0 seconds\nProcess running with session ID 3\nOutput:\n", 12),
            ended("b"),
            call("m", 13, "s__t"),
            event("mcp_tool_call_end", 14, call_id="m", duration={"secs": 0, "nanos": 4_000_000}, **mcp),
            output("m", {"content": "ok", "success": True}, 14),
            call("late", 15),
            output("late", "x", 16),
            event(
                "exec_command_end",
                17,
                call_id="late",
                command=["x"],
                exit_code=0,
                duration={"secs": 0, "nanos": 5 * 10**8},
            ),
            event("mcp_tool_call_end", 18, call_id="nobody", duration={"secs": 1, "nanos": 0}, **mcp),
        ],
    )
    assert [seconds for seconds, _ in tools(found)] == [9, 1, 0.004, 0.5]
    assert found.account.ignored == {"mcp_tool_call_end without its call": 1}


def test_searches_and_images_of_the_server(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        [
            meta(),
            user("go"),
            item("web_search_call", id="ws", action={"type": "search", "query": "q"}),
            event("web_search_end", call_id="ws", query="q", results=[{"title": "T"}]),
            item("tool_search_call", call_id="ts", arguments={"query": "z"}),
            item("tool_search_output", call_id="ts", tools=[]),
            item("image_generation_call", id="ig", revised_prompt="a cat", result="AAAA"),
        ],
    )
    assert [c.name for m in found.messages for c in m.tool_calls] == ["web_search", "tool_search", "image_generation"]
    results = [m for m in found.messages if m.role == "tool"]
    assert [m.tool_call_ids for m in results] == [("ws",), ("ts",), ("ig",)] and '"T"' in results[0].content
    assert results[2].parts[0].type == "image" and results[2].parts[0].sha256


def test_turns_that_were_rolled_back_are_counted_and_gone(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        [
            meta(),
            user("one"),
            agent("1"),
            user("two"),
            agent("2"),
            call("c"),
            event("thread_rolled_back", num_turns=1),
            user("three"),
            agent("3"),
        ],
    )
    assert [m.content for m in found.messages] == ["one", "1", "three", "3"]
    assert found.account.ignored == {"rolled back": 3} and found.account.notes == {"abandoned branches": 1}


def test_packed_files_and_subagents(tmp_path: Path) -> None:
    spawn = {"subagent": {"thread_spawn": {"parent_thread_id": "t0", "depth": 1}}}
    lines = "".join(json.dumps(r) + "\n" for r in (meta(source=spawn), user("go"), agent("yes")))
    file = tmp_path / "rollout-1.jsonl.zst"
    file.write_bytes(zstandard.ZstdCompressor().compress(lines.encode()))
    (trace,) = read_file(Codex(), file).traces
    assert trace.parent == Parent(key="codex@t0") and count(trace)["turns"] == 1
    file.write_bytes(file.read_bytes()[:-4])
    cut = read_file(Codex(), file, recognized=False)
    assert cut.account.dropped == {"truncated_file": 1} and cut.drops[0].reason == "no_agent_turn"


def test_unknown_types_are_counted_and_no_turn_is_said(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        [
            meta(),
            event("brand_new"),
            item("brand_new_item"),
            done("BrandNew"),
            {"type": "strange"},
            "{}",
            '{"timest',
            event("error", message="429"),
        ],
    )
    assert found.account.unknown == {
        "event_msg brand_new": 1,
        "brand_new_item": 1,
        "item_completed BrandNew": 1,
        "strange": 1,
        "(no type)": 1,
    }
    assert found.account.notes == {"errors of the model's API": 1} and found.account.dropped == {"bad_json": 1}
    assert found.drops[0].reason == "no_agent_turn" and "1 event_msg brand_new" in found.drops[0].detail
