"""Encodings of published data sets and of chat templates: the law, and the forms that each reads."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from encoding_law import check_law
from foretrace.core.trace import Message, ToolCall
from foretrace.encodings.call_list import PLUGIN as CALL_LIST
from foretrace.encodings.call_tokens import PLUGIN as CALL_TOKENS
from foretrace.encodings.calls_in_text import find_calls, remove_calls
from foretrace.encodings.json_arguments import encode_json
from foretrace.encodings.tagged_json import PLUGIN as TAGGED_JSON
from foretrace.encodings.terminal_json import PLUGIN as TERMINAL_JSON
from foretrace.encodings.tool_tags import PLUGIN as TOOL_TAGS

words = st.from_regex(r"[a-z_][a-z_0-9]{0,12}", fullmatch=True)
keys = st.from_regex(r"k[a-z_0-9]{0,8}", fullmatch=True)  # no keyword of Python
values = st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.text(st.characters(codec="utf-8"), max_size=20)
objects = st.dictionaries(keys, values, max_size=3)


def read(encoding: Any, text: str) -> list[tuple[str, dict[str, Any]]]:
    return [(call.name, msgspec.json.decode(call.arguments)) for call in encoding.parse(text)]


@given(words, objects)
def test_tagged_json_and_call_tokens(name: str, given_arguments: dict[str, Any]) -> None:
    """Any name and any JSON object."""
    for encoding in (TAGGED_JSON, CALL_TOKENS):
        check_law(encoding, ToolCall(name=name, arguments=encode_json(given_arguments)), "I look.\n", "\nDone.")


@given(words, objects)
def test_call_list(name: str, given_arguments: dict[str, Any]) -> None:
    """Alone: a list within other text is no call."""
    check_law(CALL_LIST, ToolCall(name=name, arguments=encode_json(given_arguments)), " \n", "\n")


@given(st.text(st.characters(codec="utf-8"), max_size=30), st.booleans())
def test_terminal_json(strokes: str, done: bool) -> None:
    call = ToolCall(name="bash_command", arguments=encode_json({"keystrokes": strokes}))
    check_law(TERMINAL_JSON, ToolCall(name="mark_task_complete", arguments="{}") if done else call, "{", "}")


@given(st.sampled_from(["read_file", "execute_command"]), st.text(alphabet="ab <>/\n\u00e9", max_size=20))
def test_tool_tags(name: str, value: str) -> None:
    """Values without the closing tags of the call, and without a blank frame that belongs to the form."""
    value = value.strip("\n").replace("</", "")
    check_law(TOOL_TAGS, ToolCall(name=name, arguments=encode_json({"path": value})), "I read.\n", "\nDone.")


TWO = [("look", {"city": "Oslo"}), ("book", {"days": 2})]
LISTED = json.dumps([{"name": name, "arguments": given} for name, given in TWO])


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        ("""<functioncall> {"name": "look", "arguments": '{"city": "Oslo"}'} <|endoftext|>""", TWO[:1]),
        ("""<functioncall> {"name": "look", "arguments": '{"city": "L'Aquila"}'} <|endoftext|>""",
         [("look", {"city": "L'Aquila"})]),
        (f"<TOOLCALL>{LISTED}</TOOLCALL>", TWO),
        (f"[TOOL_CALLS] {LISTED}", TWO),
        (f"<tool_calls>\n{LISTED}\n</tool_calls>", TWO),
        ('<|python_tag|>{"name": "look", "parameters": {"city": "Oslo"}}<|eom_id|>', TWO[:1]),
        ('<function_call>{"function": {"name": "look", "arguments": "{\\"city\\": \\"Oslo\\"}"}}</function_call>',
         TWO[:1]),
        ('<|tool_calls_section_begin|><|tool_call_begin|>functions.look:0<|tool_call_argument_begin|>{"city": "Oslo"}'
         '<|tool_call_end|><|tool_call_begin|>functions.book:1<|tool_call_argument_begin|>{"days": 2}<|tool_call_end|>'
         "<|tool_calls_section_end|>", TWO),
        ('<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>look\n```json\n{"city": "Oslo"}\n```'
         "<｜tool▁call▁end｜><｜tool▁calls▁end｜>", TWO[:1]),
        ('<｜tool▁call▁begin｜>look<｜tool▁sep｜>{"city": "Oslo"}<｜tool▁call▁end｜>', TWO[:1]),
        ('<|channel|>commentary to=functions.look <|constrain|>json<|message|>{"city": "Oslo"}<|call|>', TWO[:1]),
    ],
)  # fmt: skip
def test_forms_with_tags_of_their_own(text: str, calls: list[tuple[str, dict[str, Any]]]) -> None:
    """Nothing is left of them when the calls are taken out, and the text around them stays."""
    found = find_calls(f"I look.\n{text}")
    assert [(call.name, msgspec.json.decode(call.arguments)) for call in found] == calls
    message = Message(role="assistant", author="model", content=f"I look.\n{text}", tool_calls=tuple(found))
    assert remove_calls(message).removesuffix("<|endoftext|>").strip() == "I look."


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        ('[Get Weather(city="Oslo, N", days=[1, 2]), book.now(ok=true, who=null)]',
         [("Get Weather", {"city": "Oslo, N", "days": [1, 2]}), ("book.now", {"ok": True, "who": None})]),
        ("[f()]", [("f", {})]),
        ("[1, 2]", []), ("[see (1)]", []), ("[f(x=open)]", []), ("As in [f(x=1)]", []), ("[f(x=1) and more]", []),
    ],
)  # fmt: skip
def test_call_lists(text: str, calls: list[tuple[str, dict[str, Any]]]) -> None:
    assert read(CALL_LIST, text) == calls


def test_a_terminal_gets_each_key_stroke_object() -> None:
    text = json.dumps(
        {
            "analysis": 'say "keystrokes"',
            "plan": "p",
            "commands": [{"keystrokes": "ls\n", "duration": 0.1}, {"keystrokes": "x"}],
            "task_complete": True,
        },
        indent=2,
    )
    assert read(TERMINAL_JSON, text) == [
        ("bash_command", {"keystrokes": "ls\n", "duration": 0.1}),
        ("bash_command", {"keystrokes": "x"}),
        ("mark_task_complete", {}),
    ]


def test_tool_tags_keep_the_markup_of_a_file() -> None:
    text = (
        "<thinking>I write.</thinking>\n<write_to_file>\n<path>a.html</path>\n<content>\n<p>\n<path>x</path>\n"
        "</p>\n</content>\n</write_to_file>"
    )
    assert read(TOOL_TAGS, text) == [("write_to_file", {"path": "a.html", "content": "<p>\n<path>x</path>\n</p>"})]
    assert read(TOOL_TAGS, "<div>\n<p>x</p>\n</div>") == []
