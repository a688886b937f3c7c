"""Calls whose arguments are JSON: in one object with the name, or after marks that contain the name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from foretrace.core.trace import ToolCall
from foretrace.encodings.base import TextEncoding, find_at
from foretrace.encodings.json_arguments import encode_json, find_json_end, find_member, read_arguments, try_decode
from foretrace.encodings.python_calls import find_close, read_python_arguments

_INPUTS = ("arguments", "parameters", "args", "input")
_BEGUN = re.compile(r'(?:\[\s*)?\{\s*(?:"name"\s*:\s*"(?P<name>[^"\n]{1,200})"|"(?:name|function|type|id)"\s*:)')
"""The beginning of a call with incomplete JSON."""
_MAX_FAILED = 64
"""Incomplete objects after which a text counts as having no more calls: each may be read to the end."""


def _make_call(name: str, arguments: str, span: tuple[int, int] = (0, 0)) -> ToolCall:
    read = read_arguments(arguments)
    return ToolCall(name=name, arguments=read.text, repairs=read.repairs, error=read.error, span=span)


def _read_object(text: str) -> ToolCall:
    """The call described by a JSON object with a name and arguments, or by its `function`; otherwise one with an
    error."""
    read = read_arguments(text.strip())
    if read.error:
        return ToolCall(arguments=read.text, error=read.error)
    value: Any = msgspec.json.decode(read.text)
    function = value.get("function", value)
    function = function if isinstance(function, dict) else value
    name = function.get("name")
    key = next((key for key in _INPUTS if key in function), "")
    given: Any = function.get(key)
    written = None if read.repairs else text if function is value else find_member(text, "function")
    if given is None or isinstance(given, str):
        arguments = ((given or "").strip() and given) or "{}"
    else:
        arguments = find_member(written, key) if written else encode_json(given)
    call = _make_call(name if isinstance(name, str) else "", arguments)
    repairs = tuple(dict.fromkeys(read.repairs + call.repairs))
    error = call.error if call.name else "tool call without a name"
    return msgspec.structs.replace(call, repairs=repairs, error=error)


def _write_object(call: ToolCall) -> str:
    return f'{{"name": {encode_json(call.name)}, "arguments": {call.arguments}}}'


_OPEN_TAG = re.compile("<tool_call>")
_TAG = re.compile(r"</?tool_call>")


def _read_tool_call(text: str, opening: re.Match[str]) -> ToolCall:
    """A block. It ends after its JSON, so a closing tag inside a JSON string does not end it."""
    begin = opening.end()
    end = find_json_end(text, begin)
    tag = _TAG.search(text, begin if end is None else end)
    if tag is None or tag.group() == "<tool_call>":
        span = (opening.start(), tag.start() if tag else len(text))
        return ToolCall(error="tool call without an end", span=span)
    return msgspec.structs.replace(_read_object(text[begin : tag.start()]), span=(opening.start(), tag.end()))


TOOL_CALL_JSON = TextEncoding(
    "tool_call_json",
    find_at(_OPEN_TAG, _read_tool_call),
    lambda call: f"<tool_call>\n{_write_object(call)}\n</tool_call>",
    hints=("<tool_call>",),
)
"""`<tool_call>{"name": ..., "arguments": {...}}</tool_call>` (Hermes, Qwen)."""


_OBJECT_TAGS = ("<functioncall>", "<TOOLCALL>", "[TOOL_CALLS]", "<function_call>", "<tool_calls>", "<|python_tag|>")
"""Text before a call, or a list of calls: Glaive, Nemotron, Mistral, others, Llama."""
_NAME_MARKS = (
    r"(?:<\|tool_calls_section_begin\|>\s*)?<\|tool_call_begin\|>\s*(?:functions\.)?(?P<kimi>[^\s:<]+)(?::\d+)?\s*"
    r"<\|tool_call_argument_begin\|>\s*",
    r"(?:<｜tool▁calls▁begin｜>\s*)?<｜tool▁call▁begin｜>(?:function<｜tool▁sep｜>)?(?P<deepseek>[^\s<]+)"
    r"(?:<｜tool▁sep｜>|\s*```json)\s*",
    r"(?:<\|start\|>assistant)?(?:<\|channel\|>\w+)? to=functions\.(?P<harmony>[^\s<]+)[^\n{]{0,80}?<\|message\|>\s*",
    r"\[TOOL_CALLS\]\s*(?P<mistral>[A-Za-z_][\w.-]{0,120})(?:\[CALL_ID\][\w-]{1,64})?(?:\[ARGS\])?\s*(?=\{)",
    r"<\|python_tag\|>\s*(?P<llama>[A-Za-z_]\w{0,120})\.call\(",
)
"""Text before the arguments of a call, containing its name."""
_OPEN = re.compile("|".join([*_NAME_MARKS, rf"(?:{'|'.join(map(re.escape, _OBJECT_TAGS))})\s*(?=[\[{{])"]))
_END = (
    r"(?:</(?:functioncall|TOOLCALL|function_call|tool_calls)>|\[/TOOL_CALLS\]|<\|eom_id\|>|<\|call\|>"
    r"|<\|tool_call_end\|>(?:\s*<\|tool_calls_section_end\|>)?"
    r"|(?:```\s*)?<｜tool▁call▁end｜>(?:\s*<｜tool▁calls▁end｜>)?)"
)
_NEXT_END = re.compile(_END)
"""For searching: leading blanks would be tried again from each blank of a run."""
_CLOSE = re.compile(rf"\s*{_END}")
"""For matching at the end of the arguments."""
_QUOTED = re.compile(r"""\{\s*"name"\s*:\s*"(?P<name>[^"\n]{1,200})"\s*,\s*"arguments"\s*:\s*'""")
_QUOTED_END = re.compile(r"'\s*\}")
"""Glaive's arguments are JSON in single quotes, so that the whole is not JSON."""
_BETWEEN = re.compile(r"[ \t\r\n,]*")


