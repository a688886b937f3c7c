"""A call as the last bare ``` fence of a message: a shell line, or a tool's name with shell-quoted arguments."""

from __future__ import annotations

import json
import re
import shlex
from typing import Any

import msgspec

from foretrace.core.trace import ToolCall
from foretrace.encodings.base import dumps

_FENCE = re.compile(r"^```[ \t]*\n", re.MULTILINE)
_END = re.compile(r"\n```[ \t]*\s*\Z")
_EDITOR = "str_replace_editor"
_SLOTS = ("file_text", "view_range", "old_str", "new_str", "insert_line")
_NUMBERS = frozenset({"view_range", "insert_line"})


class Fence:
    """SWE-agent's `ticks`: thought, blank line, a bare fence. A quoted body may itself hold fences."""

    name = "fence"

    def parse(self, text: str) -> list[ToolCall]:
        """At most one call."""
        ending = _END.search(text)
        if ending is None:
            return []
        openings = [m for m in _FENCE.finditer(text) if m.end() <= ending.start() + 1]
        if not openings:
            return []
        for opening in openings:
            body = text[opening.end() : ending.start()]
            if body.startswith((_EDITOR + " ", "submit")) and (call := _tool_line(body)):
                return [_spanned(call, text, opening.start())]
        opening = _outermost(text, openings, ending.start())
        body = text[opening.end() : ending.start()]
        return [_spanned(ToolCall(name="bash", arguments=dumps({"command": body})), text, opening.start())]

    def render(self, call: ToolCall) -> str:
        """The fence with the call's line in it."""
        arguments: dict[str, Any] = msgspec.json.decode(call.arguments)
        if call.name == "bash":
            line = str(arguments.get("command", ""))
        elif call.name == _EDITOR:
            line = _editor_line(arguments)
        else:
            line = " ".join([call.name, *(shlex.quote(str(v)) for v in arguments.values())])
        return f"```\n{line}\n```"


def _outermost(text: str, openings: list[re.Match[str]], end: int) -> re.Match[str]:
    """The opening of the last fence: an earlier block in the thought is closed before it."""
    is_open, opening = False, openings[-1]
    for mark in re.finditer(r"^```(.*)$", text[:end], re.MULTILINE):
        if is_open and mark.group(1).strip() == "":
            is_open = False
        elif not is_open:
            is_open = True
            match = next((m for m in openings if m.start() == mark.start()), None)
            opening = match or opening
    return opening


def _spanned(call: ToolCall, text: str, start: int) -> ToolCall:
    span = (start, len(text.rstrip()))
    repairs = () if PLUGIN.render(call) == text[span[0] : span[1]] else ("layout",)
    return msgspec.structs.replace(call, span=span, repairs=repairs)


def _tool_line(line: str) -> ToolCall | None:
    try:
        words = shlex.split(line)
    except ValueError:
        return None
    if words == ["submit"]:
        return ToolCall(name="submit", arguments="{}")
    if words[0] != _EDITOR or len(words) < 2:
        return None
    arguments: dict[str, Any] = {"command": words[1]}
    at = 2
    if at < len(words) and not words[at].startswith("--"):
        arguments["path"] = words[at]
        at += 1
    while at < len(words):
        if not words[at].startswith("--"):
            return None
        key = words[at][2:]
        width = 2 if key == "view_range" else 1
        values = words[at + 1 : at + 1 + width]
        if len(values) < width:
            return None
        arguments[key] = _typed(key, values)
        at += 1 + width
    return ToolCall(name=_EDITOR, arguments=dumps(arguments))


def _typed(key: str, values: list[str]) -> Any:
    if key not in _NUMBERS:
        return values[0]
    try:
        numbers = [int(v) for v in values]
    except ValueError:
        return " ".join(values)
    return numbers if key == "view_range" else numbers[0]


def _editor_line(arguments: dict[str, Any]) -> str:
    """SWE-agent fills a fixed row of slots; an argument that is not given leaves its blank."""
    words = [_EDITOR, *(shlex.quote(str(arguments[k])) for k in ("command", "path") if k in arguments)]
    for key in (*_SLOTS, *(k for k in arguments if k not in (*_SLOTS, "command", "path"))):
        value = arguments.get(key)
        if key == "view_range" and isinstance(value, str):
            value = json.loads(value) if value.startswith("[") else value
        if value is None:
            words.append("")
        else:
            text = " ".join(map(str, value)) if isinstance(value, list) else shlex.quote(str(value))
            words.append(f"--{key} {text}")
    return " ".join(words).rstrip(" ")


PLUGIN = Fence()
