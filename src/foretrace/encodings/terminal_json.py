"""Key strokes for a terminal as objects of a JSON list `commands` (Terminus, OpenThoughts-Agent)."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from foretrace.core.trace import ToolCall
from foretrace.encodings.base import attach_span
from foretrace.encodings.json_arguments import encode_json, find_json_end

_KEYS, _DONE = "bash_command", "mark_task_complete"
"""Names under which harbor exports these calls."""
_CALL = re.compile(r'(?P<keys>\{\s*"keystrokes"\s*:)|"task_complete"\s*:\s*true\b')
_DONE_TEXT = '"task_complete": true'


class TerminalJson:
    """Each object with key strokes is a call, and so is `"task_complete": true`. What is thought stands in the same
    JSON, so that it stays text."""

    name = "terminal_json"

    def parse(self, text: str) -> list[ToolCall]:
        """Find all calls, in order; an object that is cut off is none."""
        calls: list[ToolCall] = []
        at = 0
        while found := _CALL.search(text, at):
            at = found.end()
            call: ToolCall | None = ToolCall(name=_DONE, arguments="{}")
            if found["keys"]:
                end = find_json_end(text, found.start())
                call = None if end is None else _read_keys(text[found.start() : end])
                at = at if end is None else end
            if call is not None:
                calls.append(attach_span(self, call, text, (found.start(), at)))
        return calls

    def render(self, call: ToolCall) -> str:
        """Write the object; for a parsed call exactly what its span covers."""
        return str(call.extra.get("raw") or "") or (_DONE_TEXT if call.name == _DONE else call.arguments)


def _read_keys(text: str) -> ToolCall | None:
    try:
        value: Any = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return None
    is_call = isinstance(value, dict) and isinstance(value.get("keystrokes"), str)
    return ToolCall(name=_KEYS, arguments=encode_json(value)) if is_call else None


PLUGIN = TerminalJson()
