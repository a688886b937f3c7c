"""The law of every encoding: what is rendered is read back, and what is read is rendered back byte for byte."""

from __future__ import annotations

import json
import re
import shlex
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from encoding_law import check_law
from foretrace.core.trace import Message, ToolCall
from foretrace.encodings.calls_in_text import find_calls, remove_calls
from foretrace.encodings.fence import split_words
from foretrace.encodings.json_arguments import encode_json, read_arguments
from foretrace.encodings.table import ENCODINGS

TAGS = ["<function=f>", "</function>", "<parameter=p>", "</parameter>", "<tool_call>", "</tool_call>", "```", "\n"]
TAGS += ["Action: a", "Action Input: {", "Thought:", '"', "'", "\\", "{", "}", "[", " ", "\t", "x", "é", "submit"]
TAGS += ["str_replace_editor create /f ", "--file_text ", '{"name": "f", "arguments": {}}', "\x00", "\r", "\n```\n"]
noise = st.lists(st.sampled_from(TAGS), max_size=25).map("".join)
MARKUP = ["<path>", "</path>", "</content>", "</read_file>", "\n", "a", " ", "\\", '"', "<", "{", "}", "\u003c"]
markup = st.lists(st.sampled_from(MARKUP)).map("".join)
texts = st.text(st.characters(codec="utf-8"), max_size=20)
one_line = st.text(st.characters(codec="utf-8", exclude_characters="\n"), max_size=40)
words = st.from_regex(r"[a-z_][a-z_0-9]{0,12}", fullmatch=True)
plain = st.none() | st.booleans() | st.integers(-(10**9), 10**9) | texts
json_values = st.recursive(
    plain | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False, allow_infinity=False) | markup,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
keys = words | texts | st.sampled_from(["class", "path", "content", "\ufb01"])
objects = st.dictionaries(keys, json_values, max_size=4)
as_written = st.builds(lambda given, form: json.dumps(given, **form), objects, st.sampled_from([
    {"separators": (",", ":"), "ensure_ascii": False}, {"indent": 1}, {"ensure_ascii": False},
]))  # fmt: skip
block = st.builds(
    lambda key, text: f"<function=f>\n<parameter={key}>{text}</parameter>\n</function>",
    words,
    st.text(st.characters(codec="utf-8", exclude_characters="<"), max_size=40),
)
bodies = st.lists(texts | block | st.sampled_from(["</parameter>", "<parameter=k>", "```", "a < b"]), max_size=4)


def is_whole(values: dict[str, str]) -> bool:
    """Whether no value quotes one half of a block's structure: no reader could tell it from the call's own."""
    whole = (re.sub(r"<function=f>\n<parameter=\w+>[^<]*</parameter>\n</function>", "", v) for v in values.values())
    half = r"</parameter>\s*(<parameter=[^<>\n]+>|</function>|\Z)|<function=|<parameter=\w+>"
    return not any(re.search(half, text) for text in whole)


def calls(name: Any, arguments: Any) -> st.SearchStrategy[ToolCall]:
    """Calls of a name, or of any word, with arguments as a dictionary or as JSON text."""
    names = name if isinstance(name, st.SearchStrategy) else st.sampled_from(name)
    made = arguments.map(lambda given: given if isinstance(given, str) else encode_json(given))
    return st.builds(lambda name, text: ToolCall(name=name, arguments=text), names, made)


def one(key: str, values: Any) -> Any:
    return st.fixed_dictionaries({key: values})


