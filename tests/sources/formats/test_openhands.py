"""OpenHands version 1: folders and files of events, calls of one reply, rejected calls, branches, tokens."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from foretrace.core.trace import Sampled
from foretrace.sources.formats.openhands import OpenHands
from sources.formats.reading import outline, read, read_one, recognize, write_document, write_lines

START = datetime(2026, 1, 1, 10)


def event(kind: str, source: str, second: float = 0, **more: Any) -> dict[str, Any]:
    stamp = (START + timedelta(seconds=second)).isoformat()
    return {"kind": kind, "id": f"{kind}{second}", "source": source, "timestamp": stamp, **more}


def text(value: str) -> dict[str, str]:
    return {"type": "text", "text": value}


def action(call_id: str, second: float, reply: str, **more: Any) -> dict[str, Any]:
    call = {"id": call_id, "name": "terminal", "arguments": '{"command": "ls"}'}
    return event("ActionEvent", "agent", second, thought=[], tool_name="terminal", tool_call_id=call_id, tool_call=call,
                 action={"kind": "TerminalAction", "command": "ls"}, llm_response_id=reply, **more)  # fmt: skip


def ran(call_id: str, second: float, output: str = "ok", **more: Any) -> dict[str, Any]:
    observation = {"kind": "TerminalObservation", "content": [text(output)], "is_error": False}
    return event("ObservationEvent", "environment", second, tool_call_id=call_id, observation=observation, **more)


PROMPT = event("SystemPromptEvent", "agent", 0, system_prompt=text("be good"), dynamic_context=text("host: x"),
               tools=[{"kind": "TerminalTool", "description": "run"}, {"name": "finish"}])  # fmt: skip
ASKED = event("MessageEvent", "user", 1, llm_message={"role": "user", "content": [text("go")]},
              extended_content=[text("a skill")])  # fmt: skip
TALK = [
    PROMPT, ASKED, action("c1", 4, "r1", reasoning_content="hm") | {"thought": [text("look")]}, action("c2", 4.1, "r1"),
    ran("c1", 5), ran("c2", 6.5),
    event("MessageEvent", "agent", 8, llm_message={"role": "assistant", "content": [text("done")]}),
    event("ConversationStateUpdateEvent", "environment", 9, key="execution_status", value="finished"),
]  # fmt: skip


def test_one_file(tmp_path: Path) -> None:
    trace, account = read_one("openhands", write_lines(tmp_path / "e.jsonl", TALK))
    assert outline(trace) == [
        ("system", "user", "be good\n\nhost: x"), ("user", "user", "go"), ("user", "environment", "a skill"),
        ("assistant", "model", "look"), ("tool", "environment", "ok"), ("tool", "environment", "ok"),
        ("assistant", "model", "done"),
    ]  # fmt: skip
    assert [c.id for c in trace.messages[3].tool_calls] == ["c1", "c2"]
    assert [t.name for t in trace.tools] == ["terminal", "finish"]
    assert [m.model_s for m in trace.messages if m.role == "assistant"] == pytest.approx([3.1, 1.5])
    assert [m.tool_s for m in trace.messages if m.role == "tool"] == pytest.approx([1.0, 2.4])
    assert account.used == 7 and (trace.outcome.status, trace.outcome.exit_reason) == ("done", "finished")


def test_a_folder_of_events(tmp_path: Path) -> None:
    folder = tmp_path / "conversation"
    (folder / "events").mkdir(parents=True)
    state = {"id": "conv", "execution_status": "error", "agent": {"llm": {"model": "m"}}}
    write_document(folder / "base_state.json", state)
    for number, made in enumerate(TALK[:-1]):
        write_document(folder / "events" / f"event-{number:05d}-{number}.json", made)
    write_document(folder / "events" / "event-100000-last.json", action("c3", 10, "r3"))
    (folder / "events" / "event-00002-torn.json").write_text('{"kind": "Act')
    trace, account = read_one("openhands", folder)
    assert list(recognize(folder)) == ["openhands"] == list(recognize(folder / "events"))
    assert (trace.key, trace.provenance.model, trace.outcome.status) == ("openhands@conv", "m", "error")
    assert trace.messages[-1].tool_calls[0].id == "c3" and account.dropped == {"bad_json": 1}
    assert len(list(OpenHands().list_companions(folder))) == 10


def test_who_rejects_takes_the_time(tmp_path: Path) -> None:
    rejected = event("UserRejectObservation", "environment", 60, tool_call_id="c1", rejection_reason="no")
    failed = event("AgentErrorEvent", "agent", 7, tool_call_id="c2", error="bad arguments")
    trace, _ = read_one("openhands", write_lines(tmp_path / "e", [*TALK[:4], rejected, failed]))
    no, bad = trace.messages[-2:]
    assert (no.content, no.is_error, no.tool_s) == ("no", True, None)
    assert (bad.content, bad.is_error, bad.tool_s) == ("bad arguments", True, pytest.approx(2.9))


def test_tokens_belong_to_the_reply_before(tmp_path: Path) -> None:
    token = event("TokenEvent", "agent", 4.2, prompt_token_ids=[1, 2], response_token_ids=[3])
    trace, _ = read_one("openhands", write_lines(tmp_path / "e", [*TALK[:4], token]))
    assert trace.messages[3].sampled == Sampled(token_ids=(3,), prompt_token_ids=(1, 2), exact="token")


def test_the_branch_that_ends_last(tmp_path: Path) -> None:
    one, two, left, right = (action(f"c{n}", n, f"r{n}") for n in range(4))
    two["parent_id"], left["parent_id"], right["parent_id"] = one["id"], two["id"], two["id"]
    ended = TALK[-1]
    trace, account = read_one("openhands", write_lines(tmp_path / "e", [one, two, left, right, ended]))
    assert [c.id for m in trace.messages for c in m.tool_calls] == ["c0", "c1", "c3"]
    assert trace.outcome.exit_reason == "finished", "an event outside of the tree belongs to all branches"
    assert account.ignored == {"event of another branch": 1, "ConversationStateUpdateEvent": 1}


@pytest.mark.parametrize(
    ("last", "status"),
    [
        (event("ConversationErrorEvent", "environment", 9, code="LLMError", detail="no"), "error"),
        (event("ConversationErrorEvent", "environment", 9, code="MaxIterationsReached", detail="no"), "limit"),
        (event("ConversationStateUpdateEvent", "environment", 9, key="execution_status", value="stuck"), "error"),
    ],
)
def test_how_it_ended(last: dict[str, Any], status: str, tmp_path: Path) -> None:
    assert read_one("openhands", write_lines(tmp_path / "e", [*TALK[:4], last]))[0].outcome.status == status


def test_drift_and_silence(tmp_path: Path) -> None:
    summary = event("Condensation", "environment", 3, summary="so far", forgotten_event_ids=["x"])
    path = write_lines(tmp_path / "e", [PROMPT, event("NewEvent", "agent", 2), summary])
    _, (drop,), account = read("openhands", path)
    assert drop.reason == "no_agent_turn" and "1 NewEvent" in drop.detail and account.unknown == {"NewEvent": 1}


def test_events_of_version_0_are_refused_by_name(tmp_path: Path) -> None:
    event = {"id": 0, "source": "user", "action": "message", "args": {"content": "go"}}
    path = write_document(tmp_path / "trajectory.json", [event, {"id": 1, "source": "agent", "observation": "run"}])
    assert list(recognize(path)) == ["openhands"]
    traces, (drop,), account = read("openhands", path)
    assert not traces and drop.reason == "old_version" and account.records == 2
