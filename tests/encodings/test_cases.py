"""Texts that agents write: bodies that look like tags, calls that were cut off, and very long ones."""

from __future__ import annotations

import json
import time
from typing import Any

import msgspec
import pytest

from foretrace.core.trace import ToolCall
from foretrace.encodings.fence import FENCE
from foretrace.encodings.json_arguments import encode_json, read_arguments
from foretrace.encodings.json_calls import REACT
from foretrace.encodings.json_calls import TOOL_CALL_JSON as JSON
from foretrace.encodings.parameter_tags import FUNCTION_XML as XML

ALL = [FENCE, XML, REACT, JSON]


def arguments(call: ToolCall) -> dict[str, Any]:
    assert call.error is None
    return msgspec.json.decode(call.arguments)


def only(encoding: Any, text: str) -> ToolCall:
    (call,) = encoding.parse(text)
    assert encoding.render(call) == text[call.span[0] : call.span[1]]
    return call


@pytest.mark.parametrize(
    "body",
    [
        "if a < b: pass  # </parameter> here",
        "doc = '<function=f>'",
        "</function>",
        "<function=g>\n<parameter=x>1</parameter>\n</function>",
        "<function=g>\n<parameter=x>1</parameter>\n</function>, <function=h>\n<parameter=y>2</parameter>\n</function>",
        "<function=g>\n<parameter=x>1</parameter>\n<parameter=y>2</parameter>\n</function>",
        "x</parameter>\n</function>",
        "```\ncode\n```",
        '<tool_call>{"name": "a"}</tool_call>',
        "\n\nlines\n\n",
        "",
    ],
)
def test_xml_bodies_that_look_like_tags(body: str) -> None:
    call = ToolCall(name="edit", arguments=encode_json({"path": "/f", "file_text": body, "z": "end"}))
    if body == "x</parameter>\n</function>":  # only the last parameter can end so: what follows is then no block's
        call = ToolCall(name="edit", arguments=encode_json({"path": "/f", "file_text": body}))
    text = "Now.\n" + XML.render(call) + "\nok"
    assert arguments(only(XML, text)) == arguments(call)


@pytest.mark.parametrize(
    ("encoding", "text"),
    [
        (XML, "x <function=bash>\n<parameter=command>ls"),
        (XML, "x <function=bash>\n<para"),
        (XML, "x <function=bash>"),
        (XML, "<function=bash>\nls\n</function>"),
        (JSON, 'x <tool_call>{"name": "bash", "arguments": {"command": "ls'),
        (JSON, '<tool_call>{"name": "bash", "arguments": {"command": "ls"}}'),
        (JSON, '<tool_call>{"name": "bash", "arguments": {"command": "ls"}\n</tool_call>'),
        (JSON, '<tool_call>{"arguments": {}}</tool_call>'),
        (JSON, "<tool_call>run ls</tool_call>"),
        (JSON, '<tool_call>{"name": "f", "arguments": "{\\"a\\": "}</tool_call>'),
        (REACT, 'Action: find\nAction Input: {"a": "b'),
        (REACT, 'Action: find\nAction Input: {"a": {"b": 1}'),
        (REACT, 'Action: find\nAction Input: {"a": "ends in a brace }'),
        (REACT, "Action: find\nAction Input:"),
        (REACT, "Action: find\nAction Input: [1, 2"),
        (REACT, 'Action: find\nAction Input: "capital of Fr'),
    ],
)
def test_cut_off_calls_have_an_error_and_are_never_repaired(encoding: Any, text: str) -> None:
    call = only(encoding, text)
    assert call.error
    assert msgspec.json.decode(call.arguments) == {} or encoding is JSON
    assert "json_repair" not in call.repairs


@pytest.mark.parametrize("given", ["capital of France", "SELECT a\nFROM b", '"a" OR "b"', "3 apples", "f(x)"])
def test_plain_text_as_action_input_is_one_argument(given: str) -> None:
    text = f"Thought: x\nAction: Search\nAction Input: {given}"
    for end in ("", "\n", "\nObservation: Paris"):
        call = only(REACT, text + end)
        assert (call.name, msgspec.json.decode(call.arguments), call.error) == ("Search", {"input": given}, None)


def test_a_cut_call_does_not_swallow_the_next() -> None:
    whole = '<tool_call>{"name": "b", "arguments": {}}</tool_call>'
    found = JSON.parse('<tool_call>{"name": "a", "argum\n' + whole)
    assert [(c.name, bool(c.error)) for c in found] == [("", True), ("b", False)]


def test_closing_tag_inside_a_json_string() -> None:
    body = "</tool_call> and <tool_call> and \\n"
    text = f'<tool_call>\n{{"name": "say", "arguments": {{"text": "{body}"}}}}\n</tool_call> then'
    assert arguments(only(JSON, text)) == {"text": body.replace("\\n", "\n")}
    raw_newline = '<tool_call>{"name": "say", "arguments": {"text": "a\n</tool_call>\nb"}}</tool_call>'
    call = only(JSON, raw_newline)
    assert arguments(call) == {"text": "a\n</tool_call>\nb"}
    assert call.repairs == ("control_characters",)


