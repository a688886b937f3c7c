"""Read the messages in the span of a model call, in any of the vocabularies, into an `Exchange`.

OTel GenAI has `gen_ai.input.messages` and `gen_ai.output.messages` (JSON text, or lists of key-value pairs). Before, it
had events (`gen_ai.user.message`, `gen_ai.choice`: of the span, or as log records), and at first flat attributes
(`gen_ai.prompt.0.role`), which some libraries still write. OpenInference has `llm.input_messages.0.message.role`.
"""

from __future__ import annotations

from typing import Any

import msgspec

from foretrace.core.trace import Part, Role, ToolCall, ToolSpec, Usage
from foretrace.sources.content_blocks import read_any_content, read_block
from foretrace.sources.conversation import make_call
from foretrace.sources.json_values import (
    as_count,
    as_dict,
    as_dicts,
    as_list,
    as_text,
    decode_json,
    decode_nested,
    get_dict,
    get_text,
    write_text,
)
from foretrace.sources.openai_messages import read_tool_specs
from foretrace.sources.otlp.spans import Span
from foretrace.sources.own_fields import FIELD
from foretrace.sources.turn_items import ROLES

_EVENT_ROLES = {
    "gen_ai.system.message": "system", "gen_ai.user.message": "user", "gen_ai.assistant.message": "assistant",
    "gen_ai.tool.message": "tool",
}  # fmt: skip
_DETAILS = "gen_ai.client.inference.operation.details"
_TEXTS = frozenset({"text", "input_text", "output_text"})
_PARTS = _TEXTS | {"reasoning", "thinking", "tool_call", "tool_use", "tool_call_response", "tool_result", "image",
                   "image_url", "input_image", "blob", "uri", "file"}  # fmt: skip
_USAGE = (
    ("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens", "llm.token_count.prompt"),
    ("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens", "llm.token_count.completion"),
)
"""Attributes with the token counts of the prompt, and of the reply."""


class Turn(msgspec.Struct):
    """A message, or one of several results in a message."""

    role: Role
    text: str = ""
    reasoning: str | None = None
    calls: list[ToolCall] = msgspec.field(default_factory=list[ToolCall])
    call_id: str = ""
    """For a result: the call that it answers."""
    tool: str = ""
    """For a result: the tool's name, which may be all that is known of the call."""
    parts: tuple[Part, ...] = ()
    extra: dict[str, Any] = msgspec.field(default_factory=dict[str, Any])

    @property
    def is_empty(self) -> bool:
        """Whether it has no content at all."""
        return not (self.text or self.reasoning or self.calls or self.parts or self.call_id)

    @property
    def signature(self) -> tuple[Any, ...]:
        """Identifies the message when a later call repeats it."""
        return self.role, self.text.strip(), tuple(call.name for call in self.calls)


class Exchange(msgspec.Struct):
    """One model call: its input and its reply."""

    span: Span
    inputs: list[Turn]
    reply: Turn | None
    finish_reason: str | None
    is_cut: bool = False
    """Whether the beginning of the reply is missing: the number of attributes of a span is limited."""
    alternatives: int = 0
    """Number of further replies to the same input; they are not kept."""
    has_new_only: bool = False
    """Whether the input is only what is new since the previous call, not the whole history: our own exports."""

    @property
    def usage(self) -> Usage | None:
        """Token counts; None if unknown."""
        get = self.span.attributes.get
        prompt, completion = (
            as_count(next((value for name in names if (value := get(name)) is not None), None)) for names in _USAGE
        )
        return (
            Usage(prompt_tokens=prompt, completion_tokens=completion) if (prompt, completion) != (None, None) else None
        )


def read_exchange(span: Span) -> Exchange:
    """The messages in the span of a model call, from the first vocabulary that has any."""
    attributes = span.attributes
    inputs, outputs = _read_attribute_messages(attributes)
    if attributes.get(f"{FIELD}.input") == "new":
        reasons = as_list(attributes.get("gen_ai.response.finish_reasons"))
        reply = next(iter(outputs), None)
        return Exchange(span, inputs, reply, as_text(next(iter(reasons), None)) or None, has_new_only=True)
    if not outputs:
        for event in span.events:
            if event.name == _DETAILS:
                inputs, outputs = _read_attribute_messages(event.values)
    if not inputs and not outputs:
        inputs, outputs = _read_events(span)
    if not outputs:
        flat_inputs = read_messages(unflatten(attributes, "gen_ai.prompt"))
        flat_inputs = [_find_calls_in_text(t) if t.role in ("tool", "assistant") else t for t in flat_inputs]
        outputs = read_messages(unflatten(attributes, "gen_ai.completion"))
        outputs = [msgspec.structs.replace(_find_calls_in_text(turn), role="assistant") for turn in outputs]
        inputs = inputs or flat_inputs
    is_openinference = not outputs
    if not outputs:
        outputs = read_messages(unflatten(attributes, "llm.output_messages")) or _read_value(attributes, "output.value")
        inputs = inputs or read_messages(unflatten(attributes, "llm.input_messages"))
        inputs = inputs or _read_value(attributes, "input.value")
    outputs = [turn for turn in outputs if turn.role in ("assistant", "tool") and not turn.is_empty]
    reply, alternatives = _merge_reply(outputs, joins_texts=is_openinference)
    reasons = attributes.get("gen_ai.response.finish_reasons") or attributes.get("gen_ai.completion.0.finish_reason")
    reasons = decode_json(reasons) or reasons
    reason = next(iter(reasons), None) if isinstance(reasons, list) else reasons
    return Exchange(
        span=span,
        inputs=[turn for turn in inputs if not turn.is_empty or turn.role in ("tool", "assistant")],
        reply=reply,
        finish_reason=reason if isinstance(reason, str) else None,
        is_cut=is_openinference and _lacks_first(attributes, "llm.output_messages."),
        alternatives=alternatives,
    )