def _find_tagged(text: str) -> Iterator[ToolCall]:
    """A tag is followed by one call or a list of them. Spans of a list cover all of it, with brackets and tags.

    JSON without a name is text. A call with incomplete JSON has `error` set if its tag contains the name, begins a line
    or is closed; otherwise it is only a mention.
    """
    at = 0
    while opening := _OPEN.search(text, at):
        found, end = _read_tagged(text, opening)
        at = opening.end()
        if found:
            close = _CLOSE.match(text, end)
            at = close.end() if close else end
            starts = [opening.start(), *(call.span[0] for call in found[1:] if call.span)]
            for call, span in zip(found, zip(starts, [*starts[1:], at], strict=True), strict=True):
                yield msgspec.structs.replace(call, span=span)


def _read_tagged(text: str, opening: re.Match[str]) -> tuple[list[ToolCall], int]:
    start = opening.end()
    name = opening[opening.lastgroup] if opening.lastgroup else ""
    if opening["llama"]:
        stop = find_close(text, start, _find_limit(text, start))
        arguments = None if stop is None else read_python_arguments(text[start:stop])
        if stop is None or arguments is None:
            return [], start
        return [ToolCall(name=name, arguments=arguments)], stop + 1
    if quoted := None if name else _QUOTED.match(text, start):
        return _read_quoted(text, opening, quoted)
    end = find_json_end(text, start)
    if name:
        end = _find_broken_end(text, start) if end is None else end
        return [_make_call(name, text[start:end])], end
    return _read_broken(text, opening) if end is None else _read_list(text, start, end)


def _read_list(text: str, start: int, end: int) -> tuple[list[ToolCall], int]:
    found: list[ToolCall] = []
    at = start + (text[start] == "[")
    while (stop := find_json_end(text, at)) is not None:
        place = _skip(text, at)
        call = _read_object(text[place:stop])
        begun = _BEGUN.match(text, place) if call.error else None
        name = call.name or (begun and begun["name"])
        if not name:
            return [], start
        found.append(msgspec.structs.replace(call, name=name, span=(place, stop)))
        if text[start] == "{":
            break
        at = _skip(text, stop)
    return found, end


