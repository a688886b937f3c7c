"""ATIF: copied context, subagents, results of another step, tokens, and times that only some writers give."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from foretrace.core.trace import Parent
from foretrace.sources.formats.atif import Atif
from sources.formats.reading import SHARED, count, needs_shared, read, read_one, write_document


def document(*steps: dict[str, Any], **more: Any) -> dict[str, Any]:
    numbered = [{"step_id": i, **step} for i, step in enumerate(steps, 1)]
    return {"schema_version": "ATIF-v1.6", "session_id": "s", "agent": {"name": "a", "version": "1"},
            "steps": numbered, **more}  # fmt: skip


def user(text: str, **more: Any) -> dict[str, Any]:
    return {"source": "user", "message": text, **more}


def agent(text: str, **more: Any) -> dict[str, Any]:
    return {"source": "agent", "message": text, **more}


CALL = {"tool_call_id": "c", "function_name": "bash", "arguments": {"command": "ls"}}


@needs_shared
def test_every_field_of_1_8() -> None:
    (trace,), (drop,), account = read("atif", SHARED / "atif" / "synthetic_v1.8_all_fields.json")
    assert account.used == 7 and drop.reason == "no_agent_turn" and "1 user steps" in drop.detail
    assert trace.tools[0].name == "bash" and trace.extra["continued_trajectory_ref"] == "traj.cont-1.json"
    _, asked, reply, ran, started, dispatched, _, copied = trace.messages
    assert [(p.type, p.ref, p.at) for p in asked.parts] == [("image", "images/a.png", 5), ("audio", "a.mp3", 5)]
    sampled = reply.sampled
    assert reply.reasoning == "think" and sampled is not None and sampled.exact == "token"
    assert (sampled.token_ids, sampled.prompt_token_ids, len(sampled.logprobs)) == ((5, 6, 7), (1, 2), 3)
    assert reply.tool_calls[0].extra == {"timeout": 5} and ran.is_error is False
    assert reply.extra["metrics"] == {"cached_tokens": 4, "cost_usd": 0.001, "extra": {"reasoning_tokens": 1}}
    assert started.tool_call_ids == ("c2",) and dispatched.author == "environment"
    assert copied.author == "environment" and copied.train is False


def test_a_result_answers_the_calls_of_its_own_step_only(tmp_path: Path) -> None:
    late = agent("", observation={"results": [{"source_call_id": "c", "content": "late"}]})
    trace, account = read_one("atif", write_document(tmp_path / "t.json", document(agent("", tool_calls=[CALL]), late)))
    assert trace.messages[-1].tool_call_ids == () and trace.messages[-1].extra == {"source_call_id": "c"}
    assert account.notes == {"results of another step's call": 1, "calls without a result": 1}


def test_a_result_without_a_call_answers_all_of_the_step(tmp_path: Path) -> None:
    """Terminus: one screen for all keystrokes of a step; and a step whose action is not a call at all."""
    two = [CALL, {**CALL, "tool_call_id": "d"}]
    screen = {"results": [{"content": "$ ls"}]}
    each = {"results": [{"content": "1"}, {"content": "2"}]}
    path = write_document(tmp_path / "t.json", document(agent("", tool_calls=two, observation=screen),
                                                        agent("{}", observation=screen)))  # fmt: skip
    trace, account = read_one("atif", path)
    assert [m.tool_call_ids for m in trace.messages if m.role == "tool"] == [("c", "d"), ()] and not account.notes
    path = write_document(tmp_path / "t.json", document(agent("", tool_calls=two, observation=each)))
    trace, _ = read_one("atif", path)
    assert [m.tool_call_ids for m in trace.messages if m.role == "tool"] == [("c",), ("d",)]


def test_subagents_are_traces_of_their_own(tmp_path: Path) -> None:
    result = {"source_call_id": "c", "subagent_trajectory_ref": [{"trajectory_id": "sub"}]}
    start = agent("", tool_calls=[CALL], observation={"results": [result]})
    inner = [document(user("x"), agent("inside"), trajectory_id=name) for name in ("sub", "other")]
    path = write_document(tmp_path / "t.json", document(start, subagent_trajectories=inner))
    traces, drops, _ = read("atif", path)
    assert not drops and [t.key for t in traces] == ["atif@s", "atif@s/sub", "atif@s/other"]
    assert [t.parent for t in traces[1:]] == [Parent(key="atif@s", call_id="c"), Parent(key="atif@s")]
    assert len({t.task.group for t in traces}) == 1 and len({t.task.id for t in traces}) == 3


def test_the_key_outlives_a_move_and_growth(tmp_path: Path) -> None:
    short, long = document(user("a"), agent("b"), user("c")), document(user("a"), agent("b"), user("c"), agent("d"))
    del short["session_id"], long["session_id"]
    one, _ = read_one("atif", write_document(tmp_path / "one.json", short))
    two, _ = read_one("atif", write_document(tmp_path / "two.json", long))
    assert one.key == two.key


def test_no_agent_and_unknown_sources(tmp_path: Path) -> None:
    steps = [user("a"), {"source": "critic", "message": "b"}, "no step"]
    path = write_document(tmp_path / "t.json", {**document(), "steps": steps})
    traces, (drop,), account = read("atif", path)
    assert not traces and "1 critic steps" in drop.detail
    assert account.unknown == {"step of 'critic'": 1} and account.dropped == {"not_an_object": 1}


@pytest.mark.parametrize(("version", "notes"), [("ATIF-v1.8", 0), ("ATIF-v9.9", 1)])
def test_a_version_that_is_not_known_is_read_and_noted(tmp_path: Path, version: str, notes: int) -> None:
    path = write_document(tmp_path / "t.json", document(user("x"), agent("y"), schema_version=version))
    trace, account = read_one("atif", path)
    assert count(trace)["turns"] == 1 and account.notes.total() == notes
    assert all(version in note for note in account.notes)


REWARDED = {"trial_name": "t", "task_name": "org/clamp", "verifier_result": {"rewards": {"reward": 1.0}}}


@pytest.mark.parametrize(
    ("more", "success", "reward", "status"),
    [
        ({}, True, 1.0, "done"),
        ({"verifier_result": {"rewards": {"reward": 0.5, "style": 1}}}, False, 0.5, "done"),
        ({"verifier_result": {"rewards": {"only": 0}}}, False, 0.0, "done"),
        ({"verifier_result": {"rewards": {"a": 1, "b": 0}}}, None, None, "done"),
        ({"verifier_result": None, "exception_info": {"exception_type": "AgentTimeoutError"}}, None, None, "error"),
    ],
)
def test_harbor_says_which_task_and_reward(
    tmp_path: Path, more: dict[str, Any], success: bool | None, reward: float | None, status: str
) -> None:
    (tmp_path / "agent").mkdir()
    result = write_document(tmp_path / "result.json", {**REWARDED, **more})
    path = write_document(tmp_path / "agent" / "trajectory.json", document(user("a"), agent("b")))
    trace, _ = read_one("atif", path)
    assert (trace.task.id, trace.outcome.success, trace.outcome.reward) == ("org/clamp", success, reward)
    assert trace.outcome.status == status and list(Atif().list_companions(path)) == [result]
