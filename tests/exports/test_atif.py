"""ATIF: what others' models of the format say of it, and where the agents that a trace started lie."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import Phase, given, settings

from exports import any_traces
from exports.any_traces import SAID
from exports.reading import as_carried, export, read_back
from exports.test_row_formats import CALL, CALLING, RESULT, SYSTEM, TOOL, USER, make
from foretrace.core.errors import UsageError
from foretrace.core.trace import Parent, Part, Trace
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


@pytest.mark.parametrize("name", ["atif", "atif:1.8"])
def test_any_trace_is_a_trajectory_by_harbors_rules(name: str) -> None:
    @settings(phases=[Phase.generate], max_examples=12)
    @given(any_traces.traces())
    def check(trace: Trace) -> None:
        hold_harbors_rules(json.loads(export(name, Family(trace))))

    check()


def test_system_prompt_tools_and_version_are_written() -> None:
    trace = make(SYSTEM, USER, CALLING, RESULT, SAID)
    document = json.loads(export("atif", Family(trace)))
    assert document["schema_version"] == "ATIF-v1.7"
    assert json.loads(export("atif:1.8", Family(trace)))["schema_version"] == "ATIF-v1.8"
    assert [step["source"] for step in document["steps"]] == ["system", "user", "agent", "agent"]
    assert document["steps"][0]["message"] == "Rules."
    assert document["agent"]["tool_definitions"][0]["function"]["name"] == TOOL.name
    (result,) = document["steps"][2]["observation"]["results"]
    assert (result["source_call_id"], result["content"]) == ("a", "OBSERVATION:\nok")
    with pytest.raises(UsageError, match=r"ATIF is written in version 1\.7 or 1\.8"):
        make_format("atif:2.0")


def test_a_result_that_comes_late_lies_with_its_call_and_comes_back_in_its_place(tmp_path: Path) -> None:
    trace = make(USER, CALLING, SAID, USER, RESULT, SAID)
    data = export("atif", Family(trace))
    steps = json.loads(data)["steps"]
    assert [len(step.get("observation", {}).get("results", ())) for step in steps] == [0, 1, 0, 0, 0]
    (back,) = read_back("atif", data, tmp_path)
    assert back == as_carried(trace, "atif")


def test_sounds_are_there_from_version_8_on(tmp_path: Path) -> None:
    sound = Part(type="audio", media_type="audio/wav", ref="1.wav", at=2)
    trace = make(msgspec.structs.replace(USER, content="abcd", parts=(sound,)), SAID)
    for name, kept in (("atif", 1), ("atif:1.8", 0)):
        done = make_format(name).write(Family(trace))
        assert isinstance(done, Exported) and done.kept["messages.parts"] == kept
        assert isinstance(json.loads(done.data)["steps"][0]["message"], str) == bool(kept)
        assert read_back("atif", done.data, tmp_path) == [trace]


def test_the_agents_that_a_trace_started_lie_in_it_and_come_back(tmp_path: Path) -> None:
    root = make(USER, CALLING, RESULT, SAID)
    below = Family(started("k2", "k", "a"), [Family(started("k3", "k2"))])
    data = export("atif", Family(root, [below]))
    document = json.loads(data)
    hold_harbors_rules(document)
    (result,) = document["steps"][1]["observation"]["results"]
    assert result["subagent_trajectory_ref"] == [{"trajectory_id": "k2"}]
    back = read_back("atif", data, tmp_path)
    assert [(trace.key, trace.parent) for trace in back] == [
        ("k", None), ("k2", Parent(key="k", call_id="a")), ("k3", Parent(key="k2"))
    ]  # fmt: skip
    assert CALL.id == "a"
