"""Read the calls of a reply that carry code: `<tool_call>{"name": .., "arguments": {"code": ..}}</tool_call>`.

A call is read as JSON, then with raw control characters allowed, then by repair; each repair is recorded. The code is
exactly that of the JSON: escapes are not guessed. A call that was cut off, or whose repaired code is not in the broken
JSON, has `error` set and no arguments, and must not be executed.
"""

from __future__ import annotations

import ast
import json
import re
from typing import Any

from foretrace.core.python_source import try_parse
from foretrace.core.trace import ToolCall
from foretrace.encodings.json_arguments import encode_json, find_json_end
from foretrace.encodings.json_calls import TOOL_CALL_JSON

MAX_CODE = 200_000
"""Most characters of code that are parsed; longer code does not count as Python."""
_MAX_REPAIRED = 16 * 1024
"""Most characters of broken JSON that repair is tried on."""
_OPENING = re.compile(r"(?<![`\"'])<tool_call>(?=\s*(?:`{3,}\w*\s*)?(?:\[\s*)?\{)")
"""A tag that is quoted, or not followed by something like JSON, is only mentioned."""
_TAG = re.compile(r"<(/?)tool_call>")
_BEFORE = re.compile(r"\s*(?:`{3,}\w*\s*)?")
_AFTER = re.compile(r"[\s`}\],;]*+")
_CODE_KEY = re.compile(r'(?<!\\)"code"\s*:')
_WRAPPERS = ("arguments", "parameters", "args", "input", "kwargs", "function")
_MAX_DEPTH = 6
_FENCE = re.compile(r"\s*(?P<fence>`{3,}|~{3,})[ \t]*(?:[\w+.-]*[ \t]*\r?\n|(?:python3?|py)[ \t]+)")
_FENCE_END = re.compile(r"(?:\r?\n)?[ \t]*(?P<fence>`{3,}|~{3,})\s*\Z")
_CONTROL = re.compile("[\0-\x08\x0b\x0c\x0e-\x1f]")
"""Characters that source code does not contain. JSON produces them from a backslash that was not doubled, as in `\\b`
of a regex."""
_WRITTEN = {
    "\n": r"(?:\\n|(?<!\\)\n)", "\t": r"(?:\\t|\t)", "\r": r"(?:\\r|(?<!\\)\r)",
    "\\": r"""(?:\\\\|\\(?![\\"'/bfnrtu\n]))""",
}  # fmt: skip
"""How a character of code may be written in JSON, including broken JSON."""
_REST = r"""[\s}\],]*(?:["']\w+["']\s*:\s*["']?[\w.+-]*["']?[\s}\],]*)*[\s`]*\Z"""
"""What may follow the code: members with plain values, and the end of the call."""


def parse_python(code: str) -> ast.Module | None:
    """Parse code; `None` if it is not Python, is blank or has more than `MAX_CODE` characters."""
    return try_parse(code) if code.strip() and len(code) <= MAX_CODE else None


def strip_fence(text: str) -> str:
    """Remove a markdown fence around a text; a text that does not start with one is unchanged."""
    opening = _FENCE.match(text)
    if opening is None:
        return text
    inner = text[opening.end() :]
    closing = _FENCE_END.search(inner)
    return inner[: closing.start()] if closing and closing["fence"].startswith(opening["fence"]) else inner


def read_code_calls(text: str, *, truncated: bool) -> list[ToolCall]:
    """Read all calls of a text, in order: each has a span, and either an error or arguments that hold `code`.

    After a call with an unclear end, all calls are refused: the apparent next call may be a string in the code of this
    one.

    Args:
        text: What the model wrote.
        truncated: Whether the text was cut off at a limit; a last call without its closing tag is then refused. Do not
            set it after a stop sequence: the closing tag may have been the stop.
    """
    calls: list[ToolCall] = []
    at, unclear = 0, False
    while opening := _OPENING.search(text, at):
        if unclear:
            span = _find_span(text, opening, opening.end())
            call = ToolCall(span=span, error="comes after a call that has no clear end")
        else:
            call, unclear = _read_call(text, opening, truncated)
        calls.append(call)
        _, at = call.span or (0, len(text))
    return calls


def _find_span(text: str, opening: re.Match[str], at: int) -> tuple[int, int]:
    """From an opening tag to the end of the next closing one, or to the next opening one or the end of the text."""
    tag = _TAG.search(text, at)
    return opening.start(), len(text) if tag is None else tag.end() if tag[1] else tag.start()


