"""A call after `Action:`, in many forms: `search[shoes]` (WebShop), `get_relations(x)`, `go to shelf 1` (ALFWorld), a
fence after `Operation` or `bash` (AgentBench), `Answer` with its `Final Answer:`, `CLICK` with an element (Mind2Web).
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from foretrace.core.trace import ToolCall
from foretrace.encodings.base import TextEncoding, find_at
from foretrace.encodings.json_arguments import encode_json, try_decode

_LABEL = re.compile(
    r"^[ \t]*(?P<label>(?:Action|ACTION|Act)(?: \d+)?:[ \t]*\n?[ \t]*(?=\S)|(?P<final>Final Answer:)[ \t]*)",
    re.MULTILINE,
)
_INPUT = re.compile(r"[^\n]*\n+[ \t]*Action Input:")
_BRACKETS = re.compile(r"([A-Za-z_][\w -]{0,60}?)(?:\[([^\n]*)\]|\(([^\n]*)\))[ \t.]*$", re.MULTILINE)
_FENCE = re.compile(r"(\w+)[ \t]*\n+[ \t]*```(\w*)[ \t]*\n(.*?)\n?[ \t]*```", re.DOTALL)
_ANSWER = re.compile(r"(?:Answer|answer|Finish|finish)[ \t]*\n+[ \t]*Final Answer:[ \t]*")
_CHOICE = re.compile(r"([A-Z]{3,12})[ \t]*$(?:\n[ \t]*Value:[ \t]*([^\n]*))?", re.MULTILINE)
_ELEMENT = re.compile(r"^Answer:[ \t]*([^\n]*?)\.?[ \t]*$", re.MULTILINE)
_LINE = re.compile(r"[^\n]+")
_BODY_KEYS = {"sql": "query", "python": "code"}
A_LINE = "act"
"""The tool of a line after a label that names none."""

_Action = tuple[str, dict[str, Any], int]
"""The tool, its arguments, and the end of the action."""


def _read_label(text: str, label: re.Match[str]) -> ToolCall | None:
    """The argument `input` is one text after the label. If `Action Input:` follows, it belongs to another encoding."""
    at = label.end()
    read = _read_answer if label["final"] else _read_action
    found = None if _INPUT.match(text, at) else read(text, at)
    if found is None:
        return None
    name, arguments, end = found
    return ToolCall(name=name, arguments=encode_json(arguments), span=(label.start("label"), end))


def _read_action(text: str, at: int) -> _Action | None:
    if answer := _ANSWER.match(text, at):
        return _read_answer(text, answer.end())
    if fence := _FENCE.match(text, at):
        tool = (fence[2] or fence[1]).lower()
        return tool, {_BODY_KEYS.get(tool, "command"): fence[3]}, fence.end()
    if call := _BRACKETS.match(text, at):
        inside = call[2] if call[2] is not None else call[3]
        return call[1].strip(), {"input": inside}, max(call.end(2), call.end(3)) + 1
    if choice := _CHOICE.match(text, at):
        element = _ELEMENT.search(text, 0, at)
        given = {"element": element[1] if element else None, "value": choice[2]}
        end = choice.end(2) if choice[2] is not None else choice.end(1)
        return choice[1].lower(), {k: v for k, v in given.items() if v is not None}, end
    line = _LINE.match(text, at)
    if line is None:
        return None
    words = line[0].strip()
    return "answer" if words.lower() == "answer" else A_LINE, {"input": words}, at + len(line[0].rstrip())


def _read_answer(text: str, at: int) -> _Action:
    answer = text[at:].strip()
    listed = try_decode(answer) if answer.startswith("[") else None
    return "answer", {"answer": answer if listed is None else listed}, max(at, len(text.rstrip()))


def _write_action(call: ToolCall) -> str:
    values: dict[str, Any] = msgspec.json.decode(call.arguments)
    return f"Action: {call.name}[{', '.join(map(str, values.values()))}]"


ACTION_LINE = TextEncoding(
    "action_line", find_at(_LABEL, _read_label), _write_action, hints=("Act", "ACTION", "Final Answer:")
)
