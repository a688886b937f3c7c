"""Fields of a trace that a foreign format has no place for, kept under `foretrace` in spans.

An exporter writes them next to the format's own fields of a message or a trace; a reader combines both. The format's
own fields take precedence, so that they can be edited: texts are not repeated here, and the original spacing of JSON
text is only restored if the JSON still has the same meaning.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import msgspec

from foretrace.core.trace import Message, ToolCall, ToolSpec, Trace
from foretrace.encodings.json_arguments import encode_json
from foretrace.sources.json_values import as_dict, as_dicts, decode_json
from foretrace.sources.openai_messages import read_tool_specs

FIELD = "foretrace"
"""Name of the object that holds them."""


def keep_trace_fields(trace: Trace) -> dict[str, Any]:
    """All fields of a trace except its messages; the tools only if `write_tools` does not represent them exactly."""
    kept = msgspec.to_builtins(msgspec.structs.replace(trace, messages=(), tools=(), id=""))
    del kept["messages"]
    if _read_written_tools(trace) != trace.tools:
        kept["tools"] = msgspec.to_builtins(trace.tools)
    return kept


def keep_message_fields(message: Message, *, call_ids: Collection[str] = ()) -> dict[str, Any]:
    """All fields of a message except its text; for the agent also without its reasoning, and the names and arguments of
    its calls.

    Args:
        call_ids: Ids under which the message's calls are written.
    """
    bare = msgspec.structs.replace(message, content="")
    if message.role != "assistant":
        return msgspec.to_builtins(bare)
    kept: dict[str, Any] = msgspec.to_builtins(msgspec.structs.replace(bare, reasoning=None, tool_calls=()))
    if message.reasoning == "":
        kept["reasoning"] = ""
    calls = [_keep_call_fields(call, own) for call, own in zip(message.tool_calls, call_ids, strict=True)]
    if any(calls):
        kept["tool_calls"] = calls
    return kept


def _keep_call_fields(call: ToolCall, written_id: str) -> dict[str, Any]:
    kept: dict[str, Any] = msgspec.to_builtins(msgspec.structs.replace(call, id="", name=""))
    kept.pop("arguments", None)
    if call.id != written_id:
        kept["id"] = call.id
    if normalize_object(call.arguments) != call.arguments:
        kept["arguments"] = call.arguments
    return kept


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


def _read_written_tools(trace: Trace) -> tuple[ToolSpec, ...]:
    return read_tool_specs(encode_json(write_tools(trace)))


def restore_fields(trace: Trace) -> Trace:
    """The trace with the fields under `FIELD`, if there are any; unchanged if they are not from foretrace."""
    own = trace.extra.get(FIELD)
    if own is None and not any(FIELD in message.extra for message in trace.messages):
        return trace
    try:
        messages = tuple(map(_restore_message, trace.messages))
        if own is None:
            return msgspec.structs.replace(trace, messages=messages)
        made = msgspec.convert({**as_dict(own), "messages": []}, Trace)
        are_same = bool(made.tools) and _read_written_tools(made) == trace.tools
        return msgspec.structs.replace(made, messages=messages, tools=made.tools if are_same else trace.tools)
    except (msgspec.ValidationError, TypeError, AttributeError, ValueError):
        return trace


def _restore_message(message: Message) -> Message:
    kept = message.extra.get(FIELD)
    if not isinstance(kept, dict):
        return message
    calls = as_dicts(kept.get("tool_calls"))
    made = msgspec.convert({**kept, "tool_calls": []}, Message)
    text = message.prefix + message.content
    made = msgspec.structs.replace(made, content=text.removeprefix(made.prefix), parts=made.parts or message.parts)
    if made.role != "assistant":
        return msgspec.structs.replace(made, tool_calls=msgspec.convert(calls, tuple[ToolCall, ...]))
    return msgspec.structs.replace(
        made,
        reasoning=kept.get("reasoning", message.reasoning),
        tool_calls=tuple(
            _restore_call(call, calls[n] if n < len(calls) else {}, len(text))
            for n, call in enumerate(message.tool_calls)
        ),
    )


def _restore_call(call: ToolCall, kept: dict[str, Any], length: int) -> ToolCall:
    made = msgspec.convert(kept, ToolCall)
    is_same = "arguments" in kept and normalize_object(made.arguments) in (None, call.arguments)
    span = made.span if made.span is not None and 0 <= made.span[0] <= made.span[1] <= length else None
    return msgspec.structs.replace(
        made,
        id=kept.get("id", call.id),
        name=call.name,
        arguments=made.arguments if is_same else call.arguments,
        span=span,
    )
