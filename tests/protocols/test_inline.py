"""`inline`: calls inside an open think, answers injected into the same turn, final code behind it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from foretrace.core.completion import Completion
from protocols.play import RIGHT, WRONG, Stage

FINAL = f"So it is a plus.\n</think>\n```python\n{RIGHT}```"


def call(code: str, thought: str = "I try it out.", **more: Any) -> str:
    body = json.dumps({"name": "python", "arguments": {"code": code}, **more})
    return f"{thought}\n<tool_call>{body}</tool_call>"


def test_the_closing_tag_that_stopped_the_model_is_put_back(stage: Stage) -> None:
    stopped = "<think>" + call("print(2)").removesuffix("</tool_call>")
    played = stage.play("inline", stopped, FINAL)
    assert played.models[0].content == stopped + "</tool_call>"
    made = played.models[0].tool_calls[0]
    assert made.repairs == () and made.span is not None
    assert played.models[0].content[slice(*made.span)].startswith("<tool_call>{")


TWICE = '<think>Both.\n<tool_call>{"name": "python", "arguments": {"code": "a = 1", "code": "a = 2"}}</tool_call>'
SHELL = '<think>\n<tool_call>{"name": "bash", "arguments": {"command": "ls"}}</tool_call>'


@pytest.mark.parametrize(
    ("reply", "why", "name"),
    [
        (Completion(text="<think>\n" + call("print(3)")[:-20], finish="length"), "cut off", "python"),
        (TWICE, "more than once", "python"),
        (SHELL, "no tool 'bash'", "bash"),
        ("<think>\n" + call(" "), "is empty", "python"),
    ],
)
def test_what_cannot_be_read_surely_is_refused(stage: Stage, reply: str | Completion, why: str, name: str) -> None:
    played = stage.play("inline", reply, FINAL)
    assert why in played.said[0] and played.metrics["execution_count"] == 0
    made = played.models[0].tool_calls[0]
    assert made.error is not None and made.name == name and played.trace.outcome.success


def test_thinking_that_stops_is_told_to_go_on(stage: Stage) -> None:
    played = stage.play("inline", "<think>\nIt must be the sum of both.", FINAL)
    assert "close </think>" in played.said[0] and played.labels == ["nonstep.prompted", "final_answer"]
    reminder = played.trace.messages[3]
    assert stage.play("inline", "", FINAL).labels == ["nonstep.lost", "final_answer"]
    assert (reminder.role, reminder.injected, reminder.tool_call_ids) == ("tool", True, ())


def test_the_final_code_may_be_cut_or_missing_and_is_asked_for_again(stage: Stage) -> None:
    cut = Completion(text=FINAL[:-12], finish="length")
    played = stage.play("inline", cut, f"```python\n{RIGHT}```")
    assert "cut off" in played.said[0] and played.trace.outcome.success
    played = stage.play("inline", "<think>A sum it is.</think>\nIt is the sum.", f"```python\n{RIGHT}```")
    assert "there is no code yet" in played.said[0] and played.trace.outcome.success
    played = stage.play("inline", f"<think>A sum it is.</think>\n{RIGHT}")
    assert played.trace.outcome.success, "bare code behind the thinking"


def test_a_think_tag_in_the_code_of_a_call_ends_nothing(stage: Stage) -> None:
    played = stage.play("inline", "<think>\n" + call("print('</think>')"), FINAL)
    assert played.said[0] == "\n<tool_response>\n&lt;/think>\n</tool_response>\n" and played.trace.outcome.success


def test_a_call_behind_the_thinking_is_answered_before_the_answer_is_read(stage: Stage) -> None:
    late = "<think>I have it now.</think>\n" + call("print(8)")
    played = stage.play("inline", late, f"```python\n{RIGHT}```")
    assert played.said == ["\n<tool_response>\n8\n</tool_response>\n"] and played.trace.outcome.success


def test_a_model_that_does_not_think_in_tags_may_answer(stage: Stage) -> None:
    played = stage.play("inline", f"The sum of both:\n```python\n{RIGHT}```\n")
    assert played.labels == ["final_answer"] and played.trace.outcome.success
    played = stage.play("inline", f"<think>A draft of it:\n```python\n{WRONG}```\n", FINAL)
    assert played.labels == ["nonstep.prompted", "final_answer"] and played.trace.outcome.success
