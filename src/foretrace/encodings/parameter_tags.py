"""Calls as tags around their parameters, which contain unescaped text."""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec

from foretrace.core.trace import ToolCall
from foretrace.encodings.base import TextEncoding, find_at
from foretrace.encodings.json_arguments import encode_json, read_arguments

_OPEN = re.compile(r"<function=([^<>\s]+)>")
_PARAMETER = re.compile(r"\s*<parameter=([^<>\n]+)>")
_CUT_END = r"\s*(?:</(?:f(?:u(?:n(?:c(?:t(?:i(?:on?)?)?)?)?)?)?)?)?\s*\Z"
_CUT_CLOSE = re.compile(_CUT_END)
"""What follows the last parameter if a stop sequence cut off the closing tag."""
_CLOSE_VALUE = re.compile(rf"</parameter>(?=\s*(?:<parameter=[^<>\n]+>|</function>)|{_CUT_END})")
_CLOSE = re.compile(r"\s*</function>")
_CUT_TAG = re.compile(r"\s*(?:<[^<>]*)?\Z")
"""What may follow an opening tag if the text was cut off there; otherwise the tag is only mentioned."""
_MULTILINE_PARAMETERS = frozenset({"old_str", "new_str", "file_text"})
"""Parameters whose value is written between two line breaks that are not part of it."""
_MAX_ENDS = 64
"""Most closing tags tried to find one that leaves no quoted block open."""


def _strip_lines(value: str) -> str:
    """The value without the line breaks around it, if it is on its own lines."""
    return value[1:-1] if len(value) > 1 and value[0] == value[-1] == "\n" else value


def _read_function(text: str, opening: re.Match[str]) -> ToolCall | None:
    """A block; one without an end has `error` set. Values may contain tags, so blocks are found by their structure, and
    a tag that does not open a block is text."""
    arguments: dict[str, str] = {}
    bare: list[str] = []

    def make(end: int, **fields: Any) -> ToolCall:
        return ToolCall(name=opening[1], span=(opening.start(), end), **fields)

    at = opening.end()
    while parameter := _PARAMETER.match(text, at):
        end = _find_value_end(text, parameter.end())
        if end is None:
            return make(len(text), error="parameter without an end")
        key, value = parameter[1], text[parameter.end() : end]
        if key in _MULTILINE_PARAMETERS:
            inner = _strip_lines(value)
            bare += [key] * (inner == value)
            value = inner
        arguments[key] = value
        at = end + len("</parameter>")
    fields: dict[str, Any] = {"arguments": encode_json(arguments), "extra": {"bare": bare} if bare else {}}
    if closing := _CLOSE.match(text, at):
        return make(closing.end(), **fields)
    following = text.find("<function=", at)
    stop = len(text) if following < 0 else following
    close = text.find("</function>", at, stop)
    if close >= 0:
        return make(close + len("</function>"), error="function block that holds no parameters")
    if at == opening.end() and not _CUT_TAG.match(text, at):
        return None
    if arguments and _CUT_CLOSE.match(text, at):
        return make(len(text), repairs=("unclosed",), **fields)
    return make(stop, error="function block without an end")


def _find_value_end(text: str, start: int) -> int | None:
    """The end of the value that begins at `start`; `None` if it has none.

    A value may quote whole blocks. It ends at the first closing tag, unless another `</function>` follows before a new
    block opens (then the tag is part of the value), or the value so far opens more blocks than it closes (then a quoted
    block continues).
    """
    fallback: int | None = None
    tries, opened, counted = 0, 0, start
    for closing in _CLOSE_VALUE.finditer(text, start):
        end = closing.start()
        opened += text.count("<function=", counted, end) - text.count("</function>", counted, end)
        counted = end
        if not _leaves_orphan(text, closing):
            if opened <= 0:
                return end
            fallback = end if fallback is None else fallback
        tries += fallback is not None
        if tries == _MAX_ENDS:
            break
    return fallback


