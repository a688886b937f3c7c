"""Tools and the types of their arguments: those of SWE-agent for rows that do not define them, and arguments that were
written as text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from foretrace.core.trace import Message, ToolCall, ToolSpec
from foretrace.encodings.json_arguments import encode_json
from foretrace.sources.json_values import as_dict, decode_json

REPAIR = "typed"
"""In `ToolCall.repairs` of a call: the type of a value was changed."""
SWE_AGENT = "tools of swe_agent"
"""In `Provenance.transforms`: the row called these tools without defining them."""
_TYPES: dict[str, tuple[type, ...]] = {
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
}


def _make_tool(name: str, description: str, required: Sequence[str], **properties: Any) -> ToolSpec:
    schema = {"type": "object", "properties": properties, "required": required}
    return ToolSpec(name=name, description=description, parameters=encode_json(schema))


_TEXT = {"type": "string"}
_SWE_AGENT_TOOLS = (
    _make_tool("bash", "Run a command in the shell.", ["command"], command=_TEXT),
    _make_tool(
        "str_replace_editor",
        "View, create and edit files; a folder is listed two levels deep.",
        ["command", "path"],
        command={"type": "string", "enum": ["view", "create", "str_replace", "insert", "undo_edit"]},
        path=_TEXT,
        file_text=_TEXT,
        old_str=_TEXT,
        new_str=_TEXT,
        insert_line={"type": "integer"},
        view_range={"type": "array", "items": {"type": "integer"}},
    ),
    _make_tool("submit", "Hand in the current state of the repository.", []),
)


def find_swe_agent_tools(messages: Iterable[Message]) -> tuple[ToolSpec, ...]:
    """The tools of SWE-agent if its editor is called and nothing else than its tools."""
    called = {call.name for message in messages for call in message.tool_calls}
    is_known = "str_replace_editor" in called and called <= {tool.name for tool in _SWE_AGENT_TOOLS}
    return _SWE_AGENT_TOOLS if is_known else ()


def type_arguments(messages: Sequence[Message], tools: Sequence[ToolSpec]) -> tuple[Message, ...]:
    """The messages with arguments read as numbers, booleans, lists or objects where the schema of the tool asks for
    these. Text that cannot be read as one of them is kept."""
    schemas = {tool.name: wanted for tool in tools if (wanted := _read_schema(tool.parameters))}
    if not schemas:
        return tuple(messages)
    typed: list[Message] = []
    for message in messages:
        calls = tuple(_type_call(message, call, schemas.get(call.name)) for call in message.tool_calls)
        typed.append(message if calls == message.tool_calls else msgspec.structs.replace(message, tool_calls=calls))
    return tuple(typed)


def _type_call(message: Message, call: ToolCall, wanted: dict[str, frozenset[str]] | None) -> ToolCall:
    if not wanted or call.error is not None:
        return call
    values: dict[str, Any] = msgspec.json.decode(call.arguments)
    changed: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, str) and key in wanted and "string" not in wanted[key]:
            read = _read_value(value.strip(), wanted[key])
            changed |= {} if read is None else {key: read}
    if not changed:
        return call
    extra = call.extra
    if call.span is not None and "raw" not in extra:
        extra = {**extra, "raw": message.content[slice(*call.span)]}
    repairs = call.repairs if REPAIR in call.repairs else (*call.repairs, REPAIR)
    return msgspec.structs.replace(call, arguments=encode_json(values | changed), repairs=repairs, extra=extra)


def _read_value(text: str, wanted: frozenset[str]) -> Any:
    value = decode_json(text.lower() if text in ("True", "False") else text)
    is_flag = isinstance(value, bool)
    fits = any(isinstance(value, _TYPES[kind]) and is_flag == (kind == "boolean") for kind in wanted if kind in _TYPES)
    return value if fits else None


@lru_cache(maxsize=1024)
def _read_schema(parameters: str) -> dict[str, frozenset[str]]:
    properties = as_dict(as_dict(decode_json(parameters)).get("properties"))
    return {name: types for name, each in properties.items() if (types := _list_types(each))}


def _list_types(schema: Any) -> frozenset[str]:
    if not isinstance(schema, dict):
        return frozenset()
    kinds = schema.get("type")
    found = {kind for kind in (kinds if isinstance(kinds, list) else [kinds]) if isinstance(kind, str)}
    for each in (*(schema.get("anyOf") or ()), *(schema.get("oneOf") or ())):
        found |= _list_types(each)
    return frozenset(kind.lower() for kind in found)  # Gemini writes them in upper case
