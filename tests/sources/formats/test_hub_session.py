"""The Hub's session traces."""

from __future__ import annotations

from pathlib import Path

from sources.formats.reading import count, read, read_one, recognize, write_lines

HEAD = {"type": "session", "harness": "pi", "id": "s1", "name": "fix it"}


def message(role: str, content: object, second: int, **more: object) -> dict[str, object]:
    stamp = f"2026-01-01T00:00:{second:02d}Z"
    return {"type": "message", "message": {"role": role, "content": content, "timestamp": stamp, **more}}


CALL = {"id": "c1", "function": {"name": "bash", "arguments": '{"command": "ls"}'}}
TALK = [
    HEAD,
    message("system", "be good", 0),
    message("user", [{"type": "text", "text": "list "}, {"type": "text", "text": "it"}], 1),
    message("assistant", "", 3, reasoningContent="look", toolCalls=[CALL], model="m"),
    message("tool", "a.py", 4, toolCallId="c1"),
    message("assistant", "one file", 6, model="m"),
]


def test_a_session(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "s.jsonl", TALK)
    trace, account = read_one("hub_session", path)
    assert list(recognize(path)) == ["hub_session"] and account.used == 6
    assert (trace.key, trace.provenance.agent, trace.provenance.model) == ("hub_session@s1", "pi", "m")
    assert count(trace) == {"turns": 2, "calls": 1, "results": 1} and trace.extra == {"name": "fix it"}
    _, asked, called, ran, answered = trace.messages
    assert asked.content == "list it" and called.reasoning == "look"
    assert (called.model_s, ran.tool_s, answered.model_s) == (2.0, 1.0, 2.0) and not answered.extra


def test_drift_and_damage_are_counted(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "s.jsonl", [*TALK[1:2], HEAD, {"type": "tool_usage"}, message("critic", "", 1)])
    with path.open("a") as file:
        file.write('{"type": "mess')
    traces, (drop,), account = read("hub_session", path)
    assert not traces and drop.reason == "no_agent_turn" and "1 tool_usage" in drop.detail
    assert account.unknown == {"tool_usage": 1, "message of 'critic'": 1}
    assert account.dropped == {"no_session": 1} and account.waiting == 1