def _skip(text: str, at: int) -> int:
    between = _BETWEEN.match(text, at)
    return between.end() if between else at


def _read_quoted(text: str, opening: re.Match[str], quoted: re.Match[str]) -> tuple[list[ToolCall], int]:
    start = quoted.end()
    end = find_json_end(text, start)
    close = None if end is None else _QUOTED_END.match(text, _skip(text, end))
    close = close or _QUOTED_END.search(text, start, _find_limit(text, start))
    if close is None:
        return _read_broken(text, opening)
    return [_make_call(quoted["name"], text[start : close.start()])], close.end()


def _find_limit(text: str, start: int) -> int:
    following = _OPEN.search(text, start)
    return following.start() if following else len(text)


def _find_broken_end(text: str, start: int) -> int:
    limit = _find_limit(text, start)
    close = _NEXT_END.search(text, start, limit)
    return close.start() if close else limit


def _read_broken(text: str, opening: re.Match[str]) -> tuple[list[ToolCall], int]:
    """A call with an error, up to its closing tag, the next call or the end; none if it is only mentioned."""
    start = opening.end()
    begun, end = _BEGUN.match(text, start), _find_broken_end(text, start)
    begins_line = opening.start() == 0 or text[opening.start() - 1] == "\n"
    if not begun or not (begins_line or _NEXT_END.match(text, end)):
        return [], start
    return [ToolCall(name=begun["name"] or "", error="the call's JSON is broken or cut off")], end


TAGGED_JSON = TextEncoding(
    "tagged_json",
    _find_tagged,
    lambda call: f"<function_call>{_write_object(call)}</function_call>",
    hints=(*_OBJECT_TAGS, "<|tool_call_begin|>", "<｜tool▁call▁begin｜>", " to=functions."),
)
"""JSON after a tag other than Hermes', or in the control tokens of chat templates (Kimi, DeepSeek, gpt-oss, Mistral,
Llama)."""


_ACTION = re.compile(r"^Action:(.*+)\nAction Input:[ \t]*", re.MULTILINE)
_LINE_END = re.compile(r"[ \t\r]*(?:\n|\Z)")
_BROKEN_END = re.compile(r"\n(?=(?:Thought:|Action:|Observation:))")
_INCOMPLETE = re.compile(r'[{\[`]|"[^"]*\Z|\Z')
"""Input that is not plain text: an object, a list or a fence, an open string, or nothing."""


def _read_react(text: str, action: re.Match[str]) -> ToolCall:
    """The arguments end with their JSON, if that is at the end of a line. Otherwise they are plain text or broken JSON,
    and end before the next marker or at the end of the text."""
    start = action.end()
    end = whole = find_json_end(text, start)
    if end is None or not _LINE_END.match(text, end):
        following = _BROKEN_END.search(text, start)
        end = following.start() if following else max(start, len(text.rstrip()))
    given = text[start:end].strip()
    if whole != end and not _INCOMPLETE.match(given):
        given = encode_json({"input": given})
    return _make_call(action[1].strip(), given, (action.start(), end))


REACT = TextEncoding(
    "react",
    find_at(_ACTION, _read_react),
    lambda call: f"Action: {call.name}\nAction Input: {call.arguments}",
    hints=("Action Input:",),
)
"""`Action: NAME` and `Action Input: {json}` lines (ReAct, ToolBench). Plain text becomes the argument `input`."""


_OBJECT = re.compile(r"^[ \t]*(```(?:json|JSON)?[ \t]*\n)?[ \t]*(?=\{)", re.MULTILINE)
_FENCE_END = re.compile(r"\s*```")
_ACTION_NAMES = ("action", "tool", "tool_name", "name")
_ACTION_INPUTS = ("action_input", "tool_input", "arguments", "args", "parameters", "input")


