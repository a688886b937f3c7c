"""Encodings of agents that write their actions as text: the law, and the forms that each reads."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from foretrace.core.errors import UsageError
from foretrace.encodings.action_lines import ACTION_LINE
from foretrace.encodings.call_pattern import CallPattern
from foretrace.encodings.json_calls import JSON_ACTION
from foretrace.encodings.parameter_tags import FUNCTION_XML
from foretrace.encodings.text_bodies import TAGGED_CODE
from foretrace.encodings.web_actions import WEB_CALL, WEB_FENCE


def read(encoding: Any, text: str) -> list[tuple[str, dict[str, Any]]]:
    return [(call.name, msgspec.json.decode(call.arguments)) for call in encoding.parse(text)]


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
