"""Convert the arguments of calls to the types in the tool's schema: text encodings write all of them as text."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import msgspec

from foretrace.core.trace import Message, ToolCall, ToolSpec
from foretrace.encodings.json_arguments import encode_json

REPAIR = "typed"
"""In `ToolCall.repairs` of a call: the type of a value was changed."""
_TYPES: dict[str, tuple[type, ...]] = {
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
}


def type_arguments(messages: Sequence[Message], tools: Sequence[ToolSpec]) -> tuple[Message, ...]:
    """The messages with arguments read as numbers, booleans, lists or objects where the schema of the tool asks for
    these. Text that cannot be read as one of them is kept."""
    schemas = {tool.name: wanted for tool in tools if (wanted := _read_schema(tool.parameters))}
    if not schemas:
        return tuple(messages)
    return tuple(_type_message(message, schemas) for message in messages)


def _type_message(message: Message, schemas: dict[str, dict[str, frozenset[str]]]) -> Message:
    if not any(call.name in schemas for call in message.tool_calls):
        return message
    calls = tuple(_type_call(message, call, schemas.get(call.name)) for call in message.tool_calls)
    return message if calls == message.tool_calls else msgspec.structs.replace(message, tool_calls=calls)


def _type_call(message: Message, call: ToolCall, wanted: dict[str, frozenset[str]] | None) -> ToolCall:
    if not wanted or call.error is not None:
        return call
    values: Any = msgspec.json.decode(call.arguments)
    changed = False
    for key, value in values.items():
        if isinstance(value, str) and key in wanted and "string" not in wanted[key]:
            read = _read_value(value.strip(), wanted[key])
            if read is not None:
                values[key], changed = read, True
    if not changed:
        return call
    extra = call.extra
    if call.span is not None and "raw" not in extra:
        extra = {**extra, "raw": message.content[slice(*call.span)]}
    repairs = call.repairs if REPAIR in call.repairs else (*call.repairs, REPAIR)
    return msgspec.structs.replace(call, arguments=encode_json(values), repairs=repairs, extra=extra)


def _read_value(text: str, wanted: frozenset[str]) -> Any:
    try:
        value = msgspec.json.decode(text.lower() if text in ("True", "False") else text)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return None
    is_flag = isinstance(value, bool)
    fits = any(isinstance(value, _TYPES[kind]) and is_flag == (kind == "boolean") for kind in wanted if kind in _TYPES)
    return value if fits else None


@lru_cache(maxsize=1024)
def _read_schema(parameters: str) -> dict[str, frozenset[str]]:
    """The JSON types of each argument."""
    try:
        schema: Any = msgspec.json.decode(parameters)
    except (msgspec.DecodeError, RecursionError):
        return {}
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(properties, dict):
        return {}
    return {name: types for name, each in properties.items() if (types := _list_types(each))}


def _list_types(schema: Any) -> frozenset[str]:
    if not isinstance(schema, dict):
        return frozenset()
    kinds = schema.get("type")
    found = (
        {kinds}
        if isinstance(kinds, str)
        else {k for k in kinds if isinstance(k, str)}
        if isinstance(kinds, list)
        else set()
    )
    for each in (*(schema.get("anyOf") or ()), *(schema.get("oneOf") or ())):
        found |= _list_types(each)
    return frozenset(kind.lower() for kind in found)  # Gemini writes them in upper case
