"""OpenTelemetry spans as OTLP JSON, in the GenAI conventions: a span for the agent, each model call and each tool run.

A model call's span has only the messages since the previous call, and marks this with `foretrace.input`: with the whole
history, lines would grow with the square of a conversation. Ids are digests of the trace's key, so they are the same in
each export. If a time is unknown, the span has no length. Anything without an attribute in the conventions is under
`foretrace`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from foretrace.core.trace import Message, Part, ToolCall, Trace
from foretrace.encodings.call_forms import find_call_ids
from foretrace.exports.base import Exported, Family, FieldCounts, TraceFormat, drop_numbers, list_parts, split_losses
from foretrace.rows.base import Drop
from foretrace.sources.conversation import read_time
from foretrace.sources.own_fields import FIELD, keep_message_fields, keep_trace_fields, normalize_object, write_tools

_CARRIED = frozenset({
    "traces.model", "traces.agent", "traces.parent", "traces.tools", "messages.reasoning", "messages.parts",
    "messages.finish_reason", "messages.usage", "messages.model_s", "messages.started", "results.tool_call_ids",
    "results.tool_s", "results.started", "results.prefix", "calls.id",
})  # fmt: skip
_INTERNAL, _CLIENT = 1, 3
_ERROR = 2


class Otlp(TraceFormat):
    """Read by viewers of OpenTelemetry's GenAI spans, and by the source `otlp`."""

    name = "otlp"
    holds_families = True

    def write(self, family: Family) -> Exported | Drop:
        if not any(message.author == "model" for message in family.trace.messages if message.role == "assistant"):
            return Drop("no_model_call")
        lost, kept = FieldCounts(), FieldCounts()
        for trace in family.list_traces():
            for counts, more in zip((lost, kept), split_losses(trace, _CARRIED), strict=True):
                counts.update(more)
            hidden = (m for m in trace.messages if m.role != "tool" and not all(map(_has_address, m.parts)))
            kept.update("messages.parts" for _ in hidden)
        groups = list(_make_groups(family, _make_id(family.trace.key, "", 16), ""))
        return Exported(data=msgspec.json.encode({"resourceSpans": groups}) + b"\n", lost=lost, kept=kept)


def _make_groups(family: Family, trace_id: str, parent: str) -> Iterator[dict[str, Any]]:
    trace = family.trace
    spans = _Spans(trace, trace_id, parent)
    yield {
        "resource": {"attributes": _make_attributes({"service.name": trace.provenance.agent or "foretrace"})},
        "scopeSpans": [{"scope": {"name": "foretrace"}, "spans": [spans.agent, *spans.inside]}],
    }
    for child in family.children:
        call_id = child.trace.parent.call_id if child.trace.parent else None
        yield from _make_groups(child, trace_id, spans.runs.get(call_id or "", spans.own))