def _leaves_orphan(text: str, closing: re.Match[str]) -> bool:
    """Whether ending the block at this tag would leave another `</function>` before a new block opens."""
    end = _CLOSE.match(text, closing.end())
    if end is None:
        return False
    orphan = text.find("</function>", end.end())
    return orphan >= 0 and text.find("<function=", end.end(), orphan) < 0


def _write_function(call: ToolCall, multiline: bool = False) -> str:
    bare = set(call.extra.get("bare", ()))
    lines = [f"<function={call.name}>"]
    for key, value in msgspec.json.decode(call.arguments).items():
        text = value if isinstance(value, str) else encode_json(value)
        if multiline or (key in _MULTILINE_PARAMETERS and key not in bare):
            text = f"\n{text}\n"
        lines.append(f"<parameter={key}>{text}</parameter>")
    return "\n".join([*lines, "</function>"])


FUNCTION_XML = TextEncoding(
    "function_xml", find_at(_OPEN, _read_function), _write_function, hints=("<function=",), layout=True
)
"""`<function=NAME>` around `<parameter=KEY>` (SWE-agent xml, OpenHands text)."""


_WRAPPED = re.compile(r"<tool_call>\s*(?:(?=<function=)|(?P<name>[A-Za-z_][\w.-]{0,120})\s*(?=<arg_key>|</tool_call>))")
_WRAPPED_END = re.compile(r"\s*</tool_call>")
_WRAPPED_ARGUMENT = re.compile(
    r"\s*<arg_key>(?P<key>[^<]{1,200})</arg_key>\s*<arg_value>(?P<value>.*?)</arg_value>"
    r"(?=\s*(?:<arg_key>|</tool_call>))",
    re.DOTALL,
)
_MAX_FAILED = 64
"""Most tags read that do not begin a complete call: each may search the rest of the text."""
_MAX_INDENT = 200


def _read_wrapped_function(text: str, opening: re.Match[str]) -> ToolCall | None:
    """Qwen3-Coder: line breaks around a value are not part of it."""
    inner = _OPEN.match(text, opening.end())
    found = None if inner is None else _read_function(text, inner)
    if found is None or found.span is None or found.error is not None:
        return None
    close = _WRAPPED_END.match(text, found.span[1])
    values = {key: _strip_lines(value) for key, value in msgspec.json.decode(found.arguments).items()}
    span = (opening.start(), close.end() if close else found.span[1])
    return ToolCall(name=found.name, arguments=encode_json(values), span=span)


def _read_wrapped(text: str, opening: re.Match[str]) -> ToolCall | None:
    """A tag around anything but a call is text. GLM: a value may be JSON."""
    if not opening["name"]:
        return _read_wrapped_function(text, opening)
    values: dict[str, object] = {}
    at = opening.end()
    while argument := _WRAPPED_ARGUMENT.match(text, at):
        values[argument["key"].strip()] = _read_value(argument["value"])
        at = argument.end()
    close = _WRAPPED_END.match(text, at)
    before = text[max(0, opening.start() - _MAX_INDENT) : opening.start()]
    if close is None or (not values and before.rpartition("\n")[2].strip()):  # a tag named in prose
        return None
    return ToolCall(name=opening["name"], arguments=encode_json(values), span=(opening.start(), close.end()))


def _read_value(text: str) -> object:
    """The JSON value of a text, unless that is a string: strings may be written bare."""
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return text
    return text if isinstance(value, str) else value


WRAPPED_FUNCTION = TextEncoding(
    "wrapped_function",
    find_at(_WRAPPED, _read_wrapped, _MAX_FAILED),
    lambda call: f"<tool_call>\n{_write_function(call, multiline=True)}\n</tool_call>",
    hints=("<tool_call>",),
)
"""`<tool_call>` around `<function=NAME>` (Qwen3-Coder), or around a name with `<arg_key>` and `<arg_value>` (GLM-4.5):
Hermes' tag without JSON."""


