"""Fields of a trace that a foreign format has no place for, kept under `foretrace` in spans.

An exporter writes them next to the format's own fields of a message or a trace; a reader takes them in place of what it
read there, except for the texts of messages, which are not repeated.
"""

from __future__ import annotations

from typing import Any

import msgspec

from foretrace.core.trace import Message, Trace
from foretrace.encodings.json_arguments import encode_json
from foretrace.sources.json_values import as_dict, decode_json

FIELD = "foretrace"
"""Name of the object that holds them."""


def keep_trace_fields(trace: Trace) -> dict[str, Any]:
    """All fields of a trace except its messages."""
    return msgspec.to_builtins(msgspec.structs.replace(trace, messages=(), id=""))


def keep_message_fields(message: Message) -> dict[str, Any]:
    """All fields of a message except its text."""
    return msgspec.to_builtins(msgspec.structs.replace(message, content=""))


def restore_fields(trace: Trace) -> Trace:
    """The trace with the fields under `FIELD`; unchanged if they are not from foretrace."""
    own = trace.extra.get(FIELD)
    if own is None:
        return trace
    try:
        messages = tuple(map(_restore_message, trace.messages))
        return msgspec.structs.replace(msgspec.convert(own, Trace), messages=messages)
    except (msgspec.ValidationError, TypeError, ValueError):
        return trace


def _restore_message(message: Message) -> Message:
    if FIELD not in message.extra:
        return message
    made = msgspec.convert(message.extra[FIELD], Message)
    return msgspec.structs.replace(made, content=(message.prefix + message.content).removeprefix(made.prefix))


def normalize_object(text: str) -> str | None:
    """JSON text of an object in the form that readers of objects produce; `None` if the text is not one."""
    value = decode_json(text)
    if not isinstance(value, dict):
        return None
    try:
        made = encode_json(value)
        made.encode()
    except (ValueError, TypeError, RecursionError):
        return None
    return made


def write_tools(trace: Trace) -> list[dict[str, Any]]:
    """The tools as OpenAI's definitions."""
    return [
        {
            "type": "function",
            "function": {
                "name": tool.name,
                "description": tool.description,
                "parameters": as_dict(decode_json(normalize_object(tool.parameters) or "{}")),
            },
        }
        for tool in trace.tools
    ]