class _Spans:
    def __init__(self, trace: Trace, trace_id: str, parent: str) -> None:
        self._trace = trace
        self._trace_id = trace_id
        self.own = _make_id(trace.key, "agent", 8)
        self.runs: dict[str, str] = {}
        self._new: list[dict[str, Any]] = []
        self._clock = (0, 0)
        """Start and end of the latest model call, ns; readers sort by them."""
        self.inside: list[dict[str, Any]] = []
        """All but the agent's."""
        calls: dict[str, ToolCall] = {}
        ids, answers = find_call_ids(trace.messages)
        for index, message in enumerate(trace.messages):
            own_ids, call_id = ids.get(index, ()), next(iter(answers.get(index, ())), "")
            calls.update(zip(own_ids, message.tool_calls, strict=True))
            self._new.append(_make_message(message, own_ids, call_id))
            if message.role == "assistant" and message.author == "model":
                self._add_model_call(index, message)
            if call_id:
                self._add_tool_run(index, message, calls.get(call_id) or ToolCall(id=call_id), call_id)
        times = [int(span["startTimeUnixNano"]) for span in self.inside if span["startTimeUnixNano"] != "0"]
        end = max((int(span["endTimeUnixNano"]) for span in self.inside), default=0)
        self.agent = self._make_span(
            self.own, parent, "invoke_agent", trace.provenance.agent, _INTERNAL, (min(times, default=0), end),
            {
                "gen_ai.agent.name": trace.provenance.agent,
                "gen_ai.conversation.id": trace.key,
                f"{FIELD}.trace": _write(keep_trace_fields(trace)),
                f"{FIELD}.last_messages": _write(self._new) if self._new else None,
            },
        )  # fmt: skip

    def _add_model_call(self, index: int, message: Message) -> None:
        trace, reply = self._trace, self._new.pop()
        usage = message.sampled.usage if message.sampled else None
        reason = message.sampled.finish_reason if message.sampled else None
        reply = {**reply, "finish_reason": reason or ("tool_call" if message.tool_calls else "stop")}
        is_first = not any(span["kind"] == _CLIENT for span in self.inside)
        attributes: dict[str, Any] = {
            "gen_ai.request.model": trace.provenance.model,
            "gen_ai.conversation.id": trace.key,
            "gen_ai.usage.input_tokens": usage.prompt_tokens if usage else None,
            "gen_ai.usage.output_tokens": usage.completion_tokens if usage else None,
            "gen_ai.response.finish_reasons": [reason] if reason else None,
            f"{FIELD}.input": "new",
            "gen_ai.input.messages": _write(self._new),
            "gen_ai.output.messages": _write([reply]),
            "gen_ai.tool.definitions": _write(write_tools(trace)) if trace.tools and is_first else None,
        }
        self._new = []
        start, end = _find_times(message, message.model_s)
        if start == 0 or (start, end) < self._clock:
            start = end = self._clock[1]
        self._clock = start, end
        own = _make_id(trace.key, str(index), 8)
        model = trace.provenance.model
        self.inside.append(self._make_span(own, self.own, "chat", model, _CLIENT, self._clock, attributes))

    def _add_tool_run(self, index: int, message: Message, call: ToolCall, call_id: str) -> None:
        times = _find_times(message, message.tool_s)
        own = self.runs[call_id] = _make_id(self._trace.key, str(index), 8)
        attributes = {
            "gen_ai.tool.name": call.name,
            "gen_ai.tool.call.id": call_id,
            "gen_ai.tool.call.arguments": call.arguments,
            "gen_ai.tool.call.result": message.prefix + message.content,
        }
        times = times if times[0] else (self._clock[1], self._clock[1])
        span = self._make_span(own, self.own, "execute_tool", call.name, _INTERNAL, times, attributes)
        self.inside.append({**span, "status": {"code": _ERROR}} if message.is_error else span)

    def _make_span(
        self, own: str, parent: str, operation: str, what: str | None, kind: int, times: tuple[int, int],
        attributes: dict[str, Any],
    ) -> dict[str, Any]:  # fmt: skip
        start, end = map(str, times)
        return {
            "traceId": self._trace_id, "spanId": own, **({"parentSpanId": parent} if parent else {}),
            "name": f"{operation} {what}" if what else operation, "kind": kind,
            "startTimeUnixNano": start, "endTimeUnixNano": end,
            "attributes": _make_attributes({"gen_ai.operation.name": operation, **attributes}),
        }  # fmt: skip


def _make_message(message: Message, ids: Sequence[str], call_id: str) -> dict[str, Any]:
    text = message.prefix + message.content
    if message.role == "tool":
        parts: list[dict[str, Any]] = [{"type": "tool_call_response", "id": call_id, "response": text}]
    else:
        parts = list_parts(
            text,
            filter(_has_address, message.parts),
            lambda part: {"type": "uri", "modality": part.type, "mime_type": part.media_type, "uri": part.ref},
            key="content",
        )
    if message.role == "assistant":
        if message.reasoning:
            parts.append({"type": "reasoning", "content": message.reasoning})
        parts += [_make_call(call, own) for call, own in zip(message.tool_calls, ids, strict=True)]
    return {"role": message.role, "parts": parts, FIELD: keep_message_fields(drop_numbers(message))}


def _has_address(part: Part) -> bool:
    return bool(part.ref) and not str(part.ref).startswith("data:")


def _make_call(call: ToolCall, own_id: str) -> dict[str, Any]:
    arguments = msgspec.Raw((normalize_object(call.arguments) or "{}").encode())
    return {"type": "tool_call", "id": own_id, "name": call.name, "arguments": arguments}


def _find_times(message: Message, seconds: float | None) -> tuple[int, int]:
    """Start and end in nanoseconds since 1970; equal if one is unknown, and zero if both are."""
    at = None if message.started is None else read_time(message.started)
    start = 0 if at is None else round(at * 1e9)
    return start, start + (round(seconds * 1e9) if start and seconds is not None else 0)


def _make_id(key: str, part: str, size: int) -> str:
    return hashlib.blake2b(f"{key}\0{part}".encode(), digest_size=size).hexdigest()


def _write(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _make_attributes(values: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"key": name, "value": _make_value(value)} for name, value in values.items() if value is not None]


def _make_value(value: Any) -> dict[str, Any]:
    if isinstance(value, list):
        items: Iterable[Any] = value
        return {"arrayValue": {"values": [_make_value(item) for item in items]}}
    return {"intValue": str(value)} if isinstance(value, int) else {"stringValue": str(value)}


PLUGIN = Otlp
