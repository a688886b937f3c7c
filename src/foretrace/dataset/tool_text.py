"""The agent's tools as a prompt lists them: one JSON object a line, with the schema of its arguments."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

import msgspec

from foretrace.core.trace import ToolSpec
from foretrace.encodings.json_arguments import encode_json

_TAG = re.compile(r"<(?=/?tool_(?:call|response))", re.IGNORECASE)


DESCRIPTION_CHARS = (None, 200, 60, 0)
"""Longest descriptions to try where there is too little room, in characters; with 0, those of arguments go."""
_LEAST_CHARS = 60
"""Characters that a tool's own description keeps."""


@lru_cache(maxsize=4096)
def encode_tool(tool: ToolSpec, longest: int | None = None) -> str:
    """The tool as `{"name":N,"description":D,"parameters":{...}}`; a schema that is no JSON stands there as a string.

    A tag of a call or result in a description is written with a JSON escape, so it looks like none and reads as it was.

    Args:
        tool: The tool.
        longest: Cut longer descriptions and say so in them. With 0, leave out those of the arguments, and say how many
            characters that is behind the object. `None`: all as it is.
    """
    whole = parameters = _squeeze(tool.parameters)
    description = tool.description
    if longest is not None:
        parameters = _shorten_schema(whole, longest)
        description = _cut(description, longest or _LEAST_CHARS)
    gone = len(whole) - len(parameters) if longest == 0 else 0
    held = f',"parameters":{parameters}' if parameters else ""
    text = f'{{"name":{encode_json(tool.name)},"description":{encode_json(description)}{held}}}'
    return _TAG.sub(r"\\u003c", text) + (f" [{gone} characters left out]" if gone > 0 else "")


def _shorten_schema(schema: str, longest: int) -> str:
    """JSON text of the schema with shorter descriptions; as it is where it cannot be written again."""
    try:
        return encode_json(_shorten(_read(schema), longest))
    except (ValueError, RecursionError):  # infinite numbers, or nested too deep
        return schema


def _cut(text: str, longest: int) -> str:
    gone = len(text) - longest
    return f"{text[:longest]}[{gone} characters left out]" if gone > 0 else text


def _shorten(value: Any, longest: int) -> Any:
    """A schema whose descriptions are cut to a length, or left out with 0. A property that is called `description` is
    an object and stays."""
    if isinstance(value, dict):
        kept = {k: v for k, v in value.items() if longest or not _is_description(k, v)}
        return {k: _cut(v, longest) if _is_description(k, v) else _shorten(v, longest) for k, v in kept.items()}
    return [_shorten(one, longest) for one in value] if isinstance(value, list) else value


def _is_description(key: str, value: Any) -> bool:
    return key == "description" and isinstance(value, str)


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
    """JSON text without white space between its parts; a text that is no JSON as a JSON string."""
    if _read(parameters) is None:
        return encode_json(parameters) if parameters.strip() else ""
    return msgspec.json.format(parameters, indent=-1)