def _lacks_first(attributes: dict[str, Any], prefix: str) -> bool:
    names = [name for name in attributes if name.startswith(prefix)]
    return bool(names) and not any(name.startswith(prefix + "0.") for name in names)


def unflatten(attributes: dict[str, Any], prefix: str) -> Any:
    """The attributes `PREFIX.0.b`, `PREFIX.1.b`, ... as a list of objects; None if there are none."""
    tree: dict[str, Any] = {}
    for name, value in attributes.items():
        if not name.startswith(prefix + "."):
            continue
        *path, last = name[len(prefix) + 1 :].split(".")
        inner = tree
        for key in path:
            step = inner.get(key)
            if not isinstance(step, dict):
                step = inner[key] = {}
            inner = step
        if not isinstance(inner.get(last), dict):
            inner[last] = value
    return _make_lists(tree) if tree else None


def _make_lists(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    made = {key: _make_lists(inner) for key, inner in value.items()}
    if made and all(key.isdigit() and len(key) < 7 for key in made):
        return [made[key] for key in sorted(made, key=int)]
    return made


def _read_attribute_messages(attributes: dict[str, Any]) -> tuple[list[Turn], list[Turn]]:
    system = decode_json(attributes.get("gen_ai.system_instructions"))
    inputs = read_messages(decode_json(attributes.get("gen_ai.input.messages")))
    if isinstance(system, list) and system:
        inputs = [*_read_message({"role": "system", "parts": system}), *inputs]
    elif text := as_text(attributes.get("gen_ai.system_instructions")):
        inputs = [Turn("system", text), *inputs]
    return inputs, read_messages(decode_json(attributes.get("gen_ai.output.messages")))


def _read_events(span: Span) -> tuple[list[Turn], list[Turn]]:
    inputs, outputs = list[Turn](), list[Turn]()
    for name, values in ((event.name, event.values) for event in span.events):
        held = decode_json(values.get("gen_ai.event.content"))
        if isinstance(held, dict):
            values = {**values, **held}
        if name == "gen_ai.choice":
            message = decode_json(values.get("message"))
            message = message if isinstance(message, dict) else {k: v for k, v in values.items() if k != "message"}
            if isinstance(values.get("message"), str) and not isinstance(decode_json(values["message"]), dict):
                message["content"] = values["message"]
            outputs += _read_message({"tool_calls": values.get("tool_calls"), **message, "role": "assistant"})
        elif name in _EVENT_ROLES:
            inputs += _read_message({**values, "role": _EVENT_ROLES[name]})
    return inputs, outputs


def _read_value(attributes: dict[str, Any], name: str) -> list[Turn]:
    """OpenInference's `input.value` or `output.value`: text, or the request or response body of an API."""
    value = attributes.get(name)
    role: Role = "user" if name == "input.value" else "assistant"
    decoded = decode_json(value)
    if not isinstance(decoded, (dict, list)):
        return [Turn(role, value)] if isinstance(value, str) and value else []
    body = as_dict(decoded)
    choices = [as_dict(choice.get("message")) for choice in as_dicts(body.get("choices"))]
    return read_messages(choices or body.get("messages") or (decoded if isinstance(decoded, list) else None))


def read_messages(value: Any) -> list[Turn]:
    """The turns of a message or a list of messages."""
    messages = value if isinstance(value, list) else as_dicts([value])
    return [turn for message in messages if isinstance(message, dict) for turn in _read_message(message)]


def _read_message(raw: dict[str, Any]) -> list[Turn]:
    """The turns of a message: one for each result in it, and one for the rest."""
    message = get_dict(raw, "message") or raw  # OpenInference
    role = ROLES.get(str(message.get("role")).lower(), "assistant" if message.get("tool_calls") else "user")
    turn, results = Turn(role), list[Turn]()
    if FIELD in message:
        turn.extra = {FIELD: message[FIELD]}
    pieces = _decode_parts(message.get("parts", message.get("contents", message.get("content"))), role)
    if isinstance(pieces, list):
        for piece in pieces:
            _add_piece(turn, results, get_dict(piece, "message_content") or piece)
    else:
        turn.text = write_text(pieces)
    turn.reasoning = turn.reasoning or get_text(message, "reasoning_content", "reasoning") or None
    calls = decode_json(message.get("tool_calls"))
    turn.calls += map(_make_call, as_dicts(calls if isinstance(calls, list) else [calls]))
    if role == "tool" and turn.calls:
        turn.role = role = "assistant"  # Koog
    if role == "tool" and not results:
        turn.call_id = read_id(message.get("tool_call_id")) or read_id(message.get("id"))
        turn.tool = as_text(message.get("name"))
        return [turn]
    if role == "tool" and not turn.text:
        results[0].extra = turn.extra
        return results
    return results if results and turn.is_empty else [*results, turn]


def _decode_parts(value: Any, role: Role) -> Any:
    """Decode a list of parts that is written as JSON text. Other text stays as it is, and so does a tool's JSON output
    unless it is a list of text parts."""
    if not isinstance(value, str) or not value.startswith("[{"):
        return value
    decoded = decode_json(value)
    kinds = {str(as_dict(part).get("type")) for part in as_list(decoded)}
    return decoded if kinds and kinds <= (_TEXTS if role == "tool" else _PARTS) else value


def _add_piece(turn: Turn, results: list[Turn], piece: Any) -> None:
    block = read_block(piece) if isinstance(piece, dict) else piece
    kind = get_text(block, "type")
    if kind == "thinking":
        turn.reasoning = "\n\n".join(filter(None, (turn.reasoning, get_text(block, "thinking"))))
    elif kind == "tool_use":
        turn.calls.append(make_call(read_id(block.get("id")), block.get("name"), block.get("input")))
    elif kind == "tool_result":
        text, parts = read_any_content(block.get("content"))
        call_id = read_id(block.get("tool_use_id"))
        results.append(Turn("tool", text, call_id=call_id, tool=get_text(piece, "name"), parts=parts))
    else:
        text, parts = read_any_content([block])
        turn.parts += tuple(msgspec.structs.replace(part, at=len(turn.text) + part.at) for part in parts)
        turn.text += text


def _make_call(raw: dict[str, Any]) -> ToolCall:
    call = read_block({**(get_dict(raw, "tool_call") or raw), "type": "tool_call"})
    return make_call(read_id(call.get("id")), call.get("name"), call.get("input"))


def read_id(value: Any) -> str:
    """An id as text; Microsoft's is a list of two."""
    return write_text(decode_nested(value))


def _find_calls_in_text(turn: Turn) -> Turn:
    """The turn with calls out of its text: flat attributes have no field for calls, so some libraries write them as
    JSON text, and some of these with the role of a tool."""
    if turn.calls or not turn.text.lstrip().startswith(("[", "{")):
        return turn
    decoded = decode_json(turn.text)
    items = as_dicts(decoded if isinstance(decoded, list) else [decoded])
    calls = [_make_call(item) for item in items if _is_call(item)]
    if not calls or len(calls) != len(items):
        return turn
    return msgspec.structs.replace(turn, role="assistant", text="", calls=calls, call_id="")


def _is_call(item: dict[str, Any]) -> bool:
    function = item.get("function")
    is_function = isinstance(function, dict) and isinstance(function.get("name"), str)
    return is_function or (isinstance(item.get("name"), str) and ("arguments" in item or "args" in item))


def _merge_reply(outputs: list[Turn], *, joins_texts: bool) -> tuple[Turn | None, int]:
    """Merge the output messages into the reply, and count alternatives to it. Messages belong together if any has calls
    or they are OpenInference's; otherwise they are alternatives, and the first one was used."""
    if not outputs:
        return None, 0
    if len(outputs) > 1 and not joins_texts and not any(turn.calls for turn in outputs):
        return outputs[0], len(outputs) - 1
    reply = Turn("assistant")
    for turn in outputs:
        at = len(reply.text)
        reply.text += turn.text
        reply.calls += turn.calls
        reply.parts += tuple(msgspec.structs.replace(part, at=at + part.at) for part in turn.parts)
        if turn.reasoning:
            reply.reasoning = f"{reply.reasoning}\n\n{turn.reasoning}" if reply.reasoning else turn.reasoning
    return reply, 0


def read_tools(span: Span) -> tuple[ToolSpec, ...]:
    """The tools that the model was offered."""
    attributes = span.attributes
    for name in ("gen_ai.tool.definitions", "gen_ai.request.tools"):
        if tools := read_tool_specs(decode_json(attributes.get(name))):
            return tools
    listed = [
        decode_json(as_dict(tool.get("tool")).get("json_schema"))
        for tool in as_dicts(unflatten(attributes, "llm.tools"))
    ]
    if tools := read_tool_specs(listed):
        return tools
    flat = unflatten(attributes, "llm.request.functions") or unflatten(attributes, "gen_ai.request.tools")
    flat = [{**tool, "parameters": decode_json(tool.get("parameters"))} for tool in as_dicts(flat)]
    request = as_dict(decode_json(attributes.get("model_request_parameters")))  # Pydantic AI
    own = [*as_list(request.get("function_tools")), *as_list(request.get("output_tools"))]
    renamed = [{**tool, "parameters": tool.get("parameters_json_schema")} for tool in as_dicts(own)]
    return read_tool_specs(flat) or read_tool_specs(renamed)
