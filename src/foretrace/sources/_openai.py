"""OpenAI-style messages, read tolerantly: content as text, parts or null; calls native or in the older form."""

from __future__ import annotations

from typing import Any

import msgspec

from foretrace.core.digest import digest
from foretrace.core.trace import Part, ToolCall, ToolSpec
from foretrace.encodings.base import dumps, read_arguments
from foretrace.sources.base import RowError


def decode_list(row: dict[str, Any], column: str) -> list[dict[str, Any]]:
    """The row's list of messages: a list, or a string that holds a JSON list.

    Raises:
        RowError: the column is missing, empty, or no list of objects.
    """
    value = row.get(column)
    if column not in row:
        raise RowError("missing_column", column)
    if isinstance(value, str):
        try:
            value = msgspec.json.decode(value)
        except (msgspec.DecodeError, UnicodeEncodeError) as error:
            raise RowError("bad_json", f"{column}: {error}") from None
        except RecursionError:
            raise RowError("nested_too_deep", column) from None
    if value is None:
        raise RowError("null_messages", column)
    if not isinstance(value, list):
        raise RowError("wrong_column_type", f"{column} is a {type(value).__name__}")
    if not value:
        raise RowError("empty_trace", f"{column} is empty")
    for index, item in enumerate(value):
        if not isinstance(item, dict):
            raise RowError("wrong_column_type", f"{column}[{index}] is a {type(item).__name__}")
    return value


def content_of(value: Any) -> tuple[str, tuple[Part, ...]]:
    """Text of a content (string, list of parts, or null), and its parts that are no text."""
    if value is None:
        return "", ()
    if isinstance(value, str):
        return value, ()
    if not isinstance(value, list):
        raise RowError("wrong_column_type", f"content is a {type(value).__name__}")
    text, parts = "", list[Part]()
    for item in value:
        if isinstance(item, str):
            text += item
        elif isinstance(item, dict) and isinstance(item.get("text"), str):
            text += item["text"]
        elif isinstance(item, dict):
            parts.append(_part(item, len(text)))
    return text, tuple(parts)


def _part(item: dict[str, Any], at: int) -> Part:
    kind = str(item.get("type") or "unknown")
    inner = item.get(kind)
    ref = inner.get("url") if isinstance(inner, dict) else inner if isinstance(inner, str) else None
    if isinstance(ref, str) and ref.startswith("data:"):
        media, _, body = ref[5:].partition(",")
        return Part(type=kind, media_type=media.split(";")[0], sha256=digest(body, size=32), at=at)
    return Part(type=kind, media_type=str(item.get("media_type") or ""), ref=ref, at=at)


def native_calls(value: Any, index: int) -> tuple[ToolCall, ...]:
    """`tool_calls` of message `index`; arguments may be JSON text or an object."""
    if value is None:
        return ()
    if not isinstance(value, list):
        raise RowError("wrong_column_type", f"tool_calls of message {index} is a {type(value).__name__}")
    return tuple(_call(c, index) for c in value if c is not None)


def function_call(value: Any, index: int) -> tuple[ToolCall, ...]:
    """The older `function_call` of message `index`."""
    return () if value is None else (_call({"function": value}, index),)


def _call(raw: Any, index: int) -> ToolCall:
    function = raw.get("function", raw) if isinstance(raw, dict) else None
    name = function.get("name") if isinstance(function, dict) else None
    if not isinstance(raw, dict) or not isinstance(function, dict) or not isinstance(name, str):
        raise RowError("bad_tool_call", f"message {index}: a tool call without a function name")
    arguments = function.get("arguments", function.get("parameters"))
    read = read_arguments(arguments if isinstance(arguments, str) else dumps(arguments or {}))
    extra = {} if read.error is None else {"raw": arguments}
    return ToolCall(
        id=str(raw.get("id") or ""),
        name=name,
        arguments=read.text,
        repairs=read.repairs,
        error=read.error,
        extra=extra,
    )


def tool_specs(value: Any) -> tuple[ToolSpec, ...]:
    """Tool definitions: OpenAI's, bare functions, or JSON text of either; what is none is left out."""
    if isinstance(value, str):
        try:
            value = msgspec.json.decode(value)
        except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
            return ()
    found: list[ToolSpec] = []
    for item in value if isinstance(value, list) else []:
        function = item.get("function", item) if isinstance(item, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            continue
        parameters = function.get("parameters", function.get("input_schema")) or {}
        found.append(
            ToolSpec(
                name=function["name"],
                description=str(function.get("description") or ""),
                parameters=parameters if isinstance(parameters, str) else dumps(parameters),
            )
        )
    return tuple(found)
