"""mini-swe-agent's files of both versions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sources.formats.reading import SHARED, count, needs_shared, read_one, recognize, write_document

FILE = SHARED / "formats" / "mini_swe_agent_v2" / "text_actions.traj.json"
T = 1_795_000_000.0


def document(*messages: dict[str, Any], version: str = "mini-swe-agent-1.1", **info: Any) -> dict[str, Any]:
    held = {"exit_status": "Submitted", "submission": "diff", "model_stats": {}, **info}
    return {"info": held, "messages": list(messages), "trajectory_format": version}


@needs_shared
def test_counts_and_times() -> None:
    """The file stamps each reply and each result: the runs took what lies between, to 1%."""
    trace, account = read_one("mini_swe_agent", FILE)
    raw = [m.get("extra", {}).get("timestamp") for m in json.loads(FILE.read_text())["messages"]]
    assert list(recognize(FILE)) == ["mini_swe_agent"]
    assert account.used == 10 and count(trace) == {"turns": 4, "calls": 4, "results": 3}
    tools = [m.tool_s for m in trace.messages if m.role == "tool"]
    assert tools == pytest.approx([raw[3] - raw[2], raw[5] - raw[4], raw[7] - raw[6]], abs=1e-6)
    assert [m.model_s for m in trace.messages if m.role == "assistant"][1] == pytest.approx(raw[4] - raw[3], abs=1e-6)
    assert trace.messages[2].model_s is None, "nobody stamped the question"
    assert account.notes == {"calls without a result": 1}, "the command that submits has no result"
    assert (trace.outcome.exit_reason, trace.extra["submission"]) == ("Submitted", "done: 2 lines\n")
    assert trace.messages[7].is_error and trace.provenance.tool_versions == {"mini-swe-agent": "2.4.6"}


def test_calls_of_tools_and_their_one_stamp(tmp_path: Path) -> None:
    calls = [
        {"id": f"c{n}", "type": "function", "function": {"name": "bash", "arguments": '{"command": "ls"}'}}
        for n in "12"
    ]
    results = [
        {"role": "tool", "tool_call_id": f"c{n}", "content": n, "extra": {"returncode": 0, "timestamp": T + 3}}
        for n in "12"
    ]
    response = {"usage": {"prompt_tokens": 5}, "choices": [{"finish_reason": "tool_calls"}]}
    asked = {"role": "assistant", "content": None, "tool_calls": calls, "reasoning_content": "think",
             "extra": {"actions": [], "timestamp": T, "response": response}}  # fmt: skip
    path = write_document(tmp_path / "t", document({"role": "user", "content": "go"}, asked, *results))
    trace, _ = read_one("mini_swe_agent", path)
    assert count(trace) == {"turns": 1, "calls": 2, "results": 2}
    assert [m.tool_s for m in trace.messages[2:]] == [None, 3.0], "the two ran one after the other in that time"
    reply = trace.messages[1]
    assert reply.sampled and reply.sampled.finish_reason == "tool_calls" and reply.reasoning == "think"


def test_items_of_the_responses_api(tmp_path: Path) -> None:
    output = [{"type": "reasoning", "summary": [{"text": "hm"}]},
              {"type": "message", "content": [{"type": "output_text", "text": "look"}]},
              {"type": "function_call", "call_id": "c1", "name": "bash", "arguments": '{"command": "ls"}'}]  # fmt: skip
    messages = [{"role": "user", "content": "go"}, {"object": "response", "output": output, "extra": {"timestamp": T}},
                {"type": "function_call_output", "call_id": "c1", "output": "a.py", "extra": {"timestamp": T + 1}},
                {"role": "exit", "content": "", "extra": {}}]  # fmt: skip
    trace, account = read_one("mini_swe_agent", write_document(tmp_path / "t", document(*messages)))
    reply, ran = trace.messages[1:]
    assert (reply.content, reply.reasoning, reply.tool_calls[0].id) == ("look", "hm", "c1")
    assert (ran.content, ran.tool_s) == ("a.py", 1.0) and account.used == 4


@pytest.mark.parametrize(("ended", "status"), [("LimitsExceeded", "limit"), ("RuntimeError", "error"), (None, "done")])
def test_how_it_ended(ended: str | None, status: str, tmp_path: Path) -> None:
    made = document({"role": "user", "content": "go"}, {"role": "assistant", "content": "x"}, exit_status=ended)
    assert read_one("mini_swe_agent", write_document(tmp_path / "t", made))[0].outcome.status == status