def test_json_arguments_are_kept_verbatim() -> None:
    text = '<tool_call>\n{"name": "f", "arguments": {"a":1.0,  "b":"\\u00e9","c":1e5}}\n</tool_call>'
    assert only(JSON, text).arguments == '{"a":1.0,  "b":"\\u00e9","c":1e5}'
    inside = '<tool_call>{"arguments": "{\\"a\\": 1}", "name": "f"}</tool_call>'
    assert only(JSON, inside).arguments == '{"a": 1}'
    assert only(JSON, '<tool_call>{"name": "f"}</tool_call>').arguments == "{}"
    assert only(JSON, '<tool_call>{"name": "f", "parameters": {"a": 1.0}}</tool_call>').arguments == '{"a": 1.0}'


def test_fences_in_thoughts_and_bodies() -> None:
    thought = "Look:\n```python\nx = 1\n```\nand:\n\n"
    assert arguments(only(FENCE, f"{thought}```\nls -la\n```")) == {"command": "ls -la"}
    heredoc = "cat > README.md <<'EOF'\n```python\nx = 1\n```\nEOF"
    assert arguments(only(FENCE, f"I write.\n\n```\n{heredoc}\n```\n")) == {"command": heredoc}
    body = "line\n```\nbare\n```\nit's"
    quoted = "'line\n```\nbare\n```\nit'\"'\"'s'"
    line = f"str_replace_editor create /a.md --file_text {quoted}"
    assert arguments(only(FENCE, f"I write.\n\n```\n{line}    \n```")) == {
        "command": "create", "path": "/a.md", "file_text": body,
    }  # fmt: skip
    assert FENCE.parse("no call\n```python\nprint()\n```") == []


def test_half_characters_and_bad_numbers_in_arguments() -> None:
    assert read_arguments('{"a": "\\ud83d"}') == type(read_arguments("{}"))('{"a": "\ufffd"}', ("lone_surrogates",))
    for text in ('{"a": NaN}', '{"a": 1e999}', '{"a": ' + "9" * 5000 + "}", '{"a": ' + "[" * 100_000 + "}"):
        read = read_arguments(text)
        assert isinstance(msgspec.json.decode(read.text), dict)
        assert read.error or read.repairs
    assert read_arguments('{"a": 123456789012345678901234567890}').text == '{"a": 123456789012345678901234567890}'


MEGA = 1_000_000
ADVERSARIAL = [
    "<function=", "<function=a> ", "<function=a><", "<function=a><parameter=b>", "</parameter>\n</function>",
    "<function=a>\n<parameter=b>x <function=q> y</parameter>\n</function>\n", "</parameter><parameter=x>",
    "<tool_call>", '<tool_call>{"name": "a', "</tool_call>", '<tool_call>{"name":"a","arguments":{}}</tool_call>',
    "<tool_call>" + "[" * 500, "<tool_call>{}", "Action: a\nAction Input: {\n", "\nThought:",
    'Action: a\nAction Input: {"\n',
    "Action:" + " " * 1000, "```\n", "```\nsubmit\n", "```\nstr_replace_editor a\n", " ", "\n", '"', "'a'", "\\\\", "[",
]  # fmt: skip
HEADS = ["", "<function=a>\n<parameter=file_text>\n", '<tool_call>{"name": "a", "arguments": {"x": "']
HEADS += ['Action: a\nAction Input: {"x": "', "I.\n\n```\nstr_replace_editor create /f --file_text '"]
TAILS = ["", "\n</parameter>\n</function>", '"}}</tool_call>', '"}', "'\n```"]


@pytest.mark.slow
@pytest.mark.parametrize("head", range(len(HEADS)))
def test_long_texts_take_linear_time(head: int) -> None:
    """A quadratic reader takes minutes to hours on these; the limit is a hang guard, no measurement."""
    begun = time.process_time()
    for unit in ADVERSARIAL:
        text = HEADS[head] + unit * (MEGA // 2 // len(unit)) + TAILS[head]
        for call in ALL[head - 1].parse(text) if head else [c for e in ALL for c in e.parse(text)]:
            assert call.span is not None
    assert time.process_time() - begun < 15


@pytest.mark.parametrize("body", ["x" * MEGA, "line\n" * (MEGA // 5), 'it\'s <b> "q" \\ ' * (MEGA // 16)])
def test_megabyte_bodies(body: str) -> None:
    edit = {"command": "create", "path": "/f", "file_text": body}
    for encoding in (FENCE, XML, REACT, JSON):
        call = ToolCall(name="str_replace_editor", arguments=encode_json(edit))
        text = "I write.\n\n" + encoding.render(call)
        assert json.loads(only(encoding, text).arguments) == edit