def _find_actions(text: str) -> Iterator[ToolCall]:
    """An input that is not an object becomes the argument `input`. An object without a name and an input is text."""
    at = failed = 0
    while failed < _MAX_FAILED and (opening := _OBJECT.search(text, at)):
        start = opening.end()
        end = find_json_end(text, start)
        at = start + 1 if end is None else end
        failed += end is None
        if end is not None and (call := _read_action(text[start:end])) is not None:
            closing = _FENCE_END.match(text, end) if opening[1] else None
            at = closing.end() if closing else end
            yield msgspec.structs.replace(call, span=(opening.start(1) if opening[1] else start, at))


def _read_action(text: str) -> ToolCall | None:
    value = try_decode(text)
    if not isinstance(value, dict):
        return None
    name = next((value[key] for key in _ACTION_NAMES if isinstance(value.get(key), str)), "")
    key = next((key for key in _ACTION_INPUTS if key in value), None)
    if not name.strip() or key is None:
        return None
    given = value[key]
    return ToolCall(name=name, arguments=encode_json(given if isinstance(given, dict) else {"input": given}))


JSON_ACTION = TextEncoding(
    "json_action",
    _find_actions,
    lambda call: f'```json\n{{"action": {encode_json(call.name)}, "action_input": {call.arguments}}}\n```',
    hints=("{",),
)
"""A JSON object with `action` and `action_input`, bare or fenced (LangChain's chat agents)."""


_KEYS, _DONE = "bash_command", "mark_task_complete"
"""Keys under which harbor exports these calls."""
_STRING = r'"(?:[^"\\]|\\.)*+"'
_FLAT = rf'\{{(?:[^{{}}"\\]|{_STRING})*+\}}'
_STROKES = re.compile(
    r'(?<!`)(?P<alone>\{\s*"task_complete"\s*:\s*true\s*\})'
    r'|(?<!`)[{,]\s*(?P<done>"task_complete"\s*:\s*true)(?=\s*[,}])'
    rf'|(?P<keys>\{{(?:[^{{}}"\\]|(?!"keystrokes"\s*:){_STRING})*+"keystrokes"\s*:(?:[^{{}}"\\]|{_STRING}|{_FLAT})*+\}})',
    re.DOTALL,
)
"""The end of the task, as an object or a member of one; and an object with keystrokes, after which it may contain flat
ones."""
_LAST_COMMA = re.compile(r",\s*\}\Z")


def _find_strokes(text: str) -> Iterator[ToolCall]:
    """The agent's thoughts are in the same JSON, so it stays text. An incomplete object is not a call."""
    for found in _STROKES.finditer(text):
        if found["keys"] is None:
            yield ToolCall(name=_DONE, arguments="{}", span=found.span("done" if found["done"] else "alone"))
        elif (call := _read_strokes(found["keys"])) is not None:
            yield msgspec.structs.replace(call, span=found.span("keys"))


def _read_strokes(text: str) -> ToolCall | None:
    whole = _LAST_COMMA.sub("}", text)
    read = read_arguments(whole)
    if read.error or "json_repair" in read.repairs:
        # If quotation marks are not escaped, no repair can know the intended keystrokes.
        return ToolCall(name=_KEYS, error=read.error or "key strokes that are not JSON")
    if not isinstance(msgspec.json.decode(read.text).get("keystrokes"), str):
        return None
    return ToolCall(name=_KEYS, arguments=read.text, repairs=read.repairs if whole == text else ("json_repair",))


TERMINAL_JSON = TextEncoding(
    "terminal_json",
    _find_strokes,
    lambda call: '{"task_complete": true}' if call.name == _DONE else call.arguments,
    hints=('"keystrokes"', '"task_complete"'),
)
"""Keystrokes for a terminal as objects of a JSON list `commands` (Terminus, OpenThoughts-Agent)."""
