"""The agent's tools as a prompt lists them: one JSON object a line, with the schema of its arguments."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

import msgspec

from foretrace.core.trace import ToolSpec
from foretrace.encodings.json_arguments import encode_json

_TAG = re.compile(r"<(?=/?tool_(?:call|response))", re.IGNORECASE)


@lru_cache(maxsize=1024)
def encode_tool(tool: ToolSpec) -> str:
    """The tool as `{"name":N,"description":D,"parameters":{...}}`; a schema that is no JSON is left out.

    A tag of a call or result in a description is written with a JSON escape, so it looks like none and reads as it was.
    """
    name, description = encode_json(tool.name), encode_json(tool.description)
    parameters = f',"parameters":{_squeeze(tool.parameters)}' if isinstance(_read(tool.parameters), dict) else ""
    return _TAG.sub(r"\\u003c", f'{{"name":{name},"description":{description}{parameters}}}')


def is_described(tool: ToolSpec, text: str) -> bool:
    """Whether a text names the tool and each of its arguments, as a system text does that explains it."""
    return all(name in text for name in _list_names(tool))


@lru_cache(maxsize=1024)
def _list_names(tool: ToolSpec) -> tuple[str, ...]:
    schema = _read(tool.parameters)
    properties = schema.get("properties") if isinstance(schema, dict) else None
    return (tool.name, *(properties if isinstance(properties, dict) else ()))


def _read(parameters: str) -> Any:
    try:
        return msgspec.json.decode(parameters)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return None


def _squeeze(parameters: str) -> str:
    """JSON text without white space between its parts."""
    return msgspec.json.format(parameters, indent=-1)
