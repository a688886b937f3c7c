"""Calls as a tag of the tool's name around a tag for each argument (Cline, Roo, Kilo)."""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec

from foretrace.core.trace import ToolCall
from foretrace.encodings.base import attach_span
from foretrace.encodings.json_arguments import encode_json, read_arguments

_TOOLS = (
    "execute_command|read_file|write_to_file|replace_in_file|apply_diff|insert_content|search_and_replace|"
    "edit_file|search_files|list_files|list_code_definition_names|codebase_search|browser_action|"
    "web_fetch|web_search|use_mcp_tool|access_mcp_resource|load_mcp_documentation|fetch_instructions|"
    "use_skill|ask_followup_question|attempt_completion|plan_mode_respond|new_task|switch_mode|condense|"
    "summarize_task|update_todo_list|run_slash_command|generate_image|new_rule|report_bug"
)
_OPEN = re.compile(rf"^[ \t]*<({_TOOLS})>[ \t]*\n?", re.MULTILINE)
_OF_FILES = ("content", "diff")
"""Arguments that are text of files, which may hold their closing tag: the last one ends them."""
_ARGUMENT = re.compile(r"\s*<(\w+)>")
_FOLLOWING = re.compile(r"\s*(?:<\w+>|\Z)")
_TEXT = re.compile(r"\s*\S")


class ToolTags:
    """Tags count at the beginning of a line, and only those of tools that are known: any other tag may be the markup
    of a page."""

    name = "tool_tags"

    def parse(self, text: str) -> list[ToolCall]:
        """Find all calls, in order; one that is not closed was cut off and goes on to the end."""
        calls: list[ToolCall] = []
        at = 0
        while opening := _OPEN.search(text, at):
            name, close = opening[1], f"</{opening[1]}>"
            stop = text.find(close, opening.end())
            body = text[opening.end() : stop if stop >= 0 else len(text)]
            at = stop + len(close) if stop >= 0 else len(text)
            arguments, error = _read_body(body)
            call = ToolCall(name=name, arguments=arguments, error=error if stop >= 0 else f"{name} without an end")
            start = opening.start() + len(opening.group()) - len(opening.group().lstrip())
            calls.append(attach_span(self, call, text, (start, at)))
        return calls

    def render(self, call: ToolCall) -> str:
        """Write the block; for a parsed call exactly what its span covers."""
        if raw := call.extra.get("raw"):
            return str(raw)
        return f"<{call.name}>\n{_write_body(call)}</{call.name}>"


def _write_body(call: ToolCall) -> str:
    """A tag for each argument; as JSON where tags would not be read back as the same: they have no types, and their
    text no escapes."""
    values: dict[str, Any] = msgspec.json.decode(call.arguments)
    body = "".join(_write_tag(key, each) for key, value in values.items() for each in _list(value))
    if f"</{call.name}>" not in body and _read_body(body) == (call.arguments, None):
        return body
    return call.arguments.replace("<", "\\u003c") + "\n"


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _write_tag(key: str, value: Any) -> str:
    framed = f"\n{value}\n" if isinstance(value, str) and value[:1] == "\n" == value[-1:] else value
    return f"<{key}>{framed}</{key}>\n"


def _read_body(body: str) -> tuple[str, str | None]:
    """The arguments as JSON, and what in the body is none of them."""
    if body.lstrip().startswith("{"):
        read = read_arguments(body.strip())
        if read.error or "json_repair" in read.repairs:
            return "{}", "text that is no argument"
        # An escaped `<` is ours.
        return encode_json(json.loads(read.text)) if "\\u003c" in read.text else read.text, None
    values: dict[str, list[str]] = {}
    error = None
    at = 0
    while opening := _ARGUMENT.match(body, at):
        close = _find_close(body, opening)
        end = len(body) if close is None else close
        value = body[opening.end() : end]
        if value.startswith("\n") and value.endswith("\n") and len(value) > 1:
            value = value[1:-1]
        values.setdefault(opening[1], []).append(value)
        at = len(body) if close is None else close + len(f"</{opening[1]}>")
        error = f"{opening[1]} without an end" if close is None else error
    if _TEXT.match(body, at):
        error = "text that is no argument"
    return encode_json({key: each if len(each) > 1 else each[0] for key, each in values.items()}), error


def _find_close(body: str, opening: re.Match[str]) -> int | None:
    """The tag that ends an argument: one that another argument or nothing follows, else the first; in a file's
    text the last."""
    tag = f"</{opening[1]}>"
    if opening[1] in _OF_FILES:
        last = body.rfind(tag, opening.end())
        return last if last >= 0 else None
    stop = first = body.find(tag, opening.end())
    while stop >= 0 and not _FOLLOWING.match(body, stop + len(tag)):
        stop = body.find(tag, stop + 1)
    stop = stop if stop >= 0 else first
    return stop if stop >= 0 else None


PLUGIN = ToolTags()
