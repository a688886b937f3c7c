"""Encodings of published data sets and of chat templates: the law, and the forms that each reads."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from foretrace.core.trace import Message
from foretrace.encodings.calls_in_text import find_calls, remove_calls
from foretrace.encodings.json_calls import TAGGED_JSON, TERMINAL_JSON
from foretrace.encodings.parameter_tags import TOOL_TAGS
from foretrace.encodings.python_calls import CALL_LIST


def read(encoding: Any, text: str) -> list[tuple[str, dict[str, Any]]]:
    return [(call.name, msgspec.json.decode(call.arguments)) for call in encoding.parse(text)]


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


ADD = '[TOOL_CALLS] [{"name": "add", "arguments": {"a": 1}}]'
HARMONY = '<|channel|>commentary to=functions.add<|message|>{"a": 1}<|call|>'


@pytest.mark.parametrize(
    "text",
    [
        f"```bash\ncat > t.py <<'EOF'\nTEXT = \"\"\"\n{ADD}\n\"\"\"\nEOF\n```",
        f"~~~~\n```\n{ADD}\n~~~~", f"```\n{ADD}", f"It writes `{ADD}` in its text.", f"It writes ``{ADD}`` in it.",
        f"See `{HARMONY}`.", f'It says "{ADD}".', f"<execute>\ncat > t <<'EOF'\n{ADD}\nEOF\n</execute>",
        f'Action: write\nAction Input: {{"text": 1}} {ADD}',
        f"<write_to_file>\n<path>t</path>\n<content>\n{ADD}\n</content>\n</write_to_file>",
        f"Action: write[{ADD}]",
    ],
)  # fmt: skip
def test_a_quoted_tag_is_no_call(text: str) -> None:
    assert find_calls(text) == []


@pytest.mark.parametrize(
    "text",
    [
        f"```\nls\n```\n{ADD}", f"I use `add` and a ` too.\n\n{ADD}", f"Action: {ADD}", f"A ` stays open.\n\n{ADD}",
        f'It is "sure"{ADD}', f"<search>x</search>\n{ADD}",
    ],
)  # fmt: skip
def test_a_tag_beside_code_is_a_call(text: str) -> None:
    assert [(call.name, call.arguments) for call in find_calls(text)] == [("add", '{"a": 1}')]


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        ("""<functioncall> {"name": "a", "arguments": '{"x": 1}'}\n<functioncall> """
         """{"name": "b", "arguments": '{"x": "it's"}'} and so on""", [("a", {"x": 1}), ("b", {"x": "it's"})]),
        ('<TOOLCALL>[{"name": "a", "arguments": {"x": "1\n2"}}]</TOOLCALL>', [("a", {"x": "1\n2"})]),
        ('[TOOL_CALLS]a{"x": 1}[TOOL_CALLS]b[ARGS]{"x": 2}', [("a", {"x": 1}), ("b", {"x": 2})]),
        ('[TOOL_CALLS]a[CALL_ID]abc123[ARGS]{"x": 1}', [("a", {"x": 1})]),
        ('<|python_tag|>brave_search.call(query="x (y", n=2)<|eom_id|>', [("brave_search", {"query": "x (y", "n": 2})]),
        ("<|python_tag|>print(1)", []), ("<|python_tag|>a.call(x)", []), ("the tag [TOOL_CALLS] [1, 2]", []),
        ('It writes [TOOL_CALLS] [{"name": ...}] in its text.', []),
    ],
)  # fmt: skip
def test_tagged_forms(text: str, calls: list[tuple[str, dict[str, Any]]]) -> None:
    assert read(TAGGED_JSON, text) == calls
    assert all(call.error is None for call in TAGGED_JSON.parse(text))


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ('<TOOLCALL>[{"name": "a", "arguments": {"x"', ["a"]),
        ('<function_call>{"name": "a", }</function_call> b', ["a"]),
        ('[TOOL_CALLS]a{"x": ', ["a"]), ("""<functioncall> {"name": "a", "arguments": '{"x": 1""", ["a"]),
        ('[TOOL_CALLS]a{"x": \n[TOOL_CALLS]b{"x": ', ["a", "b"]), ('<tool_calls>[{"name": "a", "n": NaN}]', ["a"]),
    ],
)  # fmt: skip
def test_a_tagged_call_that_is_broken_has_an_error(text: str, names: list[str]) -> None:
    found = TAGGED_JSON.parse(text)
    assert [call.name for call in found] == names
    assert all(call.error and call.arguments == "{}" for call in found)


@pytest.mark.parametrize(
    "text",
    [
        "[Note to self. Remember to call() and also to finish(x=1)]", "[a() b()]", "[Remember: call()]",
        "[I think that it would be best to call()]", "[a(x='\\ud800')]", "[a(x=1, **{'x': 2})]", "[a(**b)]",
        "[a(**{1: 2})]", "[a(x=1e999)]",
    ],
)  # fmt: skip
def test_prose_in_brackets_is_no_list_of_calls(text: str) -> None:
    assert CALL_LIST.parse(text) == []


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        ('{"duration": 1, "keystrokes": "rm x"}', [("bash_command", {"duration": 1, "keystrokes": "rm x"})]),
        ('{"commands": [{"keystrokes": "a\nb"}]}', [("bash_command", {"keystrokes": "a\nb"})]),
        ('{"commands": [{"keystrokes": "a",}]}', [("bash_command", {"keystrokes": "a"})]),
        ('I set `"task_complete": true` once done.', []), ('I set "task_complete": true once done.', []),
        ('`{"task_complete": true}`', []),
        ('{"commands": [],\n"task_complete" : true\n}', [("mark_task_complete", {})]),
        ('{"plan": "send {\\"keystrokes\\": \\"a\\"}", "commands": [], "task_complete": false}', []),
    ],
)  # fmt: skip
def test_terminal_forms(text: str, calls: list[tuple[str, dict[str, Any]]]) -> None:
    assert read(TERMINAL_JSON, text) == calls


def test_key_strokes_that_are_not_json_have_an_error() -> None:
    (call,) = TERMINAL_JSON.parse('{"commands": [{"keystrokes": "echo "hi"", "duration": 1}]}')
    assert call.error and call.arguments == "{}"


@pytest.mark.parametrize(
    ("body", "arguments", "is_read"),
    [
        ("weather Oslo", {}, False), ("{ ls; }", {}, False), ("", {}, True),
        ("<path>a</path> and more", {"path": "a"}, False),
        ("x <path>a</path>", {}, False), ("<path>a</path><path>b</path>", {"path": ["a", "b"]}, True),
        ("<command>echo '</command>' > a</command>", {"command": "echo '</command>' > a"}, True),
        ("<path>a", {"path": "a"}, False), ('\n{"path": "a", "n": 1}\n', {"path": "a", "n": 1}, True),
    ],
)  # fmt: skip
def test_a_body_that_is_no_argument_is_an_error(body: str, arguments: dict[str, Any], is_read: bool) -> None:
    (call,) = TOOL_TAGS.parse(f"<read_file>{body}</read_file>")
    assert (msgspec.json.decode(call.arguments), call.error is None) == (arguments, is_read)
