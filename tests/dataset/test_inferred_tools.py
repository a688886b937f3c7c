"""Tools that are inferred where the source gives none: from other train groups alone, bounded, in any order."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import msgspec
import pytest

import foretrace
from dataset.little import attempt, calls, rows, says, seen, system, trace, tree, user
from foretrace.core.store import write_traces
from foretrace.core.trace import Message, ToolSpec, Trace
from foretrace.dataset import inferred_tools
from foretrace.dataset.inferred_tools import DESCRIPTION, InferredTools

AGENT = system("You are a careful agent that books rooms and answers letters.")


def of_group(group: str, *messages: Message, **more: Any) -> Trace:
    return trace(f"{group}/{len(messages)}", AGENT, user("Go."), *messages, task=group, group=group, **more)


def infer(*traces: Trace) -> InferredTools:
    found = InferredTools()
    for each in traces:
        found.add_trace(each)
    return found


def offered(found: InferredTools, group: str = "new", first: Message = AGENT) -> dict[str, dict[str, Any]]:
    """The tools that a trace without calls is offered, and the schemas of their arguments."""
    tools = found.offer(trace("k", first, user("Go."), says("Done."), group=group)).tools
    assert all(tool.description == DESCRIPTION for tool in tools)
    return {tool.name: json.loads(tool.parameters)["properties"] for tool in tools}


def test_names_arguments_and_types_of_other_groups() -> None:
    found = infer(
        of_group("a", calls("book", {"room": 3, "late": True, "tags": []}), calls("send", {"to": "x"})),
        of_group("b", calls("book", {"room": "3b", "price": 1.5, "more": {}, "note": None})),
    )
    assert offered(found) == {
        "book": {
            "late": {"type": "boolean"},
            "more": {"type": "object"},
            "note": {"type": "null"},
            "price": {"type": "number"},
            "room": {"type": ["integer", "string"]},
            "tags": {"type": "array"},
        },
        "send": {"to": {"type": "string"}},
    }


def test_a_row_is_not_told_of_its_own_future_nor_of_its_siblings() -> None:
    found = infer(
        of_group("a", calls("book", {"room": 3, "late": True}), calls("send", {"to": "x"})),
        of_group("b", calls("book", {"room": "3b"})),
        of_group("c", calls("drop", "not json")),
    )
    assert offered(found, "a") == {"book": {"room": {"type": "string"}}, "drop": {}}
    assert offered(found, "b")["book"] == {"late": {"type": "boolean"}, "room": {"type": "integer"}}
    assert "drop" not in offered(found, "c")


def test_who_is_offered_tools() -> None:
    found = infer(of_group("a", calls("book", {})))
    assert offered(found, first=system("You are another agent, which has a quite different text.")) == {}
    assert offered(found, first=system("You are helpful.")) == {}
    own = trace("k", AGENT, says("Done."), tools=(ToolSpec(name="own"),))
    assert found.offer(own) is own
    short = infer(trace("k", system("You are helpful."), calls("book", {})))
    assert short.agents == {}
    one, two = trace("a", user("One"), calls("book", {}), group="a"), trace("b", user("Two"), says("Done."))
    origin = msgspec.structs.replace(one.provenance, agent="Rook")
    one, two = (msgspec.structs.replace(each, provenance=origin) for each in (one, two))
    assert [tool.name for tool in infer(one).offer(two).tools] == ["book"]


def test_what_is_not_taken_for_a_tool() -> None:
    broken = says("x", tool_calls=(msgspec.structs.replace(calls("bad", {}).tool_calls[0], error="cut"),))
    shown = msgspec.structs.replace(calls("shown", {}), author="demo")
    found = infer(of_group("a", broken, shown, calls("not a name\n", {}), calls("ok", {"a b": 1, "c": 1})))
    assert offered(found) == {"ok": {"c": {"type": "integer"}}}
    assert infer(of_group("a", calls("book", {}), tools=(ToolSpec(name="book"),))).agents == {}


def test_the_order_of_jobs_does_not_matter() -> None:
    rng = random.Random(1)

    def call() -> Message:
        return calls(rng.choice("abc"), {rng.choice("xyz"): rng.choice([1, "1"])})

    traces = [of_group(f"g{rng.randrange(9)}", call(), call()) for _ in range(40)]
    whole = infer(*traces)
    for _ in range(5):
        rng.shuffle(traces)
        merged = InferredTools()
        for at in range(0, 40, 7):
            merged.merge(infer(*traces[at : at + 7]))
        assert merged == whole


def test_too_many_are_none_whatever_the_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inferred_tools, "MAX_TOOLS", 3)
    monkeypatch.setattr(inferred_tools, "MAX_ARGUMENTS", 3)
    monkeypatch.setattr(inferred_tools, "MAX_BEGINNINGS", 3)
    many = [of_group("a", calls(f"t{n}", {})) for n in range(4)]
    assert set(offered(infer(*many[:3]))) == {"t0", "t1", "t2"} and offered(infer(*many)) == {}
    half = infer(*many[:2])
    half.merge(infer(*many[2:]))
    assert half == infer(*many)
    half.merge(infer(many[0]))
    assert offered(half) == {}
    wide = infer(*(of_group("a", calls("t", {f"x{n}": 1})) for n in range(4)))
    assert offered(wide) == {"t": {}}
    people = [trace("k", system(f"{n} is the number of this quite wordy agent."), calls("t", {})) for n in range(4)]
    assert infer(*people[:3]).agents != {"little beginning": None} == infer(*people).agents
    one = infer(people[0])
    one.merge(infer(*people))
    assert one == infer(*people) and offered(one, first=people[0].messages[0]) == {}


def make_traces() -> list[Trace]:
    """Attempts in 12 groups; those of one group call a tool that no other does."""
    traces: list[Trace] = []
    for number in range(12):
        rng = random.Random(number)
        made = attempt(f"k{number}", rng, name=f"repo-{number}", task=f"t{number}", group=f"g{number}")
        messages = [AGENT, *made.messages[1:-1], calls(f"only_{number}", {}), seen("ok"), made.messages[-1]]
        traces.append(msgspec.structs.replace(made, messages=tuple(messages)))
    return traces


def test_prompts_tell_of_tools_of_other_train_groups_alone(tmp_path: Path) -> None:
    write_traces(make_traces(), tmp_path / "traces")
    settings: dict[str, Any] = {"split": (0.5, 0.25, 0.25), "statistical_gates": False, "recipes": ["proposer"]}
    report = foretrace.build(tmp_path / "traces", out=tmp_path / "one", **settings)
    found = list(rows(tmp_path / "one", "proposer"))
    train = {row["group"] for row in found if row["split"] == "train"}
    assert 3 <= len(train) < 12 and {row["split"] for row in found} == {"train", "validation", "test"}
    for row in found:
        told = {f"g{n}" for n in range(12) if f'{{"name":"only_{n}"' in row["prompt"][0]["content"]}
        assert told == train - {row["group"]}
        assert DESCRIPTION in row["prompt"][0]["content"]
    assert report.manifest["counts"]["traces_with_inferred_tools"] == 12
    foretrace.build(tmp_path / "traces", out=tmp_path / "two", workers=2, **settings)
    assert tree(tmp_path / "one") == tree(tmp_path / "two")
