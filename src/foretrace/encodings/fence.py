"""A call as the last bare ``` fence of a message: a shell line, or a tool's name with shell-quoted arguments."""

from __future__ import annotations

import re
import shlex
from typing import Any

import msgspec

from foretrace.core.trace import ToolCall
from foretrace.encodings.base import dumps, verbatim

_FENCE = re.compile(r"^```[ \t]*\n", re.MULTILINE)
_MARK = re.compile(r"^```(.*)$", re.MULTILINE)
_SHELL = re.compile(
    r"""(?P<space>[ \t\r\n]+)|(?P<plain>[^ \t\r\n'"\\]+)|'(?P<single>[^']*)'"""
    r"""|"(?P<double>[^"\\]*(?:\\.[^"\\]*)*)"|\\(?P<escaped>.)""",
    re.DOTALL,
)
_ESCAPED = re.compile(r"""\\(["\\])""")
_MOST_TOOL_LINES = 8
"""Fences that are tried as a tool's line: the rest of the text is read anew for each."""
_EDITOR = "str_replace_editor"
_SLOTS = ("file_text", "view_range", "old_str", "new_str", "insert_line")
_NUMBERS = frozenset({"view_range", "insert_line"})


class Fence:
    """SWE-agent's `ticks`: thought, blank line, a bare fence. A quoted body may itself hold fences."""

    name = "fence"

    def parse(self, text: str) -> list[ToolCall]:
        """At most one call."""
        end = len(text.rstrip()) - len("\n```")
        if end < 0 or not text.startswith("\n```", end):
            return []
        openings = [m for m in _FENCE.finditer(text) if m.end() <= end + 1]
        if not openings:
            return []
        lines = [m for m in openings if text.startswith((_EDITOR + " ", "submit"), m.end())]
        for opening in lines[:_MOST_TOOL_LINES]:
            if call := _tool_line(text[opening.end() : end]):
                return [_spanned(call, text, opening.start())]
        opening = _outermost(text, openings, end)
        body = text[opening.end() : end]
        return [_spanned(ToolCall(name="bash", arguments=dumps({"command": body})), text, opening.start())]

    def render(self, call: ToolCall) -> str:
        """The fence with the call's line in it; for a parsed call exactly what its span covers."""
        if raw := call.extra.get("raw"):
            return str(raw)
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
    bare = {m.start(): m for m in openings}
    is_open, opening = False, openings[-1]
    for mark in _MARK.finditer(text, 0, end):
        if is_open and mark.group(1).strip() == "":
            is_open = False
        elif not is_open:
            is_open = True
            opening = bare.get(mark.start(), opening)
    return opening


def _spanned(call: ToolCall, text: str, start: int) -> ToolCall:
    call = verbatim(PLUGIN, call, text, (start, len(text.rstrip())))
    return msgspec.structs.replace(call, repairs=("layout",)) if "raw" in call.extra else call


def _words(line: str) -> list[str] | None:
    """Words of a shell line, null when a quote is open: `shlex.split`, which takes quadratic time on long words."""
    words: list[str] = []
    pieces: list[str] | None = None
    at = 0
    while at < len(line):
        token = _SHELL.match(line, at)
        if token is None:
            return None
        at = token.end()
        if token.lastgroup == "space":
            if pieces is not None:
                words.append("".join(pieces))
            pieces = None
            continue
        text = token[token.lastgroup or 0]
        pieces = [] if pieces is None else pieces
        pieces.append(_ESCAPED.sub(r"\1", text) if token.lastgroup == "double" else text)
    return words if pieces is None else [*words, "".join(pieces)]


def _tool_line(line: str) -> ToolCall | None:
    words = _words(line)
    if not words:
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
            value = _list_of(value)
        if value is None:
            words.append("")
        else:
            text = " ".join(map(str, value)) if isinstance(value, list) else shlex.quote(str(value))
            words.append(f"--{key} {text}")
    return " ".join(words).rstrip(" ")


def _list_of(text: str) -> Any:
    try:
        return msgspec.json.decode(text) if text.startswith("[") else text
    except msgspec.DecodeError:
        return text


PLUGIN = Fence()