def _read_call(text: str, opening: re.Match[str], truncated: bool) -> tuple[ToolCall, bool]:
    before = _BEFORE.match(text, opening.end())
    begin = before.end() if before else opening.end()
    repairs = ["fence"] * ("`" in text[opening.end() : begin])
    end = find_json_end(text, begin)
    tag = _TAG.search(text, begin if end is None else end)
    is_closed = tag is not None and tag[1] == "/"
    span = _find_span(text, opening, begin if end is None else end)
    if tag is None and truncated:
        return ToolCall(span=span, error="the call is cut off"), True
    if end is not None:
        after = _AFTER.match(text, end)
        between = text[end : after.end() if after else end]
        if tag is not None and is_closed and end + len(between) < tag.start():
            return ToolCall(span=span, error="text between the call's JSON and its closing tag"), True
        repairs += ["json_repair"] * (is_closed and bool(between.strip().strip("`")))
        span = span if is_closed else (opening.start(), end)
    if end is None and is_closed and (later := _TAG.search(text, span[1])) is not None and later[1]:
        return ToolCall(span=span, error="the call is not JSON"), True  # a string in its code may hold the first tag
    body = text[begin : end if end is not None else tag.start() if tag else len(text)]
    call = _read_body(body, text[slice(*span)], span, [*repairs, *([] if is_closed else ["missing_close_tag"])])
    return call, end is None and call.error is not None


def _read_body(body: str, written: str, span: tuple[int, int], repairs: list[str]) -> ToolCall:
    value, repair = _load(body)
    if not isinstance(value, (dict, list)):
        return ToolCall(span=span, error="the call is not JSON")
    if len(_CODE_KEY.findall(body)) > 1:
        return ToolCall(span=span, error="the call holds 'code' more than once")
    repairs += [repair] if repair else []
    name, arguments = _find_arguments(value, repairs)
    if arguments is None:
        many = isinstance(value, list) and len(value) > 1
        error = "one tag holds several calls" if many else "the call has no 'code' argument"
        return ToolCall(span=span, name=name, error=error)
    code = arguments["code"]
    if repair == "json_repair" and not _stands_in(code, body):
        return ToolCall(span=span, error="the call is not JSON")
    if _CONTROL.search(code):
        return ToolCall(span=span, error="the code holds control characters: its backslashes are not escaped")
    if (stripped := strip_fence(code)) != code:
        repairs.append("fence")
    if not stripped.strip():
        return ToolCall(span=span, error="the code is empty")
    try:
        text = encode_json({**arguments, "code": stripped})
        text.encode()
    except (ValueError, RecursionError):  # NaN, infinity, or a lone surrogate
        return ToolCall(span=span, error="the arguments are not JSON")
    text = text if repairs else TOOL_CALL_JSON.parse(written)[0].arguments
    return ToolCall(span=span, name=name, arguments=text, repairs=tuple(dict.fromkeys(repairs)))


def _load(text: str) -> tuple[Any, str]:
    """The value of JSON, and the repair that was needed; `None` if it is not JSON."""
    for strict in (True, False):
        try:
            return json.loads(text, strict=strict), "" if strict else "control_characters"
        except (ValueError, RecursionError):
            continue
    if len(text) > _MAX_REPAIRED:
        return None, ""
    import json_repair

    try:
        return json_repair.loads(text), "json_repair"
    except (ValueError, RecursionError):
        return None, ""


def _find_arguments(value: Any, repairs: list[str]) -> tuple[str, dict[str, Any] | None]:
    """The name of the tool, and the object that contains the code: the arguments, or their substitute."""
    name, path = "", list[str]()
    for _ in range(_MAX_DEPTH):
        if isinstance(value, list) and len(value) == 1:
            value = value[0]
        if isinstance(value, str):
            value, repair = _load(value)
            value = None if repair == "json_repair" else value
            repairs.append("arguments_string")
        if not isinstance(value, dict):
            break
        name = value["name"] if isinstance(value.get("name"), str) else name
        if isinstance(value.get("code"), str):
            repairs += [] if path == ["arguments"] else ["nested"]
            return name, value if path else {"code": value["code"]}
        key = next((key for key in _WRAPPERS if key in value), "")
        path.append(key)
        value = value.get(key)
    return name, None


def _stands_in(code: str, body: str) -> bool:
    """Whether code is Python and a string in the broken JSON before its end; otherwise the repair invented it."""
    if parse_python(code) is None:
        return False
    for quote in ('"', "'"):
        forms = _WRITTEN | {quote: rf"\\?{quote}"}
        written = "".join(forms.get(character) or re.escape(character) for character in code)
        if re.search(f"{quote}{written}{quote}{_REST}", body):
            return True
    return False
