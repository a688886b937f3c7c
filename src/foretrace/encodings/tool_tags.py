"""Calls as a tag of the tool's name around a tag for each argument (Cline, Roo, Kilo)."""

from __future__ import annotations

import re

import msgspec

from foretrace.core.trace import ToolCall
from foretrace.encodings.base import attach_span
from foretrace.encodings.json_arguments import encode_json

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
            call = ToolCall(
                name=name,
                arguments=encode_json(_read_arguments(body)),
                error=None if stop >= 0 else f"{name} without an end",
            )
            start = opening.start() + len(opening.group()) - len(opening.group().lstrip())
            calls.append(attach_span(self, call, text, (start, at)))
        return calls

    def render(self, call: ToolCall) -> str:
        """Write the block; for a parsed call exactly what its span covers."""
        if raw := call.extra.get("raw"):
            return str(raw)
        values = msgspec.json.decode(call.arguments, type=dict[str, str])
        body = "".join(f"<{key}>{value}</{key}>\n" for key, value in values.items())
        return f"<{call.name}>\n{body}</{call.name}>"


def _read_arguments(body: str) -> dict[str, str]:
    values: dict[str, str] = {}
    at = 0
    while opening := _ARGUMENT.match(body, at):
        close = f"</{opening[1]}>"
        find = body.rfind if opening[1] in _OF_FILES else body.find
        stop = find(close, opening.end())
        value = body[opening.end() : stop if stop >= 0 else len(body)]
        if value.startswith("\n") and value.endswith("\n") and len(value) > 1:
            value = value[1:-1]
        values[opening[1]] = value
        at = stop + len(close) if stop >= 0 else len(body)
    return values


PLUGIN = ToolTags()
