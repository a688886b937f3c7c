"""ATIF: what others' models of the format say of it, and where the agents that a trace started lie."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import Phase, given, settings

from exports import any_traces
from exports.any_traces import SAID
from exports.reading import export, read_back
from exports.test_row_formats import CALL, CALLING, RESULT, SYSTEM, TOOL, USER, make
from foretrace.core.trace import Parent, Part, Sampled, Trace
from foretrace.exports.base import Exported, Family
from foretrace.registry import make_format


def hold_harbors_rules(document: dict[str, Any]) -> None:
    """What Harbor refuses beyond the types of fields."""
    for number, step in enumerate(document["steps"], 1):
        assert step["step_id"] == number
        own = {call["tool_call_id"] for call in step.get("tool_calls", ())}
        named = {r["source_call_id"] for r in step.get("observation", {}).get("results", ()) if "source_call_id" in r}
        assert named <= own, "a result of another step's call"
    for child in document.get("subagent_trajectories", ()):
        assert child["trajectory_id"]
        hold_harbors_rules(child)


def started(key: str, by: str, call_id: str | None = None) -> Trace:
    trace = make(USER, SAID)
    return msgspec.structs.replace(trace, key=key, parent=Parent(key=by, call_id=call_id))


@settings(phases=[Phase.generate], max_examples=12)
@given(any_traces.traces())
def test_any_trace_is_a_trajectory_by_harbors_rules(trace: Trace) -> None:
    hold_harbors_rules(json.loads(export("atif", Family(trace))))


def test_system_prompt_tools_and_version_are_written() -> None:
    trace = make(SYSTEM, USER, CALLING, RESULT, SAID)
    document = json.loads(export("atif", Family(trace)))
    assert document["schema_version"] == "ATIF-v1.7"
    assert [step["source"] for step in document["steps"]] == ["system", "user", "agent", "agent"]
    assert document["steps"][0]["message"] == "Rules."
    assert document["agent"]["tool_definitions"][0]["function"]["name"] == TOOL.name
    (result,) = document["steps"][2]["observation"]["results"]
    assert (result["source_call_id"], result["content"]) == ("a", "OBSERVATION:\nok")


def test_a_result_that_comes_late_lies_with_its_call() -> None:
    trace = make(USER, CALLING, SAID, USER, RESULT, SAID)
    steps = json.loads(export("atif", Family(trace)))["steps"]
    assert [len(step.get("observation", {}).get("results", ())) for step in steps] == [0, 1, 0, 0, 0]


def test_replies_that_call_before_the_results_come_are_one_step(tmp_path: Path) -> None:
    other = msgspec.structs.replace(CALL, id="b")
    calling = msgspec.structs.replace(CALLING, content="", tool_calls=(other,))
    answer = msgspec.structs.replace(RESULT, tool_call_ids=("b",))
    trace = make(USER, CALLING, calling, RESULT, answer, CALLING, RESULT)
    data = export("atif", Family(trace))
    hold_harbors_rules(json.loads(data))
    (back,) = read_back("atif", data, tmp_path)
    made = [[call.id for call in message.tool_calls] or list(message.tool_call_ids) for message in back.messages]
    assert made == [[], ["a", "b"], ["a"], ["b"], ["a"], ["a"]]
    assert back.messages[1].content == CALLING.content
    spoken = make(USER, CALLING, msgspec.structs.replace(calling, content="Two."), RESULT, answer)
    (back,) = read_back("atif", export("atif", Family(spoken)), tmp_path)
    assert [message.content for message in back.messages if message.role == "assistant"] == [CALLING.content, "Two."]


def test_results_that_lose_their_place_or_their_role_are_counted() -> None:
    trace = make(RESULT, USER, CALLING, SAID, USER, RESULT, SAID)
    exported = make_format("atif").write(Family(trace))
    assert isinstance(exported, Exported)
    assert (exported.lost["results.role"], exported.lost["results.place"]) == (1, 1)


def test_what_is_carried_comes_back(tmp_path: Path) -> None:
    sampled = Sampled(token_ids=(7, 8), logprobs=(-sys.float_info.max, -1e300), exact="token")
    image = Part(type="image", media_type="image/png", ref="1.png", at=2)
    said = msgspec.structs.replace(CALLING, sampled=sampled, started="2026-01-01T00:00:00+00:00")
    failed = msgspec.structs.replace(RESULT, prefix="", is_error=True)
    trace = make(SYSTEM, msgspec.structs.replace(USER, parts=(image,)), said, failed, SAID)
    (back,) = read_back("atif", export("atif", Family(trace)), tmp_path)
    assert (back.tools, back.provenance.model) == (trace.tools, "m")
    fields = ("role", "content", "reasoning", "tool_calls", "tool_call_ids", "is_error", "sampled", "parts")
    assert back.messages[2].started == said.started
    for read, message in zip(back.messages, trace.messages, strict=True):
        assert [getattr(read, name) for name in fields] == [getattr(message, name) for name in fields]


def test_the_agents_that_a_trace_started_lie_in_it_and_come_back(tmp_path: Path) -> None:
    root = make(USER, CALLING, RESULT, SAID)
    below = Family(started("k2", "k", "a"), [Family(started("k3", "k2"))])
    data = export("atif", Family(root, [below]))
    document = json.loads(data)
    hold_harbors_rules(document)
    (result,) = document["steps"][1]["observation"]["results"]
    assert result["subagent_trajectory_ref"] == [{"trajectory_id": "k2"}]
    back = read_back("atif", data, tmp_path)
    parents = {"k": None, "k2": Parent(key="atif@k", call_id=CALL.id), "k3": Parent(key="atif@k2")}
    assert {trace.key: trace.parent for trace in back} == {f"atif@{key}": by for key, by in parents.items()}
