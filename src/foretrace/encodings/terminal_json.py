"""Key strokes for a terminal as objects of a JSON list `commands` (Terminus, OpenThoughts-Agent)."""

from __future__ import annotations

import re

import msgspec

from foretrace.core.trace import ToolCall
from foretrace.encodings.base import attach_span
from foretrace.encodings.json_arguments import find_json_end, read_arguments

_KEYS, _DONE = "bash_command", "mark_task_complete"
"""Names under which harbor exports these calls."""
_CALL = re.compile(
    r"(?<!`)(?P<alone>\{\s*\"task_complete\"\s*:\s*true\s*\})"
    r"|(?<!`)[{,]\s*(?P<done>\"task_complete\"\s*:\s*true)(?=\s*[,}])"
    r'|\{(?=\s*"(?P<first>keystrokes"\s*:)?)'
)
_OBJECT = re.compile(r'\{(?:[^{}"\\]|"(?:[^"\\]|\\.)*+")*+\}', re.DOTALL)
"""An object without others in it."""
_MAX_FAILED = 64
"""Objects that are not whole before a text is taken for one without calls: each may be read to the end."""
_KEY = re.compile(r'"keystrokes"\s*:')
_LAST_COMMA = re.compile(r",\s*\}\Z")
_DONE_TEXT = '{"task_complete": true}'


class TerminalJson:
    """Each object with key strokes is a call, and so is `"task_complete": true` as a member of an object. What is
    thought stands in the same JSON, so that it stays text."""

    name = "terminal_json"

    def parse(self, text: str) -> list[ToolCall]:
        """Find all calls, in order; an object that is cut off is none, and one that is no JSON has `error` set."""
        calls: list[ToolCall] = []
        at = failed = 0
        while found := _CALL.search(text, at):
            at = found.start() + 1
            kind = "done" if found["done"] else "alone"
            if found[kind]:
                call, span = ToolCall(name=_DONE, arguments="{}"), found.span(kind)
            else:
                end = _find_end(text, found.start(), bool(found["first"])) if failed < _MAX_FAILED else None
                failed += end is None and bool(found["first"])
                span = (found.start(), end or at)
                call = _read_keys(text[span[0] : span[1]]) if end else None
            if call is not None:
                at = span[1]
                calls.append(attach_span(self, call, text, span))
        return calls

    def render(self, call: ToolCall) -> str:
        """Write the object; for a parsed call exactly what its span covers."""
        return str(call.extra.get("raw") or "") or (_DONE_TEXT if call.name == _DONE else call.arguments)


def _find_end(text: str, start: int, is_first: bool) -> int | None:
    """Where the object of a call ends: one without others in it, or one that begins with its key strokes."""
    if flat := _OBJECT.match(text, start):
        return flat.end()
    return find_json_end(text, start) if is_first else None


def _read_keys(text: str) -> ToolCall | None:
    if not _KEY.search(text):
        return None
    whole = _LAST_COMMA.sub("}", text)
    read = read_arguments(whole)
    if read.error or "json_repair" in read.repairs:
        # Where quotation marks are not escaped, no repair can know what was to be typed.
        return ToolCall(name=_KEYS, error=read.error or "key strokes that are not JSON")
    if not isinstance(msgspec.json.decode(read.text).get("keystrokes"), str):
        return None
    return ToolCall(name=_KEYS, arguments=read.text, repairs=read.repairs if whole == text else ("json_repair",))


PLUGIN = TerminalJson()
