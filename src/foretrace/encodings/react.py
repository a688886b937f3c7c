"""Calls as `Action: NAME` and `Action Input: {json}` lines (ReAct, ToolBench)."""

from __future__ import annotations

import re

from foretrace.core.trace import ToolCall
from foretrace.encodings.base import attach_span
from foretrace.encodings.json_arguments import find_json_end, read_arguments

_ACTION = re.compile(r"^Action:(.*+)\nAction Input:[ \t]*", re.MULTILINE)
_LINE_END = re.compile(r"[ \t\r]*(?:\n|\Z)")
_BROKEN_END = re.compile(r"\n(?=(?:Thought:|Action:|Observation:))")


class React:
    """The arguments are JSON, to the end of its line or, where it is broken, to the next marker."""

    name = "react"

    def parse(self, text: str) -> list[ToolCall]:
        """Find all calls, in order."""
        calls: list[ToolCall] = []
        at = 0
        while action := _ACTION.search(text, at):
            at = _find_end(text, action.end())
            raw = text[action.end() : at]
            arguments = read_arguments(raw)
            call = ToolCall(
                name=action.group(1).strip(),
                arguments=arguments.text,
                repairs=arguments.repairs,
                error=arguments.error,
            )
            calls.append(attach_span(self, call, text, (action.start(), at)))
        return calls

    def render(self, call: ToolCall) -> str:
        """Write the two lines; for a parsed call exactly what its span covers."""
        return str(call.extra.get("raw") or "") or f"Action: {call.name}\nAction Input: {call.arguments}"


def _find_end(text: str, start: int) -> int:
    """Find the end of the arguments: where their JSON ends, if its line ends there too.

    Else the JSON is broken, and they end before the next marker or at the end of the text.
    """
    whole = find_json_end(text, start)
    if whole is not None and _LINE_END.match(text, whole):
        return whole
    following = _BROKEN_END.search(text, start)
    return following.start() if following else max(start, len(text.rstrip()))


PLUGIN = React()
