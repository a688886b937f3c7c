"""Calls as the agent wrote them, apart from the text, or all as blocks: nothing that was said is lost."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exports.any_traces import messages
from foretrace.core.trace import Message, ToolCall
from foretrace.encodings.call_forms import merge_spans, write_calls
from foretrace.encodings.calls_in_text import find_calls

CODE = "So:\n<code>\nprint(1)\n</code>"
WRITTEN = ToolCall(id="a", name="python", arguments='{"code": "print(1)"}', span=(4, len(CODE)))
NATIVE = ToolCall(id="b", name="bash", arguments='{"command": "ls"}')
SAID = Message(role="assistant", author="model", content=CODE, tool_calls=(WRITTEN,))
ANSWER = Message(role="tool", author="environment", content="1", tool_call_ids=("a",), prefix="OBSERVATION:\n")


@given(st.lists(messages(), max_size=6))
def test_verbatim_text_is_the_text_of_the_agent(said: list[Message]) -> None:
    written = write_calls(said, "verbatim")
    assert all(call.span is None for message in written for call in message.tool_calls)
    own = [m.content for m in said if m.role == "assistant"]
    assert "".join(m.content for m in merge_spans(written) if m.role == "assistant") == "".join(own)
    others = "".join(m.prefix + m.content for m in said if m.role != "assistant")
    kept = "".join(m.prefix + m.content for m in written if m.role != "assistant")
    assert kept.replace("\n", "") == others.replace("\n", "")


@given(st.lists(messages(), max_size=6))
def test_native_leaves_all_as_it_is_and_xml_no_call_apart(said: list[Message]) -> None:
    assert write_calls(said, "native") == said
    assert not any(message.tool_calls or message.role == "tool" for message in write_calls(said, "xml"))


def test_xml_can_be_read_again() -> None:
    both = msgspec.structs.replace(SAID, tool_calls=(WRITTEN, NATIVE))
    more = msgspec.structs.replace(SAID, continues=True)
    said, answered = write_calls([both, more, ANSWER], "xml")
    assert said.content.startswith("So:\nSo:\n<tool_call>")
    assert [call.name for call in find_calls(said.content)] == ["python", "bash", "python"]
    assert answered.content == "<tool_response>\nOBSERVATION:\n1\n</tool_response>"


def test_a_call_that_cannot_be_read_stays_in_the_text() -> None:
    broken = msgspec.structs.replace(SAID, tool_calls=(msgspec.structs.replace(WRITTEN, error="cut"),))
    assert write_calls([broken], "xml")[0].content == CODE


@pytest.mark.parametrize("turn", [0, 1])
def test_answers_of_one_turn_are_one_message_of_the_user(turn: int) -> None:
    other = msgspec.structs.replace(ANSWER, content="2", turn=turn, prefix="")
    found = write_calls([SAID, ANSWER, other], "verbatim")
    assert [m.content for m in found] == ([CODE, "OBSERVATION:\n1\n2"] if turn == 0 else [CODE, "OBSERVATION:\n1", "2"])


def test_an_id_that_comes_again_means_the_last_call_of_that_id() -> None:
    native = msgspec.structs.replace(SAID, tool_calls=(msgspec.structs.replace(NATIVE, id="a"),))
    messages = write_calls([native, ANSWER, SAID, ANSWER], "verbatim")
    assert [message.role for message in messages] == ["assistant", "tool", "assistant", "user"]
