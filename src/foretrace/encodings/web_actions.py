"""Actions of agents in a browser, in a fence within the line (WebArena, NNetNav) or as a Python call (Synatra)."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from foretrace.core.trace import ToolCall
from foretrace.encodings.base import TextEncoding, find_at
from foretrace.encodings.json_arguments import encode_json
from foretrace.encodings.python_calls import read_python_arguments

WEB_VERBS: dict[str, tuple[str, ...]] = {
    "click": ("element",),
    "hover": ("element",),
    "type": ("element", "text", "press_enter"),
    "press": ("keys",),
    "scroll": ("direction",),
    "tab_focus": ("tab",),
    "page_focus": ("tab",),
    "new_tab": (),
    "close_tab": (),
    "page_close": (),
    "goto": ("url",),
    "go_back": (),
    "go_forward": (),
    "select": ("element", "option"),
    "stop": ("answer",),
    "note": ("text",),
}
"""Verb -> its arguments, in order: `type [89] [text] [1]` does not name them."""
_VERB = "|".join(WEB_VERBS)
_FENCE = re.compile(rf"```[ \t]*\n?[ \t]*({_VERB})\b[ \t]*((?:\[[^`]*\])?)\s*```")
_BETWEEN = re.compile(r"\][ \t]*\[")
_LINE = re.compile(rf"^(?P<call>({_VERB})\(([^\n]{{0,10000}})\))[ \t]*$", re.MULTILINE)


def _read_fence(text: str, match: re.Match[str]) -> ToolCall:
    return ToolCall(name=match[1], arguments=encode_json(_name_values(match[1], match[2])), span=match.span())


def _name_values(verb: str, brackets: str) -> dict[str, str]:
    """The values by name."""
    names = WEB_VERBS[verb] or ("input",)
    if not brackets:
        return {}
    values = _BETWEEN.split(brackets[1:-1])
    if len(values) > len(names):
        # A text may contain brackets: the first value is plain, and so is the last of three.
        tail = values[-1:] if len(names) > 2 and values[-1] in ("0", "1") else []
        head = values[: min(1, len(names) - 1)]
        values = [*head, "] [".join(values[len(head) : len(values) - len(tail)]), *tail]
    return dict(zip(names, values, strict=False))


def _write_fence(call: ToolCall) -> str:
    values: dict[str, Any] = msgspec.json.decode(call.arguments)
    return f"```{' '.join([call.name, *(f'[{value}]' for value in values.values())])}```"


WEB_FENCE = TextEncoding("web_fence", find_at(_FENCE, _read_fence), _write_fence, hints=("```",))
"""```` ```type [89] [text] [1]``` ````."""


def _read_line(text: str, match: re.Match[str]) -> ToolCall | None:
    """A call on its own line; any other line, and a call without literal arguments, is text."""
    arguments = read_python_arguments(match[3], WEB_VERBS[match[2]])
    return None if arguments is None else ToolCall(name=match[2], arguments=arguments, span=match.span("call"))


def _write_call(call: ToolCall) -> str:
    values: dict[str, Any] = msgspec.json.decode(call.arguments)
    literals = (f"{key}={encode_json(v) if isinstance(v, str) else repr(v)}" for key, v in values.items())
    return f"{call.name}({', '.join(literals)})"


WEB_CALL = TextEncoding("web_call", find_at(_LINE, _read_line), _write_call, hints=("(",))
"""`click(element_id="93")`."""
