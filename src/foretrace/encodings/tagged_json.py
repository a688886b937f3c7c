"""Calls as JSON behind a tag that is not Hermes' own: `<functioncall>` (Glaive), `<TOOLCALL>[...]` (Nemotron),
`[TOOL_CALLS]` (Mistral, also with the name before the arguments), `<function_call>`, `<tool_calls>`, `<|python_tag|>`
(Llama, also its built-in tools' `NAME.call(key="value")`)."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from foretrace.core.trace import ToolCall
from foretrace.encodings.base import attach_span
from foretrace.encodings.call_list import find_close, read_keywords
from foretrace.encodings.json_arguments import JsonArguments, encode_json, find_json_end, read_arguments
from foretrace.encodings.tool_call_json import find_member

TAGS = ("<functioncall>", "<TOOLCALL>", "[TOOL_CALLS]", "<function_call>", "<tool_calls>", "<|python_tag|>")
_OPEN = re.compile(
    r"\[TOOL_CALLS\]\s*(?P<mistral>[A-Za-z_][\w.-]{0,120})(?:\[CALL_ID\][\w-]{1,64})?(?:\[ARGS\])?\s*(?=\{)"
    r"|<\|python_tag\|>\s*(?P<llama>[A-Za-z_]\w{0,120})\.call\("
    rf"|(?:{'|'.join(map(re.escape, TAGS))})\s*(?=[\[{{])"
)
_END = r"(?:</(?:functioncall|TOOLCALL|function_call|tool_calls)>|\[/TOOL_CALLS\]|<\|eom_id\|>)"
_NEXT_END = re.compile(_END)
_CLOSE = re.compile(rf"\s*{_END}")
_QUOTED = re.compile(r"""\{\s*"name"\s*:\s*"(?P<name>[^"\n]{1,200})"\s*,\s*"arguments"\s*:\s*'""")
_QUOTED_END = re.compile(r"'\s*\}")
"""Glaive's arguments: JSON within single quotes, which as a whole is no JSON."""
_BEGUN = re.compile(r'(?:\[\s*)?\{\s*"(?:name|function|type|id)"\s*:\s*(?:"(?P<name>[^"\n]{1,200})")?')
"""How a call begins of which the JSON is not whole."""
_BETWEEN = re.compile(r"[ \t\r\n,]*")
_INPUTS = ("arguments", "parameters", "args", "input")


class TaggedJson:
    """Behind a tag stands one call or a list of them. The spans of a list cover it, its brackets and tags included."""

    name = "tagged_json"

    def parse(self, text: str) -> list[ToolCall]:
        """Find all calls, in order. JSON without a name is text; a call whose JSON is not whole has `error` set where
        its tag begins a line or is closed, and is a mention else."""
        calls: list[ToolCall] = []
        opening = _OPEN.search(text)
        while opening:
            found, end = _read_body(text, opening)
            at = end if found else opening.end()
            if found:
                close = _CLOSE.match(text, end)
                at = close.end() if close else end
                starts = [opening.start(), *(place for place, _ in found[1:])]
                for (_, call), span in zip(found, zip(starts, [*starts[1:], at], strict=True), strict=True):
                    calls.append(attach_span(self, call, text, span))
            opening = _OPEN.search(text, at)
        return calls

    def render(self, call: ToolCall) -> str:
        """Write the block; for a parsed call exactly what its span covers."""
        if raw := call.extra.get("raw"):
            return str(raw)
        body = f'{{"name": {encode_json(call.name)}, "arguments": {call.arguments}}}'
        return f"<function_call>{body}</function_call>"


_Found = tuple[list[tuple[int, ToolCall]], int]
"""The calls, each with its place, and where the last one ends; none where this is something else."""


