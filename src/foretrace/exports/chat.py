"""A trace as OpenAI-style messages and tools, which the source `chat` reads back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from foretrace.core.trace import Message, ToolCall, Trace
from foretrace.encodings.call_forms import CallForm, find_call_ids, merge_spans
from foretrace.encodings.calls_in_text import remove_calls
from foretrace.exports.base import Exported, Family, TraceFormat, find_losses, list_parts
from foretrace.sources.own_fields import write_tools

_CARRIED = frozenset({
    "traces.key", "traces.task", "traces.success", "traces.reward", "traces.model", "traces.tools",
    "messages.reasoning", "messages.train", "messages.parts", "results.tool_call_ids", "results.is_error",
    "results.train", "results.parts", "calls.id", "calls.span", "messages.continues",
})  # fmt: skip


class Chat(TraceFormat):
    """Read by the source `chat`, and by trainers that take OpenAI messages with custom columns."""

    name = "chat"
    call_forms: Sequence[CallForm] = ("native", "verbatim", "xml")

    def write(self, family: Family) -> Exported:
        row = make_chat_row(family.trace)
        return Exported(data=msgspec.json.encode(row) + b"\n", lost=find_losses(family.trace, _CARRIED))


def make_chat_row(trace: Trace) -> dict[str, Any]:
    """One row: `messages`, `tools`, the origin of the trace, and its outcome.

    Calls that the agent wrote as text become `tool_calls` and leave the content. Calls without an id get one, and the
    messages that answer them use it. Adjacent spans of one turn become one message; if the environment answered within
    the turn, it stays several messages with the answer between them.
    """
    messages = merge_spans(trace.messages)
    ids, answers = find_call_ids(messages)
    row: dict[str, Any] = {
        "id": trace.key,
        "instance": trace.task.id,
        "group": trace.task.group,
        "success": trace.outcome.success,
        "messages": [_make_message(m, ids.get(i, ()), answers.get(i, ())) for i, m in enumerate(messages)],
        "tools": write_tools(trace),
    }
    if trace.outcome.reward is not None:
        row["reward"] = trace.outcome.reward
    if trace.provenance.model is not None:
        row["model"] = trace.provenance.model
    return row


def _make_message(message: Message, ids: tuple[str, ...], answers: tuple[str, ...]) -> dict[str, Any]:
    row: dict[str, Any] = {"role": message.role, "content": make_text(message)}
    if message.reasoning is not None:
        row["reasoning_content"] = message.reasoning
    if _has_native_calls(message):
        row["tool_calls"] = [write_call(c, i) for c, i in zip(message.tool_calls, ids, strict=True)]
    if message.role == "tool":
        if len(answers) == 1:
            row["tool_call_id"] = answers[0]
        elif answers:
            row["tool_call_ids"] = list(answers)
        if message.is_error is not None:
            row["is_error"] = message.is_error
    if message.train is not None:
        row["train"] = message.train
    name = message.extra.get("name")
    if isinstance(name, str):
        row["name"] = name
    return row


def make_text(message: Message) -> str | list[dict[str, Any]]:
    """A message's content except its calls: text, or if it has images or files, a list of parts."""
    text = message.content
    if _has_native_calls(message):
        # Unreadable calls stay in the text: their arguments may be incomplete.
        readable = tuple(call for call in message.tool_calls if call.error is None)
        text = remove_calls(msgspec.structs.replace(message, tool_calls=readable))
    if not message.parts:
        return text
    return list_parts(
        text,
        message.parts,
        lambda part: {"type": part.type, part.type: {"url": part.ref}} if part.ref else msgspec.to_builtins(part),
    )


def _has_native_calls(message: Message) -> bool:
    """Whether its calls leave the text. They stay if one of them is unreadable and does not name its tool."""
    is_nameless = any(c.error is not None and c.span is not None and not c.name for c in message.tool_calls)
    return bool(message.tool_calls) and not is_nameless


def write_call(call: ToolCall, own: str) -> dict[str, Any]:
    """A call in the form of the chat API, with the id `own`."""
    raw = call.extra.get("raw")
    arguments = raw if call.error is not None and isinstance(raw, str) else call.arguments
    return {"id": own, "type": "function", "function": {"name": call.name, "arguments": arguments}}


PLUGIN = Chat
