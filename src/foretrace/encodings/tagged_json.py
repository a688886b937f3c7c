"""Calls as JSON behind a tag that is not Hermes' own: `<functioncall>` (Glaive), `<TOOLCALL>[...]` (Nemotron),
`[TOOL_CALLS]` (Mistral), `<function_call>`, `<tool_calls>`, `<|python_tag|>` (Llama)."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from foretrace.core.trace import ToolCall
from foretrace.encodings.base import attach_span
from foretrace.encodings.json_arguments import encode_json, find_json_end, read_arguments

TAGS = ("<functioncall>", "<TOOLCALL>", "[TOOL_CALLS]", "<function_call>", "<tool_calls>", "<|python_tag|>")
_OPEN = re.compile(rf"(?:{'|'.join(map(re.escape, TAGS))})\s*(?=[\[{{])")
_CLOSE = re.compile(r"\s*(?:</(?:functioncall|TOOLCALL|function_call|tool_calls)>|\[/TOOL_CALLS\]|<\|eom_id\|>)")
_QUOTED = re.compile(
    r"""\{\s*"name"\s*:\s*"(?P<name>[^"\n]+)"\s*,\s*"arguments"\s*:\s*'(?P<text>\{.*?\})'\s*\}(?=\s*(?:<|\Z))""",
    re.DOTALL,
)
"""Glaive's arguments: JSON within single quotes, which as a whole is no JSON."""
_INPUTS = ("arguments", "parameters", "args", "input")


class TaggedJson:
    """Behind a tag stands one call or a list of them. The spans of a list cover it, its brackets and tags included."""

    name = "tagged_json"

    def parse(self, text: str) -> list[ToolCall]:
        """Find all calls, in order; JSON without a name is text."""
        calls: list[ToolCall] = []
        at = 0
        while opening := _OPEN.search(text, at):
            at = opening.end()
            found, end = _read_body(text, at)
            if not found:
                continue
            close = _CLOSE.match(text, end)
            at = close.end() if close else end
            starts = [opening.start(), *(place for place, _ in found[1:])]
            for (_, call), span in zip(found, zip(starts, [*starts[1:], at], strict=True), strict=True):
                calls.append(attach_span(self, call, text, span))
        return calls

    def render(self, call: ToolCall) -> str:
        """Write the block; for a parsed call exactly what its span covers."""
        if raw := call.extra.get("raw"):
            return str(raw)
        body = f'{{"name": {encode_json(call.name)}, "arguments": {call.arguments}}}'
        return f"<function_call>{body}</function_call>"


def _read_body(text: str, start: int) -> tuple[list[tuple[int, ToolCall]], int]:
    """The calls, each with its place, and where the last one ends; none where this is something else."""
    if quoted := _QUOTED.match(text, start):
        read = read_arguments(quoted["text"])
        call = ToolCall(name=quoted["name"], arguments=read.text, repairs=read.repairs, error=read.error)
        return [(start, call)], quoted.end()
    end = find_json_end(text, start)
    if end is None:
        return [], start
    places = [start]
    if text[start] == "[":
        places.clear()
        at = start + 1
        while (stop := find_json_end(text, at)) is not None:
            places.append(at + len(text[at:stop]) - len(text[at:stop].lstrip()))
            at = stop + len(text[stop:end]) - len(text[stop:end].lstrip(" \t\r\n,"))
    found: list[tuple[int, ToolCall]] = []
    for place in places:
        call = _make_call(text[place : find_json_end(text, place)])
        if call is None:
            return [], start
        found.append((place, call))
    return found, end


def _make_call(text: str) -> ToolCall | None:
    try:
        value: Any = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return None
    function = value.get("function", value) if isinstance(value, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str) or not function["name"]:
        return None
    given: Any = next((function[key] for key in _INPUTS if key in function), {})
    read = read_arguments(given if isinstance(given, str) and given.strip() else encode_json(given or {}))
    return ToolCall(name=function["name"], arguments=read.text, repairs=read.repairs, error=read.error)


PLUGIN = TaggedJson()
