"""Read OpenAI-style messages: content as text, as parts or missing; calls as `tool_calls` or the older
`function_call`."""

from __future__ import annotations

from collections.abc import Set
from typing import Any

import msgspec

from foretrace.core.trace import ToolCall, ToolSpec
from foretrace.encodings.json_arguments import encode_json
from foretrace.sources.base import RowError
from foretrace.sources.conversation import make_call
from foretrace.sources.json_values import as_dict, as_dicts, decode_json

_CALL_KEYS = frozenset({"id", "type", "index", "function", "name", "arguments", "parameters", "args"})


def decode_column(value: Any, column: str) -> Any:
    """The value of a column, decoded if it is JSON text; a RowError if it is missing, or text that is not JSON."""
    if isinstance(value, str):
        try:
            value = msgspec.json.decode(value)
        except (msgspec.DecodeError, UnicodeEncodeError) as error:
            raise RowError("bad_json", f"{column}: {error}") from None
        except RecursionError:
            raise RowError("nested_too_deep", column) from None
    if value is None:
        raise RowError("null_messages", column)
    return value


def check_objects(value: Any, column: str) -> list[dict[str, Any]]:
    """The value of a column; a RowError if it is not a list of objects, or empty."""
    if not isinstance(value, list):
        raise RowError("wrong_column_type", f"{column} is a {type(value).__name__}")
    if not value:
        raise RowError("empty_trace", f"{column} is empty")
    for index, item in enumerate(value):
        if not isinstance(item, dict):
            raise RowError("wrong_column_type", f"{column}[{index}] is a {type(item).__name__}")
    return value


def find_unknown_fields(item: dict[str, Any], known: Set[str]) -> dict[str, Any]:
    """The fields of `item` that are not in `known` and not `None`: they go to `extra`, so that nothing is lost."""
    return {} if item.keys() <= known else {k: v for k, v in item.items() if k not in known and v is not None}


def read_answered_ids(item: dict[str, Any]) -> tuple[str, ...]:
    """Ids of the calls that a result answers."""
    ids = item.get("tool_call_ids") or item.get("tool_call_id")
    return tuple(str(i) for i in (ids if isinstance(ids, list) else [ids]) if i)


def read_native_calls(value: Any, index: int) -> tuple[ToolCall, ...]:
    """`tool_calls` of message `index`; arguments may be JSON text or an object."""
    if value is None:
        return ()
    if not isinstance(value, list):
        raise RowError("wrong_column_type", f"tool_calls of message {index} is a {type(value).__name__}")
    return tuple(_read_call(c, index) for c in value if c is not None)


def _read_call(raw: Any, index: int) -> ToolCall:
    function = raw.get("function", raw) if isinstance(raw, dict) else None
    if isinstance(function, str) and isinstance(raw, dict):  # the name, next to the arguments
        raw = function = {**raw, "name": function}
    name = function.get("name") if isinstance(function, dict) else None
    if not isinstance(raw, dict) or not isinstance(function, dict) or not isinstance(name, str):
        raise RowError("bad_tool_call", f"message {index}: a tool call without a function name")
    arguments = next((function[key] for key in ("arguments", "parameters", "args") if key in function), None)
    call = make_call(raw.get("id"), name, arguments or {})
    extra = find_unknown_fields(raw, _CALL_KEYS)
    if function is not raw and (more := find_unknown_fields(function, _CALL_KEYS)):
        extra["function"] = more
    return msgspec.structs.replace(call, extra={**extra, **call.extra})


def read_tool_specs(value: Any) -> tuple[ToolSpec, ...]:
    """Tool definitions: OpenAI's, bare functions, those of Anthropic, MCP, Bedrock (`toolSpec`) and Gemini
    (`functionDeclarations`), an object of them by name, or JSON text of any of these. Anything else is left out."""
    found: list[ToolSpec] = []
    for item in _list_definitions(decode_json(value)):
        function = next((item[key] for key in _FUNCTIONS if isinstance(item.get(key), dict)), item)
        if not isinstance(function.get("name"), str):
            continue
        parameters = next((function[key] for key in _PARAMETERS if function.get(key)), {})
        if isinstance(parameters, dict) and parameters.keys() == {"json"}:  # Bedrock's
            parameters = parameters["json"]
        try:
            schema = parameters if isinstance(parameters, str) else encode_json(parameters)
        except (TypeError, ValueError):
            schema = msgspec.json.encode(repr(parameters)).decode()
        description = str(function.get("description") or "")
        found.append(ToolSpec(name=function["name"], description=description, parameters=schema))
    return tuple(found)


_FUNCTIONS = ("function", "toolSpec")
_PARAMETERS = ("parameters", "input_schema", "inputSchema", "parametersJsonSchema", "parameters_json_schema")
_DECLARED = ("functionDeclarations", "function_declarations")


def _list_definitions(value: Any) -> list[dict[str, Any]]:
    """The definitions in a list, or in an object that contains them."""
    if isinstance(value, dict) and isinstance(value.get("tools"), list):
        value = value["tools"]
    elif isinstance(value, dict) and value.keys() & {*_DECLARED}:
        value = [value]
    elif isinstance(value, dict):
        is_named = all(as_dict(each).keys() & {"description", *_PARAMETERS} for each in value.values())
        value = [{"name": name, **each} for name, each in value.items()] if is_named else []
    listed: list[dict[str, Any]] = []
    for item in as_dicts(value):
        listed += as_dicts(next((item[key] for key in _DECLARED if isinstance(item.get(key), list)), [item]))
    return listed