def _read_body(text: str, opening: re.Match[str]) -> _Found:
    start = opening.end()
    if opening["llama"]:
        return _read_python(text, opening)
    if quoted := _QUOTED.match(text, start):
        return _read_quoted(text, opening, quoted)
    end = find_json_end(text, start)
    if end is None:
        return _read_broken(text, opening)
    if opening["mistral"]:
        call = _make_call(opening["mistral"], read_arguments(text[start:end]))
        return [(start, call)], end
    found: list[tuple[int, ToolCall]] = []
    at = start + (text[start] == "[")
    while (stop := find_json_end(text, at)) is not None:
        place = _skip(text, at)
        call = _read_object(text[place:stop])
        if call is None:
            return [], start
        found.append((place, call))
        if text[start] == "{":
            break
        at = _skip(text, stop)
    return found, end


def _skip(text: str, at: int) -> int:
    between = _BETWEEN.match(text, at)
    return between.end() if between else at


def _read_python(text: str, opening: re.Match[str]) -> _Found:
    following = _OPEN.search(text, opening.end())
    limit = following.start() if following else len(text)
    stop = find_close(text, opening.end(), limit)
    arguments = None if stop is None else read_keywords(text[opening.end() : stop])
    if stop is None or arguments is None:
        return [], opening.end()
    return [(opening.end(), ToolCall(name=opening["llama"], arguments=arguments))], stop + 1


def _read_quoted(text: str, opening: re.Match[str], quoted: re.Match[str]) -> _Found:
    start = quoted.end()
    end = find_json_end(text, start)
    close = None if end is None else _QUOTED_END.match(text, _skip(text, end))
    if close is None:
        close = _QUOTED_END.search(text, start, _find_limit(text, start))
    if close is None:
        return _read_broken(text, opening)
    call = _make_call(quoted["name"], read_arguments(text[start : close.start()]))
    return [(opening.end(), call)], close.end()


def _find_limit(text: str, start: int) -> int:
    following = _OPEN.search(text, start)
    return following.start() if following else len(text)


def _read_broken(text: str, opening: re.Match[str]) -> _Found:
    """A call with an error, up to its closing tag, the next call or the end; none where it is only mentioned."""
    start = opening.end()
    begun = _BEGUN.match(text, start)
    if not (begun or opening["mistral"]):
        return [], start
    limit = _find_limit(text, start)
    close = _NEXT_END.search(text, start, limit)
    begins_line = opening.start() == 0 or text[opening.start() - 1] == "\n"
    if not (close or begins_line):
        return [], start
    call = ToolCall(name=opening["mistral"] or _read_name(begun), error="the call's JSON is broken or cut off")
    return [(start, call)], close.start() if close else limit


def _read_name(begun: re.Match[str] | None) -> str:
    return begun["name"] or "" if begun and '"name"' in begun.group() else ""


def _read_object(text: str) -> ToolCall | None:
    read = read_arguments(text)
    if read.error:
        begun = _BEGUN.match(text)
        return ToolCall(name=_read_name(begun), error=read.error) if begun else None
    value: Any = msgspec.json.decode(read.text)
    function = value.get("function", value)
    if not isinstance(function, dict) or not isinstance(function.get("name"), str) or not function["name"]:
        return None
    key = next((key for key in _INPUTS if key in function), None)
    given: Any = {} if key is None else function[key]
    if isinstance(given, str) and given.strip():
        arguments = read_arguments(given)
    elif isinstance(given, dict) and not read.repairs:
        written = text if function is value else find_member(text, "function")
        arguments = read_arguments((key and written and find_member(written, key)) or encode_json(given))
    else:
        arguments = read_arguments(encode_json(given or {}))
    call = _make_call(function["name"], arguments)
    return msgspec.structs.replace(call, repairs=tuple(dict.fromkeys(read.repairs + call.repairs)))


def _make_call(name: str, read: JsonArguments) -> ToolCall:
    return ToolCall(name=name, arguments=read.text, repairs=read.repairs, error=read.error)


PLUGIN = TaggedJson()