_TOOLS = (
    "execute_command|read_file|write_to_file|replace_in_file|apply_diff|insert_content|search_and_replace|"
    "edit_file|search_files|list_files|list_code_definition_names|codebase_search|browser_action|"
    "web_fetch|web_search|use_mcp_tool|access_mcp_resource|load_mcp_documentation|fetch_instructions|"
    "use_skill|ask_followup_question|attempt_completion|plan_mode_respond|new_task|switch_mode|condense|"
    "summarize_task|update_todo_list|run_slash_command|generate_image|new_rule|report_bug"
)
_TOOL_TAG = re.compile(rf"^[ \t]*(?P<tag><({_TOOLS})>)[ \t]*\n?", re.MULTILINE)
_OF_FILES = ("content", "diff")
"""Arguments with the text of files, which may contain their closing tag: the last one ends them."""
_ARGUMENT = re.compile(r"\s*<(\w+)>")
_FOLLOWING = re.compile(r"\s*(?:<\w+>|\Z)")
_TEXT = re.compile(r"\s*\S")


def _read_tool_tag(text: str, opening: re.Match[str]) -> ToolCall:
    """Only tags of known tools at the beginning of a line count: any other tag may be the markup of a page. An unclosed
    tag was cut off, and extends to the end."""
    name, close = opening[2], f"</{opening[2]}>"
    stop = text.find(close, opening.end())
    arguments, error = _read_body(text[opening.end() : stop if stop >= 0 else len(text)])
    end = stop + len(close) if stop >= 0 else len(text)
    error = error if stop >= 0 else f"{name} without an end"
    return ToolCall(name=name, arguments=arguments, error=error, span=(opening.start("tag"), end))


def _read_body(body: str) -> tuple[str, str | None]:
    """The arguments as JSON, and an error if the body contains anything else."""
    if body.lstrip().startswith("{"):
        read = read_arguments(body.strip())
        if read.error or "json_repair" in read.repairs:
            return "{}", "text that is not an argument"
        # `_write_tool_tags` escapes `<`.
        return encode_json(json.loads(read.text)) if "\\u003c" in read.text else read.text, None
    values: dict[str, list[str]] = {}
    error = None
    at = 0
    while opening := _ARGUMENT.match(body, at):
        close = _find_close(body, opening)
        end = len(body) if close is None else close
        values.setdefault(opening[1], []).append(_strip_lines(body[opening.end() : end]))
        at = len(body) if close is None else close + len(f"</{opening[1]}>")
        error = f"{opening[1]} without an end" if close is None else error
    if _TEXT.match(body, at):
        error = "text that is not an argument"
    return encode_json({key: each if len(each) > 1 else each[0] for key, each in values.items()}), error


def _find_close(body: str, opening: re.Match[str]) -> int | None:
    """The tag that ends an argument: the first that is followed by another argument or nothing, otherwise the first; in
    a file's text the last."""
    tag = f"</{opening[1]}>"
    first = body.find(tag, opening.end())
    if first < 0:
        return None
    if opening[1] in _OF_FILES:
        return body.rfind(tag)
    stop = first
    while stop >= 0 and not _FOLLOWING.match(body, stop + len(tag)):
        stop = body.find(tag, stop + 1)
    return stop if stop >= 0 else first


def _write_tool_tags(call: ToolCall) -> str:
    """A tag for each argument. The body is JSON if tags, which have no types or escapes, would change the call."""
    values: dict[str, Any] = msgspec.json.decode(call.arguments)
    body = ""
    for key, value in values.items():
        for each in value if isinstance(value, list) else [value]:
            framed = f"\n{each}\n" if isinstance(each, str) and each[:1] == "\n" == each[-1:] else each
            body += f"<{key}>{framed}</{key}>\n"
    if f"</{call.name}>" in body or _read_body(body) != (call.arguments, None):
        body = call.arguments.replace("<", "\\u003c") + "\n"
    return f"<{call.name}>\n{body}</{call.name}>"


TOOL_TAGS = TextEncoding("tool_tags", find_at(_TOOL_TAG, _read_tool_tag), _write_tool_tags, hints=("<",))
"""A tag with the tool's name around a tag for each argument (Cline, Roo, Kilo)."""
