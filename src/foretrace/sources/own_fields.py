"""Fields of a trace that a foreign format has no place for, kept under `foretrace` where the format allows extra data.

An exporter writes them next to the format's own fields of a message or a trace; a reader combines both. The format's
own fields take precedence, so that they can be edited: texts are not repeated here, and the original spacing of JSON
text is only restored if the JSON still has the same meaning.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any

import msgspec

from foretrace.core.trace import Message, Sampled, ToolCall, ToolSpec, Trace
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


def keep_message_fields(
    message: Message,
    *,
    has_tokens: bool = True,
    has_argument_text: bool = False,
    call_ids: Collection[str] = (),
) -> dict[str, Any]:
    """All fields of a message except its text; for the agent also without its reasoning, the names and arguments of its
    calls, and its tokens.

    Args:
        has_tokens: Whether the format holds the sampled tokens.
        has_argument_text: Whether it holds the arguments of calls as text rather than as a value.
        call_ids: Ids under which the message's calls are written.
    """
    bare = msgspec.structs.replace(message, content="")
    if message.role != "assistant":
        return msgspec.to_builtins(bare)
    kept: dict[str, Any] = msgspec.to_builtins(
        msgspec.structs.replace(bare, reasoning=None, tool_calls=(), sampled=None)
    )
    if message.reasoning == "":
        kept["reasoning"] = ""
    if (sampled := message.sampled) is not None:
        if has_tokens:
            sampled = msgspec.structs.replace(sampled, token_ids=(), logprobs=(), prompt_token_ids=None)
        kept["sampled"] = msgspec.to_builtins(sampled)
    calls = [
        _keep_call_fields(call, own, has_argument_text) for call, own in zip(message.tool_calls, call_ids, strict=True)
    ]
    if any(calls):
        kept["tool_calls"] = calls
    return kept


def _keep_call_fields(call: ToolCall, written_id: str, has_argument_text: bool) -> dict[str, Any]:
    kept: dict[str, Any] = msgspec.to_builtins(msgspec.structs.replace(call, id="", name=""))
    kept.pop("arguments", None)
    if call.id != written_id:
        kept["id"] = call.id
    written = normalize_object(call.arguments)
    if written is None or (written != call.arguments and not has_argument_text):
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
    return read_tool_specs(decode_json(encode_json(write_tools(trace))))


def restore_fields(trace: Trace) -> Trace:
    """The trace with the fields under `FIELD`, if there are any; unchanged if they are not from foretrace."""
    own = trace.extra.get(FIELD) or as_dict(trace.extra.get("extra")).get(FIELD)  # ATIF has a field `extra`
    if own is None and not any(FIELD in message.extra for message in trace.messages):
        return trace
    try:
        found = [(_read_place(m), _restore_message(m)) for m in trace.messages]
        if all(place is not None for place, _ in found):
            found.sort(key=lambda item: item[0] or 0)
        messages = tuple(message for _, message in found)
        if own is None:
            return msgspec.structs.replace(trace, messages=messages)
        made = msgspec.convert({**as_dict(own), "messages": []}, Trace)
        are_same = bool(made.tools) and _read_written_tools(made) == trace.tools
        return msgspec.structs.replace(made, messages=messages, tools=made.tools if are_same else trace.tools)
    except (msgspec.ValidationError, TypeError, AttributeError, ValueError):
        return trace


def _read_place(message: Message) -> int | None:
    place = as_dict(message.extra.get(FIELD)).get("place")
    return place if isinstance(place, int) else None


def _restore_message(message: Message) -> Message:
    kept = message.extra.get(FIELD)
    if not isinstance(kept, dict):
        return message
    kept = {name: value for name, value in kept.items() if name != "place"}
    sampled, calls = kept.pop("sampled", None), as_dicts(kept.pop("tool_calls", None))
    made = msgspec.convert(kept, Message)
    text = message.prefix + message.content
    made = msgspec.structs.replace(
        made,
        content=text.removeprefix(made.prefix),
        parts=made.parts or message.parts,
        sampled=None if sampled is None else _restore_sampled(sampled, message.sampled),
    )
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


def _restore_sampled(kept: dict[str, Any], read: Sampled | None) -> Sampled:
    """The sampled tokens. JSON has no number for the logprob of a token that could not be sampled: it is null."""
    logprobs = kept.get("logprobs")
    if isinstance(logprobs, list):
        kept = {**kept, "logprobs": [-math.inf if p is None else p for p in logprobs]}
    made = msgspec.convert(kept, Sampled)
    if read is None or "logprobs" in kept or "token_ids" in kept or "prompt_token_ids" in kept:
        return made
    return msgspec.structs.replace(
        made, token_ids=read.token_ids, logprobs=read.logprobs, prompt_token_ids=read.prompt_token_ids
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
