"""A reply with calls in two encodings: one is read, and the other counts as unread."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from foretrace.core.trace import Trace
from foretrace.encodings.unread_calls import find_unread_calls
from foretrace.rows.base import RowRef
from foretrace.sources.chat import Chat

HERMES = '<tool_call>\n{"name": "ls", "arguments": {"path": "a"}}\n</tool_call>'
XML = "<function=cat>\n<parameter=path>b</parameter>\n</function>"
REACT = 'Thought: x\nAction: find\nAction Input: {"q": "a"}'
GLAIVE = '<functioncall> {"name": "look", "arguments": {}}'
NEMOTRON = '<TOOLCALL>[{"name": "look", "arguments": {}}]</TOOLCALL>'
CODE = "<execute>\nprint(1)\n</execute>"


def read(*replies: str) -> Trace:
    turns: list[Any] = [{"role": "user", "content": "Look."}]
    for reply in replies:
        turns += [{"role": "assistant", "content": reply}, {"role": "user", "content": "Observation: ok"}]
    trace = Chat().to_trace({"messages": turns}, RowRef(0))
    assert isinstance(trace, Trace)
    return trace


@pytest.mark.parametrize(
    ("first", "second"),
    [(HERMES, XML), (XML, HERMES), (REACT, HERMES), (HERMES, REACT), (GLAIVE, XML), (CODE, HERMES), (HERMES, NEMOTRON)],
)
def test_the_call_that_was_not_read_is_counted(first: str, second: str) -> None:
    trace = read(f"I look.\n{first}", f"Both.\n{first}\n{second}")
    assert all(message.tool_calls for message in trace.messages if message.role == "assistant")
    assert find_unread_calls(trace) == [3]


HERMES_TOLD = 'I could also write <tool_call>{"name": "ls", "arguments": {}}</tool_call> here, but I do not.'
XML_TOLD = "A call such as <function=cat>\n<parameter=path>b</parameter>\n</function> would do the same."


@pytest.mark.parametrize(
    ("first", "prose"),
    [
        *((first, HERMES_TOLD) for first in (XML, REACT, CODE)),
        *((first, XML_TOLD) for first in (HERMES, REACT, CODE)),
        *((first, f"```\n{XML}\n```") for first in (HERMES, REACT, CODE)),
        *((first, f"```xml\n{HERMES}\n```") for first in (XML, REACT, CODE)),
        *((first, f"The tag {GLAIVE} is of others.") for first in (HERMES, XML, REACT, CODE)),
        *((first, "The tool `<execute>` runs code.") for first in (HERMES, XML, REACT, GLAIVE)),
    ],
)
def test_a_tag_in_prose_is_no_call_and_takes_no_place(first: str, prose: str) -> None:
    trace = read(f"I look.\n{first}", f"{prose}\n{first}")
    names = [call.name for message in trace.messages for call in message.tool_calls]
    assert len(names) == 2 and names[0] == names[1]
    assert find_unread_calls(trace) == []


def test_words_between_a_call_and_its_result_are_no_call() -> None:
    trace = read(f"I look.\n{HERMES}")
    start, call, result = trace.messages
    words = msgspec.structs.replace(call, content="It takes a while.", tool_calls=())
    late = msgspec.structs.replace(result, role="tool", author="environment", tool_call_ids=())
    for messages, unread in (((start, call, words, late, words), []), ((start, words, late, words), [1])):
        assert find_unread_calls(msgspec.structs.replace(trace, messages=messages)) == unread
