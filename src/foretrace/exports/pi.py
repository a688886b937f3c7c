"""Sessions in Pi's format, one file per trace: the Hub and its `datasets` library read these as agent traces."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from foretrace.core.trace import Message, Trace
from foretrace.encodings.call_forms import CallForm, find_call_ids, merge_spans
from foretrace.exports.base import Exported, Family, FieldCounts, TraceFormat, find_losses
from foretrace.exports.chat import make_text
from foretrace.sources.conversation import read_time
from foretrace.sources.formats.pi import AVAILABLE_TOOLS
from foretrace.sources.json_values import decode_json
from foretrace.sources.own_fields import write_tools

_CARRIED = frozenset({
    "traces.key", "traces.model", "traces.tools", "messages.reasoning", "messages.started", "messages.continues",
    "results.tool_call_ids", "results.is_error", "results.prefix", "results.started", "calls.id", "calls.span",
})  # fmt: skip


class Pi(TraceFormat):
    """Read by the Hub's trace viewer, by `datasets` (with `teich`), and by the source `pi`."""

    name = "pi"
    suffix: str | None = ".jsonl"
    call_forms: Sequence[CallForm] = ("native", "verbatim", "xml")

    def write(self, family: Family) -> Exported:
        trace = family.trace
        entries = list(_list_entries(trace))
        data = b"".join(msgspec.json.encode(entry) + b"\n" for entry in entries)
        users = sum(entry["type"] == "message" and entry["message"]["role"] == "user" for entry in entries)
        roles = users - sum(message.role == "user" for message in trace.messages)  # results without a call
        return Exported(data=data, lost=find_losses(trace, _CARRIED) + FieldCounts({"results.role": roles}))


def _list_entries(trace: Trace) -> Iterator[dict[str, Any]]:
    """The session, its model and tools, then its messages: each entry refers to the one before it."""
    created = trace.provenance.created_at or next((m.started for m in trace.messages if m.started), None)
    yield {"type": "session", "version": 3, "id": trace.key, "timestamp": _write_time(created), "cwd": "/"}
    entries: list[dict[str, Any]] = []
    if trace.provenance.model is not None:
        entries.append({"type": "model_change", "modelId": trace.provenance.model})
    if trace.tools:
        entries.append({"type": "custom", "customType": AVAILABLE_TOOLS, "data": {"tools": write_tools(trace)}})
    messages = merge_spans(trace.messages)
    ids, answers = find_call_ids(messages)
    tools = {
        own: call.name for i, m in enumerate(messages) for own, call in zip(ids.get(i, ()), m.tool_calls, strict=False)
    }
    for index, message in enumerate(messages):
        at = _write_time(message.started)
        for made in _make_messages(message, ids.get(index, ()), answers.get(index, ()), tools, trace.provenance.model):
            entries.append({"type": "message", "timestamp": at, "message": made})
    for place, entry in enumerate(entries):
        yield {**entry, "id": f"{place + 1:08x}", "parentId": f"{place:08x}" if place else None}


def _write_time(stamp: str | None) -> str | None:
    at = read_time(stamp)
    if at is None:
        return None
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _make_messages(
    message: Message, ids: Sequence[str], answers: Sequence[str], tools: dict[str, str], model: str | None
) -> Iterator[dict[str, Any]]:
    """The message in Pi's form; a result of several calls is repeated for each."""
    if message.role == "tool":
        content = [{"type": "text", "text": message.prefix + message.content}]
        failed = message.is_error is True
        for own in answers:
            name = tools.get(own, "")
            yield {"role": "toolResult", "toolCallId": own, "toolName": name, "content": content, "isError": failed}
        if not answers:  # Pi has no results without a call
            yield {"role": "user", "content": content}
        return
    text = make_text(msgspec.structs.replace(message, parts=()))
    blocks: list[dict[str, Any]] = [{"type": "text", "text": text}] if text else []
    if message.role != "assistant":
        yield {"role": message.role, "content": blocks}
        return
    if message.reasoning:
        blocks.insert(0, {"type": "thinking", "thinking": message.reasoning})
    for own, call in zip(ids, message.tool_calls, strict=False):
        decoded = decode_json(call.arguments)
        given = decoded if isinstance(decoded, dict) else {"arguments": call.arguments}
        blocks.append({"type": "toolCall", "id": own, "name": call.name, "arguments": given})
    yield {"role": "assistant", "content": blocks, **({} if model is None else {"model": model})}


PLUGIN = Pi
