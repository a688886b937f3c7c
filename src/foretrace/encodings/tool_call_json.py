"""Calls as `<tool_call>{"name": ..., "arguments": {...}}</tool_call>` (Hermes, Qwen)."""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec

from foretrace.core.trace import ToolCall
from foretrace.encodings.base import attach_span
from foretrace.encodings.json_arguments import JsonArguments, encode_json, find_json_end, read_arguments

_OPEN = re.compile(r"<tool_call>")
_TAG = re.compile(r"</?tool_call>")


class ToolCallJson:
    """A block ends behind its JSON, so a closing tag inside of a JSON string does not end it."""

    name = "tool_call_json"

    def parse(self, text: str) -> list[ToolCall]:
        """Find all blocks, in order; one that cannot be read has `error` set."""
        calls: list[ToolCall] = []
        at = 0
        while opening := _OPEN.search(text, at):
            call = _read_block(text, opening.start(), opening.end())
            calls.append(call)
            assert call.span is not None
            at = call.span[1]
        return calls

    def render(self, call: ToolCall) -> str:
        """Write the block; for a parsed call exactly what its span covers."""
        if raw := call.extra.get("raw"):
            return str(raw)
        body = f'{{"name": {encode_json(call.name)}, "arguments": {call.arguments}}}'
        return f"<tool_call>\n{body}\n</tool_call>"


def _read_block(text: str, start: int, body_start: int) -> ToolCall:
    end = find_json_end(text, body_start)
    tag = _TAG.search(text, body_start if end is None else end)
    if tag is None or tag.group() == "<tool_call>":
        stop = tag.start() if tag else len(text)
        return attach_span(PLUGIN, ToolCall(error="tool call without an end"), text, (start, stop))
    return _make_call(text[body_start : tag.start()], text, (start, tag.end()))


def _make_call(body: str, text: str, span: tuple[int, int]) -> ToolCall:
    call_json = read_arguments(body.strip())
    value: dict[str, Any] = {} if call_json.error else msgspec.json.decode(call_json.text)
    name, inner, error = value.get("name"), value.get("arguments"), call_json.error
    if error is None and not isinstance(name, str):
        error = "tool call without a name"
    written = None if call_json.repairs else find_member(call_json.text, "arguments")
    if inner is None:
        arguments = JsonArguments("{}")
    elif isinstance(inner, str):
        arguments = read_arguments(inner)
    else:
        arguments = read_arguments(written or encode_json(inner))
    call = ToolCall(
        name=name if isinstance(name, str) else "",
        arguments=arguments.text,
        repairs=call_json.repairs + arguments.repairs,
        error=error or arguments.error,
    )
    return attach_span(PLUGIN, call, text, span)


def find_member(text: str, wanted: str) -> str | None:
    """Find the text of one member of a JSON object, so that a number or an escape stays as the agent wrote it."""
    member, at = None, text.index("{") + 1
    while (key_end := find_json_end(text, at)) is not None:
        begin = text.index(":", key_end) + 1
        end = find_json_end(text, begin)
        if end is None:
            return None
        if json.loads(text[at:key_end]) == wanted:
            member = text[begin:end].strip()
        at = end
        while text[at] in " \t\r\n":
            at += 1
        if text[at] == "}":
            return member
        at += 1
    return member


PLUGIN = ToolCallJson()
