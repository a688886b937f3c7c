"""Conversations that are one text with the control tokens of a chat template."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from foretrace.core.trace import Trace
from foretrace.rows.base import RowRef
from foretrace.sources.base import RowError
from foretrace.sources.chat import Chat
from foretrace.sources.row_turns import find_turns, split_template

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


def read(row: dict[str, Any]) -> Trace:
    trace = Chat().to_trace(row, RowRef(0))
    assert isinstance(trace, Trace)
    return trace


@pytest.mark.parametrize(
    "row",
    [
        {"text": CHAT_ML},
        {"prompt": CHAT_ML.partition("<think>")[0], "completion": "<think>" + CHAT_ML.partition("<think>")[2]},
        {"prompt_and_reply": LLAMA},
    ],
    ids=["ChatML", "halves", "Llama"],
)
def test_a_call_its_result_and_an_answer(row: dict[str, Any]) -> None:
    trace = read(row)
    assert [m.role for m in trace.messages] == ["user", "assistant", "tool", "assistant"]
    assert "Weather?" in trace.messages[0].content and "3 C" in trace.messages[2].content
    (call,) = trace.messages[1].tool_calls
    assert call.name == "look" and json.loads(call.arguments) == {"city": "Oslo"}
    assert "It is 3 C." in trace.messages[3].content
    assert trace.messages[1].reasoning == (None if "prompt_and_reply" in row else "Hm.")


def write_chat_ml(*turns: tuple[str, str]) -> str:
    return "".join(f"<|im_start|>{role}\n{said}<|im_end|>\n" for role, said in turns)


@pytest.mark.parametrize(
    "text",
    [
        "<|im_start|>user\nHello<|im_end|> STRAY <|im_start|>assistant\nHi.<|im_end|>",
        write_chat_ml(("user", "What does <|im_end|> do?"), ("assistant", "It ends.")),
        write_chat_ml(("user", "Hello"), ("assistant", "Hi.")) + "STRAY",
        "<|im_start|>user STRAY\nHello<|im_end|><|im_start|>assistant\nHi.<|im_end|>",
        "<|im_start|>user\nHello\n<|im_start|>assistant\nHi.<|im_end|>",
        LLAMA.replace("<|eot_id|>", "<|eot_id|>STRAY", 1),
    ],
    ids=["between", "quoted", "behind", "in a header", "no end", "Llama"],
)
def test_text_that_is_in_no_turn_refuses_the_row(text: str) -> None:
    with pytest.raises(RowError) as caught:
        read({"text": text})
    assert caught.value.drop.reason == "stray_text"


def test_of_two_conversations_none_is_taken() -> None:
    bad, good = (write_chat_ml(("user", "q"), ("assistant", said)) for said in ("BAD", "GOOD"))
    assert find_turns({"rejected": bad, "chosen": good}) is None
    spoken = "Human: q\nAssistant: "
    assert find_turns({"rejected": f"{spoken}BAD", "chosen": f"{spoken}GOOD"}) is None
    trace = Chat(columns={"messages": "chosen"}).to_trace({"rejected": bad, "chosen": good}, RowRef(0))
    assert isinstance(trace, Trace) and [m.content for m in trace.messages] == ["q", "GOOD"]


@pytest.mark.parametrize(
    "text",
    [
        "<|im_start|>user " * 60_000,
        "<|im_start|>" + "a" * 1_000_000,
        "<|im_start|>a" + " " * 1_000_000,
        "<|start_header_id|>a" * 50_000,
    ],
)
def test_headers_without_an_end_take_no_time(text: str) -> None:
    begun = time.process_time()
    with pytest.raises(RowError):
        split_template(text)
    assert time.process_time() - begun < 2
