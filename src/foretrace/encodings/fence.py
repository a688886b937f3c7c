"""A call as the last bare ``` fence of a message: a shell line, or a tool's name with shell-quoted arguments."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import Any

import msgspec

from foretrace.core.trace import ToolCall
from foretrace.encodings.base import TextEncoding
from foretrace.encodings.json_arguments import encode_json

_BARE_FENCE = re.compile(r"^```[ \t]*\n", re.MULTILINE)
_ANY_FENCE = re.compile(r"^```(.*)$", re.MULTILINE)
_MAX_TOOL_LINES = 8
"""Most fences that are tried as a tool's line: each reads the rest of the text."""
_EDITOR = "str_replace_editor"
_EDITOR_SLOTS = ("file_text", "view_range", "old_str", "new_str", "insert_line")
_NUMBER_SLOTS = frozenset({"view_range", "insert_line"})
_QUOTED = r"""'([^']*)'|"((?:[^"\\]|\\.)*+)"|\\(.)"""
_PIECE = re.compile(_QUOTED, re.DOTALL)
"""Of a word of a shell line: text in single or double quotes, or an escaped character."""
_WORD = re.compile(rf"""(?:[^ \t\r\n'"\\]++|{_QUOTED})++""", re.DOTALL)


def _find_fence(text: str) -> Iterator[ToolCall]:
    """The call in the last fence, if the text ends with one. Its quoted arguments may contain fences."""
    stop = len(text.rstrip())
    end = stop - len("\n```")
    if end < 0 or not text.startswith("\n```", end):
        return
    openings = [m for m in _BARE_FENCE.finditer(text) if m.end() <= end + 1]
    if not openings:
        return
    lines = [m for m in openings if text.startswith((_EDITOR + " ", "submit"), m.end())]
    for opening in lines[:_MAX_TOOL_LINES]:
        if call := _parse_tool_line(text[opening.end() : end]):
            yield msgspec.structs.replace(call, span=(opening.start(), stop))
            return
    opening = _find_last_block(text, openings, end)
    arguments = encode_json({"command": text[opening.end() : end]})
    yield ToolCall(name="bash", arguments=arguments, span=(opening.start(), stop))


def _write_fence(call: ToolCall) -> str:
    arguments: dict[str, Any] = msgspec.json.decode(call.arguments)
    if call.name == "bash":
        line = str(arguments.get("command", ""))
    elif call.name == _EDITOR:
        line = _render_editor_line(arguments)
    else:
        line = " ".join([call.name, *(shlex.quote(str(v)) for v in arguments.values())])
    return f"```\n{line}\n```"


def _find_last_block(text: str, openings: list[re.Match[str]], end: int) -> re.Match[str]:
    """Find the opening of the last fenced block: earlier blocks in the thought are closed before it."""
    bare = {m.start(): m for m in openings}
    is_open, opening = False, openings[-1]
    for mark in _ANY_FENCE.finditer(text, 0, end):
        if is_open and mark.group(1).strip() == "":
            is_open = False
        elif not is_open:
            is_open = True
            opening = bare.get(mark.start(), opening)
    return opening


def _parse_tool_line(line: str) -> ToolCall | None:
    words = split_words(line)
    if words == ["submit"]:
        return ToolCall(name="submit", arguments="{}")
    if words is None or len(words) < 2 or words[0] != _EDITOR:
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
        arguments[key] = _parse_value(key, values)
        at += 1 + width
    return ToolCall(name=_EDITOR, arguments=encode_json(arguments))


def split_words(line: str) -> list[str] | None:
    """What `shlex.split` gives, in linear time (it takes 15 seconds for a quoted megabyte); `None` if a quote is not
    closed."""
    if _WORD.sub("", line).strip(" \t\r\n"):
        return None
    return [_PIECE.sub(_unquote, match[0]) for match in _WORD.finditer(line)]


def _unquote(piece: re.Match[str]) -> str:
    single, double, escaped = piece.groups()
    return re.sub(r'\\(["\\])', r"\1", double) if double is not None else escaped or single or ""


def _parse_value(key: str, values: list[str]) -> Any:
    if key not in _NUMBER_SLOTS:
        return values[0]
    try:
        numbers = [int(v) for v in values]
    except ValueError:
        return " ".join(values)
    return numbers if key == "view_range" else numbers[0]


def _render_editor_line(arguments: dict[str, Any]) -> str:
    """A line of the editor as SWE-agent writes it: a fixed series of arguments, blank if missing."""
    words = [_EDITOR, *(shlex.quote(str(arguments[k])) for k in ("command", "path") if k in arguments)]
    for key in (*_EDITOR_SLOTS, *(k for k in arguments if k not in (*_EDITOR_SLOTS, "command", "path"))):
        value = arguments.get(key)
        if value is None:
            words.append("")
        else:
            text = " ".join(map(str, value)) if isinstance(value, list) else shlex.quote(str(value))
            words.append(f"--{key} {text}")
    return " ".join(words).rstrip(" ")


FENCE = TextEncoding("fence", _find_fence, _write_fence, hints=("\n```",), layout=True)
"""The `ticks` of SWE-agent: a thought, a blank line, a bare fence."""
