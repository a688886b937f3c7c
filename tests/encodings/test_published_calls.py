"""The forms that each encoding reads: of published data sets, of chat templates, and of agents that write actions."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from foretrace.core.errors import UsageError
from foretrace.core.trace import Message, Trace
from foretrace.encodings.action_lines import ACTION_LINE
from foretrace.encodings.call_pattern import CallPattern
from foretrace.encodings.calls_in_text import find_calls, remove_calls
from foretrace.encodings.json_calls import JSON_ACTION, TAGGED_JSON, TERMINAL_JSON
from foretrace.encodings.parameter_tags import FUNCTION_XML, TOOL_TAGS, WRAPPED_FUNCTION
from foretrace.encodings.python_calls import CALL_LIST
from foretrace.encodings.text_bodies import TAGGED_CODE
from foretrace.encodings.unread_calls import find_unread_calls
from foretrace.encodings.web_actions import WEB_CALL, WEB_FENCE
from foretrace.rows.base import RowRef
from foretrace.sources.chat import Chat


def read(encoding: Any, text: str) -> list[tuple[str, dict[str, Any]]]:
    return [(call.name, msgspec.json.decode(call.arguments)) for call in encoding.parse(text)]


QWEN = "<tool_call>\n<function=read>\n<parameter=path>\na.py\n</parameter>\n</function>\n</tool_call>"
GLM = "<tool_call>read\n<arg_key>path</arg_key>\n<arg_value>a.py</arg_value>\n</tool_call>"
HERMES = '<tool_call>\n{"name": "read", "arguments": {"path": "a.py"}}\n</tool_call>'
XML = "<function=write>\n<parameter=text>\na.py\n</parameter>\n</function>"
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
        f"```\nls\n```\n{ADD}", f"I use `add` and a ` too.\n\n{ADD}", f"Action: {ADD}",
        f"A ` stays open.\n\n{ADD}\n\nAs does `",
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
        ('{"keystrokes": "a", "wait": {"s": 1}}', [("bash_command", {"keystrokes": "a", "wait": {"s": 1}})]),
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


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Thought:\nI look.\n\nAction:\nsearch[on-ear < 180.00]", [("search", {"input": "on-ear < 180.00"})]),
        ("THOUGHT: x\n ACTION: go to shelf 1", [("act", {"input": "go to shelf 1"})]),
        ("Thought: x\nAction: get_neighbors(#2, a.b)", [("get_neighbors", {"input": "#2, a.b"})]),
        ("Action: Operation\n```sql\nSELECT 1;\n```", [("sql", {"query": "SELECT 1;"})]),
        ("Think: x\n\nAct: bash\n\n```bash\nls /etc\n```", [("bash", {"command": "ls /etc"})]),
        ('It is.\nAction: Answer\nFinal Answer: ["a"]', [("answer", {"answer": ["a"]})]),
        ("Thought: x\nFinal Answer: #3", [("answer", {"answer": "#3"})]),
        ("Thought: x\nAnswer: B.\nAction: CLICK", [("click", {"element": "B"})]),
        ("Answer: C.\nAction: TYPE\nValue: New York", [("type", {"element": "C", "value": "New York"})]),
        ('Action: find\nAction Input: {"a": 1}', []),
        ("No action here.", []),
    ],
)
def test_forms_of_action_lines(text: str, expected: list[Any]) -> None:
    assert read(ACTION_LINE, text) == expected
    for call in ACTION_LINE.parse(text):
        assert call.span is not None and ACTION_LINE.render(call) == text[slice(*call.span)]


def test_brackets_in_what_is_typed() -> None:
    text = "so ```type [89] [limit (x) [0, 1] as x->0] [1]```"
    assert read(WEB_FENCE, text) == [
        ("type", {"element": "89", "text": "limit (x) [0, 1] as x->0", "press_enter": "1"})
    ]
    assert read(WEB_FENCE, "```stop [a [0] [1]]```") == [("stop", {"answer": "a [0] [1]"})]
    assert read(WEB_FENCE, "```go_back```") == [("go_back", {})]
    assert read(WEB_FENCE, "```\nls [12]\n```") == []


def test_positional_arguments_of_a_web_call() -> None:
    assert read(WEB_CALL, "# go\ntype('7', 'hi', True)\n") == [
        ("type", {"element": "7", "text": "hi", "press_enter": True})
    ]
    assert read(WEB_CALL, "click(find('x'))") == []


def test_a_tag_that_a_stop_sequence_cut() -> None:
    (call,) = TAGGED_CODE.parse("Look.\n<execute>\nx = 1\n")
    assert (call.name, call.repairs) == ("execute", ("unclosed",))
    assert read(TAGGED_CODE, "use `<execute>` here") == []


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (f"{HERMES}\nOr in a line: `{XML}`", "read"), (f"Or `{HERMES}`\n{XML}\nor {HERMES} again", "write"),
        (f"I write {HERMES} or {XML} so.", "write"), (f"I write {XML} or {HERMES} so.", "read"),
        (f"{XML}\n{HERMES}", "read"), (f"So: {XML.replace('a.py', HERMES)}", "write"), (f"{QWEN}\n{XML} x", "read"),
    ],
)  # fmt: skip
def test_of_several_encodings_one_with_a_call_that_stands_alone_is_read(text: str, name: str) -> None:
    assert {call.name for call in find_calls(text)} == {name}


def test_json_actions_and_other_objects() -> None:
    assert read(JSON_ACTION, '{"a": 1}\n' * 99 + '{"tool": "f", "args": {}}') == [("f", {})]
    assert read(JSON_ACTION, '```json\n{"action": "Search", "action_input": "x"}\n```') == [("Search", {"input": "x"})]
    assert read(JSON_ACTION, '{"tool": "f", "args": {"a": 1}}') == [("f", {"a": 1})]
    assert read(JSON_ACTION, '{"name": "Ann", "age": 3}') == []


@pytest.mark.parametrize("end", ["", "\n", "\n</func", "\n</function"])
def test_the_last_function_block_may_lack_its_end(end: str) -> None:
    """OpenHands stops the model at the closing tag."""
    text = f"Go.\n<function=run>\n<parameter=command>ls</parameter>{end}"
    (call,) = FUNCTION_XML.parse(text)
    assert (call.name, call.arguments, call.error) == ("run", '{"command": "ls"}', None)
    assert call.repairs == ("unclosed",) and FUNCTION_XML.render(call) == text[4:]
    (cut,) = FUNCTION_XML.parse("<function=run>\n<parameter=command>ls")
    assert cut.error


def test_a_pattern_of_the_user() -> None:
    pattern = CallPattern(r"^@(?P<tool>\w+) (?P<path>\S+)(?: (?P<line>\d+))?$")
    assert read(pattern, "see\n@open a.py\n@goto a.py 7") == [
        ("open", {"path": "a.py"}),
        ("goto", {"path": "a.py", "line": "7"}),
    ]
    for broken in ("(", "(?P<name>x)"):
        with pytest.raises(UsageError):
            CallPattern(broken)


@pytest.mark.parametrize("text", [QWEN, GLM, HERMES])
def test_all_three_make_the_same_call(text: str) -> None:
    (call,) = find_calls(f"I look.\n{text}")
    assert (call.name, json.loads(call.arguments), call.error) == ("read", {"path": "a.py"}, None)
    assert call.span == (8, 8 + len(text))
    turns = [{"role": "user", "content": "x"}, {"role": "assistant", "content": text}, {"role": "tool", "content": "y"}]
    trace = Chat().to_trace({"messages": turns}, RowRef(0))
    assert isinstance(trace, Trace) and find_unread_calls(trace) == []


def test_values_of_wrapped_calls() -> None:
    glm = "<tool_call>f<arg_key>n</arg_key><arg_value>3</arg_value><arg_key>s</arg_key>\n<arg_value>a\nb</arg_value>"
    glm += "</tool_call>"
    assert [json.loads(call.arguments) for call in WRAPPED_FUNCTION.parse(glm)] == [{"n": 3, "s": "a\nb"}]
    found = WRAPPED_FUNCTION.parse(f"{QWEN}\n{GLM}\n<tool_call>now</tool_call>")
    assert [call.name for call in found] == ["read", "read", "now"]


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
def test_what_is_no_wrapped_call(text: str) -> None:
    assert WRAPPED_FUNCTION.parse(text) == []
