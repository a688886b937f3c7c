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

_EVENT_ROLES = {f"gen_ai.{role}.message": role for role in ("system", "user", "assistant", "tool")}
_DETAILS = "gen_ai.client.inference.operation.details"
_PARTS = frozenset({
    "text", "input_text", "output_text", "reasoning", "thinking", "tool_call", "tool_use", "tool_call_response",
    "tool_result", "image", "image_url", "input_image", "blob", "uri", "file",
})  # fmt: skip
_PROMPT_TOKENS = ("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens", "llm.token_count.prompt")
_REPLY_TOKENS = ("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens", "llm.token_count.completion")


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
    exchange: Exchange | None = None
    """The model call that gave a reply; None for a turn that is only known from the history of a later call."""

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
    usage: Usage | None
    is_cut: bool = False
    """Whether the beginning of the reply is missing: the number of attributes of a span is limited."""
    alternatives: int = 0
    """Number of further replies to the same input; they are not kept."""
    has_new_only: bool = False
    """Whether the input is only what is new since the previous call, not the whole history: our own exports."""


def read_exchange(span: Span) -> Exchange:
    """The messages in the span of a model call, from the first vocabulary that has a reply."""
    attributes = span.attributes
    has_new_only, is_openinference = attributes.get(f"{FIELD}.input") == "new", False
    inputs, outputs = _read_lists(attributes)
    if not outputs and not has_new_only:
        details = next((values for name, values in span.events if name == _DETAILS), {})
        for asked, said in (_read_lists(details), _read_events(span), _read_flat(attributes)):
            inputs, outputs = inputs or asked, outputs or said
        if is_openinference := not outputs:
            outputs = read_messages(_unflatten(attributes, "llm.output_messages")) or _read_value(span, "output.value")
            inputs = inputs or read_messages(_unflatten(attributes, "llm.input_messages"))
            inputs = inputs or _read_value(span, "input.value")
    if not has_new_only:
        inputs = [turn for turn in inputs if not turn.is_empty or turn.role in ("tool", "assistant")]
        outputs = [turn for turn in outputs if turn.role in ("assistant", "tool") and not turn.is_empty]
    # Messages belong together if any has calls or they are OpenInference's; otherwise they are alternatives.
    are_alternatives = not is_openinference and not any(turn.calls for turn in outputs)
    reply = next(iter(outputs), None)
    for turn in [] if are_alternatives else outputs[1:]:
        assert reply is not None
        reply.parts += tuple(msgspec.structs.replace(part, at=len(reply.text) + part.at) for part in turn.parts)
        reply.text += turn.text
        reply.calls += turn.calls
        reply.reasoning = "\n\n".join(filter(None, (reply.reasoning, turn.reasoning))) or None
    reasons = attributes.get("gen_ai.response.finish_reasons") or attributes.get("gen_ai.completion.0.finish_reason")
    reasons = decode_json(reasons) or reasons
    reason = next(iter(reasons), None) if isinstance(reasons, list) else reasons
    tokens = [as_count(next((n for name in names if (n := attributes.get(name)) is not None), None))
              for names in (_PROMPT_TOKENS, _REPLY_TOKENS)]  # fmt: skip
    said = [name for name in attributes if name.startswith("llm.output_messages.")]
    exchange = Exchange(
        span=span,
        inputs=inputs,
        reply=reply,
        finish_reason=as_text(reason) or None,
        usage=None if tokens == [None, None] else Usage(prompt_tokens=tokens[0], completion_tokens=tokens[1]),
        is_cut=is_openinference and bool(said) and not any(name.startswith("llm.output_messages.0.") for name in said),
        alternatives=max(0, len(outputs) - 1) if are_alternatives else 0,
        has_new_only=has_new_only,
    )
    if reply is not None:
        reply.role, reply.exchange = "assistant", exchange
    return exchange


def _unflatten(attributes: dict[str, Any], prefix: str) -> Any:
    """The attributes `PREFIX.0.b`, `PREFIX.1.b`, ... as a list of objects; None if there are none."""
    tree: dict[str, Any] = {}
    for name, value in attributes.items():
        if not name.startswith(prefix + "."):
            continue
        *path, last = name[len(prefix) + 1 :].split(".")
        inner = tree
        for key in path:
            if not isinstance(inner.get(key), dict):
                inner[key] = {}
            inner = inner[key]
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


