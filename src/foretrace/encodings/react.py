"""Calls as `Action: NAME` and `Action Input: {json}` lines (ReAct, ToolBench)."""

from __future__ import annotations

import re

import msgspec

from foretrace.core.trace import ToolCall
from foretrace.encodings.base import read_arguments

_ACTION = re.compile(r"^Action:[ \t]*(.*)\nAction Input:[ \t]*", re.MULTILINE)
_NEXT = re.compile(r"\n(?=(?:Thought:|Action:|Observation:))")


class React:
    """The arguments run to the next marker or the end of the text."""

    name = "react"

    def parse(self, text: str) -> list[ToolCall]:
        """All calls, in order."""
        calls: list[ToolCall] = []
        at = 0
        while action := _ACTION.search(text, at):
            at = _end(text, action.end())
            raw = text[action.end() : at]
            arguments = read_arguments(raw)
            call = ToolCall(
                name=action.group(1).strip(),
                arguments=arguments.text,
                span=(action.start(), at),
                repairs=arguments.repairs,
                error=arguments.error,
            )
            if self.render(call) != text[action.start() : at]:
                call = msgspec.structs.replace(call, extra={"raw": text[action.start() : at]})
            calls.append(call)
        return calls

    def render(self, call: ToolCall) -> str:
        """The two lines; for a call that needed repair, the text as it stood."""
        return call.extra.get("raw") or f"Action: {call.name}\nAction Input: {call.arguments}"


def _end(text: str, start: int) -> int:
    """End of the arguments: the first marker line at which they are whole, else the end of the text."""
    for mark in _NEXT.finditer(text, start):
        try:
            msgspec.json.decode(text[start : mark.start()])
        except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
            continue
        return mark.start()
    return start + len(text[start:].rstrip())


PLUGIN = React()
