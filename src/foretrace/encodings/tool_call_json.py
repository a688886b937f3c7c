"""Calls as `<tool_call>{"name": ..., "arguments": {...}}</tool_call>` (Hermes, Qwen)."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from foretrace.core.trace import ToolCall
from foretrace.encodings.base import dumps, read_arguments

_OPEN = re.compile(r"<tool_call>")
_CLOSE = re.compile(r"</tool_call>")


class ToolCallJson:
    """A closing tag inside a JSON string is not the end: the block ends where its JSON is whole."""

    name = "tool_call_json"

    def parse(self, text: str) -> list[ToolCall]:
        """All blocks, in order; one that cannot be read has `error` set."""
        calls: list[ToolCall] = []
        at = 0
        while opening := _OPEN.search(text, at):
            call = _read_block(text, opening.start(), opening.end())
            calls.append(call)
            assert call.span is not None
            at = call.span[1]
        return calls

    def render(self, call: ToolCall) -> str:
        """The block; for a parsed call exactly what it was read from."""
        if raw := call.extra.get("raw"):
            return str(raw)
        body = f'{{"name": {dumps(call.name)}, "arguments": {call.arguments}}}'
        return f"<tool_call>\n{body}\n</tool_call>"


def _read_block(text: str, start: int, body_start: int) -> ToolCall:
    end = len(text)
    for closing in _CLOSE.finditer(text, body_start):
        end = closing.end()
        try:
            msgspec.json.decode(text[body_start : closing.start()])
        except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
            continue
        return _from_body(text[body_start : closing.start()], text, (start, end))
    first = _CLOSE.search(text, body_start)
    if first is None:
        return ToolCall(span=(start, len(text)), error="tool call without an end", extra={"raw": text[start:]})
    return _from_body(text[body_start : first.start()], text, (start, first.end()))


def _from_body(body: str, text: str, span: tuple[int, int]) -> ToolCall:
    read = read_arguments(body.strip())
    value: dict[str, Any] = {} if read.error else msgspec.json.decode(read.text)
    name, inner, error = value.get("name"), value.get("arguments", {}), read.error
    if error is None and not isinstance(name, str):
        error = "tool call without a name"
    arguments = read_arguments(inner if isinstance(inner, str) else dumps(inner))
    call = ToolCall(
        name=name if isinstance(name, str) else "",
        arguments=arguments.text,
        repairs=read.repairs + arguments.repairs,
        error=error or arguments.error,
    )
    raw = text[span[0] : span[1]]
    extra = {} if PLUGIN.render(call) == raw else {"raw": raw}
    return msgspec.structs.replace(call, span=span, extra=extra)


PLUGIN = ToolCallJson()
