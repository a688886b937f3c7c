"""Encodings of agents that write their actions as text: the law, and the forms that each reads."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from encoding_law import check_law
from foretrace.core.errors import UsageError
from foretrace.core.trace import ToolCall
from foretrace.encodings.action_line import PLUGIN as ACTION_LINE
from foretrace.encodings.call_pattern import CallPattern
from foretrace.encodings.code_fence import PLUGIN as CODE_FENCE
from foretrace.encodings.function_xml import PLUGIN as FUNCTION_XML
from foretrace.encodings.json_action import PLUGIN as JSON_ACTION
from foretrace.encodings.json_arguments import encode_json
from foretrace.encodings.tagged_code import PLUGIN as TAGGED_CODE
from foretrace.encodings.web_call import PLUGIN as WEB_CALL
from foretrace.encodings.web_fence import PLUGIN as WEB_FENCE

words = st.from_regex(r"[A-Za-z_][\w-]{0,12}", fullmatch=True)
one_line = st.text(alphabet=st.characters(codec="utf-8", exclude_characters="\n"), max_size=40)
values = st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.text(st.characters(codec="utf-8"), max_size=20)


def read(encoding: Any, text: str) -> list[tuple[str, dict[str, Any]]]:
    return [(call.name, msgspec.json.decode(call.arguments)) for call in encoding.parse(text)]


@given(st.sampled_from(["execute", "execute_ipython"]), st.text(max_size=60).filter(lambda t: "</execute" not in t))
def test_tagged_code(name: str, code: str) -> None:
    """Any body that does not hold its own closing tag."""
    check_law(TAGGED_CODE, ToolCall(name=name, arguments=encode_json({"code": code})), "I run it.\n", "\nDone.")


def test_a_tag_within_a_line_counts_around_lines_of_its_own() -> None:
    """What mentions a tag in passing has no lines of its own between them."""
    assert read(TAGGED_CODE, "I look: <execute>\nprint(1)\n</execute>") == [("execute", {"code": "print(1)"})]
    assert read(TAGGED_CODE, "Write code in <execute> and </execute>.") == []


@given(st.sampled_from(["click", "stop", "goto"]), one_line.filter(lambda t: not set(t) & set("[]`")))
def test_web_fence(verb: str, value: str) -> None:
    """Values without brackets or fences."""
    key = {"click": "element", "stop": "answer", "goto": "url"}[verb]
    check_law(WEB_FENCE, ToolCall(name=verb, arguments=encode_json({key: value})), "Next is ", ".")


@given(st.sampled_from(["click", "type"]), st.dictionaries(st.from_regex(r"[a-z]{2,8}_x", fullmatch=True), values))
def test_web_call(verb: str, arguments: dict[str, Any]) -> None:
    """Keyword arguments that are texts, whole numbers, truth values or none."""
    check_law(WEB_CALL, ToolCall(name=verb, arguments=encode_json(arguments)), "# step 1\n", "\n# done")


@given(one_line.filter(str.strip), st.dictionaries(st.text(max_size=8), values, max_size=3))
def test_json_action(name: str, arguments: dict[str, Any]) -> None:
    """Any name and object."""
    check_law(JSON_ACTION, ToolCall(name=name, arguments=encode_json(arguments)), "Thought: look\n", "\nand on")


@given(one_line.filter(lambda t: "```" not in t))
def test_code_fence(command: str) -> None:
    """A body without fences."""
    check_law(CODE_FENCE, ToolCall(name="bash", arguments=encode_json({"command": command})), "I look.\n", "\nDone.")


@given(words, one_line)
def test_action_line(name: str, text: str) -> None:
    """A name of one word, and one line."""
    check_law(ACTION_LINE, ToolCall(name=name, arguments=encode_json({"input": text})), "Thought: go\n", "\n")


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


def test_json_actions_and_other_objects() -> None:
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
