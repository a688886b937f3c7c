"""Calls as `<function=NAME>` blocks with unescaped `<parameter=KEY>` values (SWE-agent xml, OpenHands text)."""

from __future__ import annotations

import re

import msgspec

from foretrace.core.trace import ToolCall
from foretrace.encodings.base import dumps

_OPEN = re.compile(r"<function=([^>\s]+)>")
_PARAMETER = re.compile(r"\s*<parameter=([^>\n]+)>")
_CLOSE_VALUE = re.compile(r"</parameter>(?=\s*(?:<parameter=[^>\n]+>|</function>))")
_CLOSE = re.compile(r"\s*</function>")
_WRAPPED = frozenset({"old_str", "new_str", "file_text"})
"""Parameters whose value stands on lines of its own, so that its own newlines survive."""


class FunctionXml:
    """Values are text and not escaped: a body may hold tag-like text, so blocks are read from their structure."""

    name = "function_xml"

    def parse(self, text: str) -> list[ToolCall]:
        """All blocks, in order; one without an end has `error` set."""
        calls: list[ToolCall] = []
        at = 0
        while opening := _OPEN.search(text, at):
            call = _read_block(text, opening)
            calls.append(call)
            assert call.span is not None
            at = call.span[1]
        return calls

    def render(self, call: ToolCall) -> str:
        """The block; `extra` says which values deviate from the usual layout."""
        bare = set(call.extra.get("bare", ()))
        lines = [f"<function={call.name}>"]
        for key, value in msgspec.json.decode(call.arguments).items():
            text = value if isinstance(value, str) else dumps(value)
            if key in _WRAPPED and key not in bare:
                text = f"\n{text}\n"
            lines.append(f"<parameter={key}>{text}</parameter>")
        return "\n".join([*lines, "</function>"])


def _read_block(text: str, opening: re.Match[str]) -> ToolCall:
    arguments: dict[str, str] = {}
    bare: list[str] = []
    at = opening.end()
    while parameter := _PARAMETER.match(text, at):
        end = _value_end(text, parameter.end())
        if end is None:
            return _broken(text, opening, "parameter without an end")
        key, value = parameter.group(1), text[parameter.end() : end]
        if key in _WRAPPED:
            if len(value) > 1 and value[0] == "\n" and value[-1] == "\n":
                value = value[1:-1]
            else:
                bare.append(key)
        arguments[key] = value
        at = end + len("</parameter>")
    closing = _CLOSE.match(text, at)
    if closing is None:
        return _broken(text, opening, "function block without an end")
    call = ToolCall(name=opening.group(1), arguments=dumps(arguments), extra={"bare": bare} if bare else {})
    span = (opening.start(), closing.end())
    repairs = () if PLUGIN.render(call) == text[span[0] : span[1]] else ("layout",)
    return msgspec.structs.replace(call, span=span, repairs=repairs)


def _value_end(text: str, start: int) -> int | None:
    """Where the value that begins at `start` ends: at the first closing tag that leaves no orphan behind.

    A body may quote whole blocks. The first structural end is right unless a closing `</function>` follows
    before any new block opens: then the end that was found belonged to the body.
    """
    for closing in _CLOSE_VALUE.finditer(text, start):
        end = _CLOSE.match(text, closing.end())
        if end is None:
            return closing.start()
        orphan = text.find("</function>", end.end())
        if orphan < 0 or 0 <= text.find("<function=", end.end()) < orphan:
            return closing.start()
    return None


def _broken(text: str, opening: re.Match[str], error: str) -> ToolCall:
    return ToolCall(name=opening.group(1), span=(opening.start(), len(text)), error=error)


PLUGIN = FunctionXml()