xml_values = st.dictionaries(st.sampled_from(["command", "path", "old_str", "file_text", "k"]), bodies.map("".join))
SLOTS: dict[str, Any] = {
    "command": st.sampled_from(["view", "create", "insert"]),
    "path": st.from_regex(r"/[\w ./'\"-]{0,20}", fullmatch=True),
    "file_text": st.text(max_size=60) | noise,
    "view_range": st.lists(st.integers(-1, 9999), min_size=2, max_size=2),
    "old_str": noise,
    "new_str": st.text(max_size=60),
    "insert_line": st.integers(0, 10**6),
}
"""Arguments of the editor, in the order that its line has."""
editor = st.fixed_dictionaries({}, optional=SLOTS).map(
    lambda given: {"command": "view", "path": "/"} | {key: given[key] for key in SLOTS if key in given}
)
unfenced = st.text(max_size=60).filter(lambda t: "```" not in t)
shell = unfenced.filter(lambda t: not t.strip().startswith(("str_replace_editor", "submit")))
tools = st.from_regex(r"[A-Za-z_][\w-]{0,12}", fullmatch=True)
code = st.text(max_size=60).filter(lambda t: "</execute" not in t)
flat_objects = st.dictionaries(keys, plain | markup, max_size=4)
strokes = st.builds(lambda text, more: {"keystrokes": text} | more | {"keystrokes": text}, texts | markup, flat_objects)
flat = one_line.filter(lambda t: not set(t) & set("[]`"))
typed = st.builds(
    lambda element, values, enter: {"element": element, "text": "] [".join(values), "press_enter": enter},
    flat, st.lists(flat, min_size=1, max_size=3), st.sampled_from("01"),
)  # fmt: skip
LAWS: list[tuple[str, st.SearchStrategy[ToolCall], str, str]] = [
    ("tool_call_json", calls(words, as_written), "I look.\n", "\nDone."),
    ("tagged_json", calls(words, objects), "I look.\n", "\nDone."),
    ("react", calls(words, as_written), "Thought: I look.\n", "\nThought: and on"),
    ("json_action", calls(one_line.filter(str.strip), st.dictionaries(texts, plain, max_size=3)), "Look\n", "\nand on"),
    ("terminal_json", calls(["bash_command"], strokes), "{", "}"),
    ("terminal_json", calls(["mark_task_complete"], st.just({})), "{", "}"),
    ("call_list", calls(words, objects), " \n", "\n"),
    ("function_xml", calls(words, xml_values.filter(is_whole)), "I edit.\n\n", "\nThat is it."),
    ("wrapped_function", calls(words, st.dictionaries(words, flat, max_size=3)), "I read.\n", "\nDone."),
    ("tool_tags", calls(["read_file", "execute_command"], objects), "I read.\n", "\nDone."),
    ("tagged_code", calls(["execute"], one("code", code)), "I run it.\n", "\nDone."),
    ("code_fence", calls(["bash"], one("command", one_line.filter(lambda t: "```" not in t))), "I look.\n", "\nDone."),
    ("fence", calls(["bash"], one("command", shell)), "I look.\n\n", "\n"),
    ("fence", calls(["submit"], st.just({})), "Done.\n", ""),
    ("fence", calls(["str_replace_editor"], editor), "First:\n```python\nx = 1\n```\nthen\n\n", "\n\n"),
    ("action_line", calls(tools, one("input", one_line)), "Go\n", "\n"),
    ("web_fence", calls(["type"], typed), "Next is ", "."),
    ("web_call", calls(["click", "type"], st.dictionaries(words.map("a_{}".format), plain)), "# step 1\n", "\n# done"),
]  # fmt: skip
"""Encoding, what it can express, and text around it."""


@pytest.mark.parametrize(("name", "made", "before", "after"), LAWS, ids=[law[0] for law in LAWS])
def test_what_is_rendered_is_read_back(name: str, made: st.SearchStrategy[ToolCall], before: str, after: str) -> None:
    @given(made)
    def holds(call: ToolCall) -> None:
        check_law(ENCODINGS[name], call, before, after)

    holds()


def test_each_encoding_has_a_law() -> None:
    assert {name for name, *_ in LAWS} == set(ENCODINGS)


@pytest.mark.parametrize("encoding", ENCODINGS.values(), ids=lambda e: e.name)
@given(text=noise | st.text())
def test_any_text_is_read_and_rendered_back(encoding: Any, text: str) -> None:
    at = 0
    for call in encoding.parse(text):
        assert call.span is not None
        start, end = call.span
        assert at <= start < end <= len(text)
        assert encoding.render(call) == text[start:end]
        assert isinstance(msgspec.json.decode(call.arguments), dict)
        at = end


@given(noise)
def test_without_calls_leaves_the_rest(text: str) -> None:
    calls = tuple(find_calls(text))
    message = Message(role="assistant", author="model", content=text, tool_calls=calls)
    rest = text
    for call in reversed(calls):
        assert call.span is not None
        rest = rest[: call.span[0]] + rest[call.span[1] :]
    assert remove_calls(message) == (rest.strip() if calls else text)


@given(st.text() | noise | objects.map(json.dumps))
def test_arguments_are_json_or_an_error(text: str) -> None:
    read = read_arguments(text)
    assert isinstance(msgspec.json.decode(read.text), dict)
    assert read.text == text or read.repairs or read.error


@given(st.lists(st.sampled_from([*"ab -'\"\\\n\t#$", "é"])).map("".join))
def test_words_of_a_line_are_those_of_shlex(line: str) -> None:
    try:
        expected = shlex.split(line)
    except ValueError:
        expected = None
    assert split_words(line) == expected
