"""Rows for trainers: what the source `chat` reads of them is what was said and done."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from msgspec.structs import replace

from exports import any_traces
from exports.any_traces import SAID
from exports.reading import count_turns, export, read_rows
from foretrace.core.trace import Message, Outcome, Part, Provenance, Task, ToolCall, ToolSpec, Trace
from foretrace.exports.base import Exported, Family
from foretrace.registry import make_format
from foretrace.rows.base import Drop
from foretrace.sources.own_fields import normalize_object

ROWS = ("chat", "openai", "verifiers_sft", "sharegpt")
SYSTEM = Message(role="system", author="user", content="Rules.")
USER = Message(role="user", author="user", content="Task.")
CALL = ToolCall(id="a", name="run", arguments='{"x": 1}')
CALLING = Message(role="assistant", author="model", content="Let me see.", reasoning="Hm.", tool_calls=(CALL,))
RESULT = Message(role="tool", author="environment", content="ok", prefix="OBSERVATION:\n", tool_call_ids=("a",))
TOOL = ToolSpec(name="run", description="Runs.", parameters='{"type": "object", "properties": {}}')


def make(*messages: Message, **more: Any) -> Trace:
    """A trace of these messages."""
    origin = Provenance(origin="generated", source="made", model="m")
    return Trace(key="k", task=Task(id="t", group="g"), tools=(TOOL,), messages=messages, provenance=origin, **more)


def row(name: str, trace: Trace) -> dict[str, Any]:
    return json.loads(export(name, Family(trace)))


@pytest.mark.parametrize("name", ROWS)
def test_a_conversation_comes_back(name: str) -> None:
    trace = make(SYSTEM, USER, CALLING, RESULT, SAID)
    (back,) = read_rows(export(name, Family(trace)))
    assert [m.role for m in back.messages] == ["system", "user", "assistant", "tool", "assistant"]
    assert back.messages[0].content == "Rules."
    assert back.tools == trace.tools
    (call,) = back.messages[2].tool_calls
    assert (call.name, call.arguments) == ("run", '{"x": 1}')
    if name != "sharegpt":
        assert back.messages[2].content == "Let me see."
        assert back.messages[3].tool_call_ids == (call.id,) == ("a",)
    if name in ("chat", "verifiers_sft"):
        assert back.messages[2].reasoning == "Hm."
    if name != "chat":
        assert (back.messages[3].prefix + back.messages[3].content).endswith("OBSERVATION:\nok")


@pytest.mark.parametrize("name", ROWS)
def test_any_trace_keeps_its_turns_and_is_stable(name: str) -> None:
    @settings(phases=[Phase.generate], max_examples=12)
    @given(any_traces.traces(outcome=Outcome(success=True, reward=0.5)))
    def check(trace: Trace) -> None:
        calls = tuple(ToolCall(name="run", arguments=text) for text in ('{"a": 1}', "{}"))
        plain: dict[str, Any] = {"parts": (), "continues": False}
        said = tuple(
            replace(m, **plain, tool_calls=calls[: len(m.tool_calls)], tool_call_ids=m.tool_call_ids[:1])
            for m in trace.messages
        )
        trace = replace(trace, messages=said)
        if make_format(name).write(Family(trace)) == Drop("unanswered_calls"):
            return
        data = export(name, Family(trace))
        (back,) = read_rows(data)
        before, after = count_turns(trace), count_turns(back)
        assert (before["turns"], before["calls"]) == (after["turns"], after["calls"])
        found = [(c.name, normalize_object(c.arguments)) for m in back.messages for c in m.tool_calls]
        assert found == [(c.name, c.arguments) for m in said for c in m.tool_calls]
        if name in ("chat", "sharegpt"):
            facts = back.task.id, back.task.group, back.outcome.success, back.outcome.reward, back.provenance.model
            assert facts == (trace.task.id, trace.task.group, True, 0.5, trace.provenance.model)
        again = export(name, Family(back))
        (third,) = read_rows(again)
        assert count_turns(third) == after

    check()


def test_openai_says_what_is_to_be_learned_and_nothing_that_it_does_not_know() -> None:
    demo = replace(SAID, author="demo")
    never, always = (replace(SAID, train=train) for train in (False, True))
    made = row("openai", make(USER, demo, USER, never, USER, always, USER, SAID))
    assert made.keys() == {"messages", "tools"}
    assert [m.get("weight") for m in made["messages"] if m["role"] == "assistant"] == [0, 0, 1, None]
    (back,) = read_rows(export("openai", Family(make(USER, never))))
    assert back.messages[1].train is False


def test_openai_answers_each_call_and_has_no_result_without_one() -> None:
    both = replace(CALLING, tool_calls=(CALL, replace(CALL, id="b")))
    one = replace(RESULT, tool_call_ids=("a", "b"))
    made = row("openai", make(USER, both, one))["messages"]
    assert [(m["role"], m.get("tool_call_id")) for m in made[2:]] == [("tool", "a"), ("tool", "b")]
    alone = make(USER, SAID, replace(RESULT, tool_call_ids=()), SAID)
    assert row("openai", alone)["messages"][2] == {"role": "user", "content": "OBSERVATION:\nok"}
    for name in ("openai", "verifiers_sft"):
        found = [make_format(name).write(Family(trace)) for trace in (alone, make(USER, both, one))]
        assert [done.lost["results.role"] for done in found if isinstance(done, Exported)] == [1, 0]


def test_openai_has_a_call_without_a_result_in_the_last_message_only() -> None:
    assert [m["role"] for m in row("openai", make(USER, CALLING))["messages"]] == ["user", "assistant"]
    assert make_format("openai").write(Family(make(USER, CALLING, SAID))) == Drop("unanswered_calls")


def test_an_image_that_can_be_fetched_is_kept_and_any_other_is_lost() -> None:
    parts = (Part(type="image_url", ref="https://x/1.png", at=2), Part(type="file", ref="a.csv"))
    for kept, lost in ((parts[:1], 0), (parts, 1)):
        trace = make(replace(USER, content="abcd", parts=kept), SAID)
        done = make_format("openai").write(Family(trace))
        assert isinstance(done, Exported) and done.lost["messages.parts"] == lost
        content = json.loads(done.data)["messages"][0]["content"]
        assert [piece.get("text") for piece in content] == ["ab", None, "cd"]


@pytest.mark.slow
def test_verifiers_rows_have_the_columns_of_its_own_export() -> None:
    made = row("verifiers_sft", make(SYSTEM, USER, CALLING, RESULT, SAID))
    assert made.keys() == {"messages", "tool_defs"}
    types = pytest.importorskip("verifiers.v1.types", reason="the verifiers library is not installed")
    for tool in json.loads(made["tool_defs"]):
        assert types.Tool(**tool).name == "run"
    failed = make(USER, SAID, outcome=Outcome(status="error"))
    assert make_format("verifiers_sft").write(Family(failed)) == Drop("ended_in_error")
    broken = ToolCall(id="a", name="run", arguments="{}", error="no_json", extra={"raw": '{"x": '})
    said = replace(CALLING, tool_calls=(broken,))
    assert make_format("verifiers_sft").write(Family(make(USER, said))) == Drop("unreadable_arguments")


def test_sharegpt_leaves_calls_that_can_be_read_as_they_stand() -> None:
    text = 'So:\n<tool_call>\n{"name":"run","arguments":{"x":1}}\n</tool_call>'
    written = replace(CALL, id="", span=(4, len(text)))
    said = replace(CALLING, content=text, tool_calls=(written,))
    turns = row("sharegpt", make(SYSTEM, USER, said, RESULT, SAID))["conversations"]
    assert [turn["from"] for turn in turns] == ["system", "human", "gpt", "observation", "gpt"]
    assert turns[2]["value"] == text
    native = row("sharegpt", make(USER, CALLING, RESULT))["conversations"][1]["value"]
    assert native == 'Let me see.\n<tool_call>\n{"name": "run", "arguments": {"x": 1}}\n</tool_call>'
    other = replace(said, content="```sh\nls\n```", tool_calls=(replace(written, span=(0, 12)),))
    assert "```" not in row("sharegpt", make(USER, other))["conversations"][1]["value"]


@pytest.mark.parametrize("name", [n for n in ROWS if n != "chat"])
def test_a_trace_without_the_agent_is_no_row(name: str) -> None:
    assert make_format(name).write(Family(make(SYSTEM, USER))) == Drop("no_agent_turn")


def test_rows_are_loaded_by_datasets(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets", reason="the datasets library is not installed")
    other = ToolSpec(name="other", parameters='{"type": "object", "properties": {"x": {"type": "integer"}}}')
    for name in ("sharegpt", "verifiers_sft"):
        plain, odd = make(SYSTEM, USER, CALLING, RESULT, SAID), make(USER, SAID)
        data = export(name, Family(plain), Family(replace(odd, tools=(other,))))
        (tmp_path / f"{name}.jsonl").write_bytes(data)
        options = {"data_files": str(tmp_path / f"{name}.jsonl"), "cache_dir": str(tmp_path / "cache")}
        assert len(datasets.load_dataset("json", split="train", **options)) == 2
