"""Calls of Qwen3-Coder and GLM-4.5: `<tool_call>` without JSON in it."""

from __future__ import annotations

import json

import pytest

from foretrace.core.trace import Trace
from foretrace.encodings.calls_in_text import find_calls
from foretrace.encodings.parameter_tags import WRAPPED_FUNCTION
from foretrace.encodings.unread_calls import find_unread_calls
from foretrace.rows.base import RowRef
from foretrace.sources.chat import Chat

QWEN = "<tool_call>\n<function=read>\n<parameter=path>\na.py\n</parameter>\n</function>\n</tool_call>"
GLM = "<tool_call>read\n<arg_key>path</arg_key>\n<arg_value>a.py</arg_value>\n</tool_call>"
HERMES = '<tool_call>\n{"name": "read", "arguments": {"path": "a.py"}}\n</tool_call>'


@pytest.mark.parametrize("text", [QWEN, GLM, HERMES])
def test_all_three_make_the_same_call(text: str) -> None:
    (call,) = find_calls(f"I look.\n{text}")
    assert (call.name, json.loads(call.arguments), call.error) == ("read", {"path": "a.py"}, None)
    assert call.span == (8, 8 + len(text))
    turns = [{"role": "user", "content": "x"}, {"role": "assistant", "content": text}, {"role": "tool", "content": "y"}]
    trace = Chat().to_trace({"messages": turns}, RowRef(0))
    assert isinstance(trace, Trace) and find_unread_calls(trace) == []


def test_values() -> None:
    glm = "<tool_call>f<arg_key>n</arg_key><arg_value>3</arg_value><arg_key>s</arg_key>\n<arg_value>a\nb</arg_value>"
    glm += "</tool_call>"
    assert [json.loads(call.arguments) for call in WRAPPED_FUNCTION.parse(glm)] == [{"n": 3, "s": "a\nb"}]
    assert [call.name for call in WRAPPED_FUNCTION.parse(f"{QWEN}\n{GLM}\n<tool_call>now</tool_call>")] == [
        "read",
        "read",
        "now",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "The tag <tool_call> begins one.",
        "<tool_call>\n<function=read",
        "<tool_call>a b</tool_call>",
        HERMES,
        "<tool_call>f<arg_key>",
    ],
)
def test_what_is_none(text: str) -> None:
    assert WRAPPED_FUNCTION.parse(text) == []
