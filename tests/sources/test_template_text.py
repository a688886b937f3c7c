"""Conversations that are one text: control tokens of chat templates, and ReAct with its observations."""

from __future__ import annotations

import json
from typing import Any

import pytest

from foretrace.core.trace import Trace
from foretrace.rows.base import RowRef
from foretrace.sources.chat import Chat

CALL = '<tool_call>\n{"name": "look", "arguments": {"city": "Oslo"}}\n</tool_call>'
CHAT_ML = (
    f"<|im_start|>user\nWeather?<|im_end|>\n<|im_start|>assistant\n<think>\nHm.\n</think>\n\n{CALL}<|im_end|>\n"
    "<|im_start|>user\n<tool_response>\n3 C\n</tool_response><|im_end|>\n<|im_start|>assistant\nIt is 3 C.<|im_end|>\n"
)
LLAMA = (
    "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nWeather?<|eot_id|>"
    "<|start_header_id|>assistant<|end_header_id|>\n\n<|python_tag|>"
    '{"name": "look", "parameters": {"city": "Oslo"}}<|eom_id|>'
    "<|start_header_id|>ipython<|end_header_id|>\n\n3 C<|eot_id|>"
    "<|start_header_id|>assistant<|end_header_id|>\n\nIt is 3 C.<|eot_id|>"
)
HARMONY = (
    "<|start|>user<|message|>Weather?<|end|><|start|>assistant<|channel|>analysis<|message|>Hm.<|end|>"
    '<|start|>assistant<|channel|>commentary to=functions.look <|constrain|>json<|message|>{"city": "Oslo"}<|call|>'
    "<|start|>functions.look to=assistant<|channel|>commentary<|message|>3 C<|end|>"
    "<|start|>assistant<|channel|>final<|message|>It is 3 C.<|return|>"
)
REACT = (
    'Question: Weather?\nThought: Hm.\nAction: look\nAction Input: {"city": "Oslo"}\nObservation: 3 C\n'
    "Thought: I know.\nFinal Answer: It is 3 C."
)


def read(row: dict[str, Any]) -> Trace:
    trace = Chat().to_trace(row, RowRef(0))
    assert isinstance(trace, Trace)
    return trace


@pytest.mark.parametrize(
    "row",
    [{"text": CHAT_ML}, {"prompt_and_reply": LLAMA}, {"text": HARMONY}, {"trajectory": REACT}],
    ids=["ChatML", "Llama", "Harmony", "ReAct"],
)
def test_a_call_its_result_and_an_answer(row: dict[str, Any]) -> None:
    trace = read(row)
    assert [m.role for m in trace.messages] == ["user", "assistant", "tool", "assistant"]
    assert "Weather?" in trace.messages[0].content and "3 C" in trace.messages[2].content
    (call,) = trace.messages[1].tool_calls
    assert call.name == "look" and json.loads(call.arguments) == {"city": "Oslo"}
    assert "It is 3 C." in trace.messages[3].content
    assert trace.messages[1].reasoning == ("Hm." if "text" in row else None)


def test_observations_that_the_program_wrote_into_a_reply_are_results() -> None:
    """CrewAI puts what a tool gave behind the action, in the same message."""
    said = 'Thought: Hm.\nAction: look\nAction Input: {"city": "Oslo"}'
    messages = [
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "content": f"{said}\nObservation: 3 C"},
        {"role": "assistant", "content": "Final Answer: It is 3 C."},
    ]
    trace = read({"messages": messages})
    assert [m.role for m in trace.messages] == ["user", "assistant", "tool", "assistant"]
    assert (trace.messages[1].content, trace.messages[2].content) == (said, "3 C")
    assert trace.messages[2].prefix == "Observation: "


def test_an_observation_that_something_answers_was_made_up() -> None:
    said = 'Action: look\nAction Input: {"city": "Oslo"}\nObservation: 9 C'
    messages = [
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "content": said},
        {"role": "user", "content": "Observation: 3 C"},
        {"role": "assistant", "content": "Final Answer: It is 3 C."},
    ]
    trace = read({"messages": messages})
    assert [m.role for m in trace.messages] == ["user", "assistant", "tool", "assistant"]
    assert trace.messages[1].content == said