def _read_lists(attributes: dict[str, Any]) -> tuple[list[Turn], list[Turn]]:
    given = attributes.get("gen_ai.system_instructions")
    system = decode_json(given)
    inputs = read_messages(decode_json(attributes.get("gen_ai.input.messages")))
    if isinstance(system, list) and system:
        inputs = [*_read_message({"role": "system", "parts": system}), *inputs]
    elif as_text(given):
        inputs = [Turn("system", as_text(given)), *inputs]
    return inputs, read_messages(decode_json(attributes.get("gen_ai.output.messages")))


def _read_events(span: Span) -> tuple[list[Turn], list[Turn]]:
    inputs, outputs = list[Turn](), list[Turn]()
    for name, values in span.events:
        values = {**values, **as_dict(decode_json(values.get("gen_ai.event.content")))}
        if name in _EVENT_ROLES:
            inputs += _read_message({**values, "role": _EVENT_ROLES[name]})
        elif name == "gen_ai.choice":
            given = values.pop("message", None)
            message = decode_json(given)
            message = message if isinstance(message, dict) else {**values, **({"content": given} if given else {})}
            outputs += _read_message({"tool_calls": values.get("tool_calls"), **message, "role": "assistant"})
    return inputs, outputs


def _read_flat(attributes: dict[str, Any]) -> tuple[list[Turn], list[Turn]]:
    outputs = read_messages(_unflatten(attributes, "gen_ai.completion"))
    for turn in outputs:
        turn.role = "assistant"
    return read_messages(_unflatten(attributes, "gen_ai.prompt")), outputs


def _read_value(span: Span, name: str) -> list[Turn]:
    """OpenInference's `input.value` or `output.value`, if it is text and not the body of a request or response."""
    text = span.get_text(name)
    role: Role = "user" if name == "input.value" else "assistant"
    return [Turn(role, text)] if text and not isinstance(decode_json(text), (dict, list)) else []


def read_messages(value: Any) -> list[Turn]:
    """The turns of a message or a list of messages."""
    messages = as_dicts(value if isinstance(value, list) else [value])
    return [turn for message in messages for turn in _read_message(message)]


def _read_message(raw: dict[str, Any]) -> list[Turn]:
    """The turns of a message: one for each result in it, and one for the rest."""
    message = get_dict(raw, "message") or raw  # OpenInference
    role = ROLES.get(str(message.get("role")).lower(), "assistant" if message.get("tool_calls") else "user")
    turn, results = Turn(role), list[Turn]()
    if FIELD in message:
        turn.extra = {FIELD: message[FIELD]}
    pieces = message.get("parts", message.get("contents", message.get("content")))
    if role != "tool" and isinstance(pieces, str) and pieces.startswith("[{"):  # parts, as JSON text
        decoded = as_list(decode_json(pieces))
        kinds = {get_text(part, "type") for part in decoded}
        pieces = decoded if kinds and kinds <= _PARTS else pieces
    if isinstance(pieces, list):
        for piece in pieces:
            _add_piece(turn, results, get_dict(piece, "message_content") or piece)
    else:
        turn.text = write_text(pieces)
    turn.reasoning = turn.reasoning or get_text(message, "reasoning_content", "reasoning") or None
    calls = decode_json(message.get("tool_calls"))
    for each in as_dicts(calls if isinstance(calls, list) else [calls]):
        call = read_block({**(get_dict(each, "tool_call") or each), "type": "tool_call"})
        turn.calls.append(make_call(read_id(call.get("id")), call.get("name"), call.get("input")))
    if role == "tool" and not results:
        turn.call_id = read_id(message.get("tool_call_id")) or read_id(message.get("id"))
        turn.tool = as_text(message.get("name"))
        return [turn]
    if role == "tool" and not turn.text:
        results[0].extra = turn.extra
        return results
    return results if results and turn.is_empty else [*results, turn]


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


def read_id(value: Any) -> str:
    """An id as text; Microsoft's is a list of two."""
    return write_text(decode_nested(value))


def read_tools(span: Span) -> tuple[ToolSpec, ...]:
    attributes = span.attributes
    request = as_dict(decode_json(attributes.get("model_request_parameters")))  # Pydantic AI
    offered = _unflatten(attributes, "llm.tools")
    flat = _unflatten(attributes, "llm.request.functions") or _unflatten(attributes, "gen_ai.request.tools")
    given = (
        decode_json(attributes.get("gen_ai.tool.definitions")),
        decode_json(attributes.get("gen_ai.request.tools")),
        [decode_json(get_dict(tool, "tool").get("json_schema")) for tool in as_dicts(offered)],
        [{**tool, "parameters": decode_json(tool.get("parameters"))} for tool in as_dicts(flat)],
        [*as_list(request.get("function_tools")), *as_list(request.get("output_tools"))],
    )
    return next((tools for each in given if (tools := read_tool_specs(each))), ())
