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
from foretrace.exports.base import (
    Exported,
    Family,
    FieldCounts,
    TraceFormat,
    drop_numbers,
    split_at_parts,
    split_losses,
)
from foretrace.rows.base import Drop
from foretrace.sources.conversation import read_time
from foretrace.sources.own_fields import (
    FIELD,
    keep_message_fields,
    keep_trace_fields,
    normalize_object,
    write_tools,
)

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
        """One line of spans; a conversation without model calls gives none."""
        if not _has_model_call(family.trace):
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
    """The spans of a trace and of those that it started, each trace's as a resource of its own."""
    trace = family.trace
    writer = _Spans(trace, trace_id, parent)
    writer.write()
    yield {
        "resource": {"attributes": _make_attributes({"service.name": trace.provenance.agent or "foretrace"})},
        "scopeSpans": [{"scope": {"name": "foretrace"}, "spans": writer.spans}],
    }
    for child in family.children:
        call_id = child.trace.parent.call_id if child.trace.parent else None
        yield from _make_groups(child, trace_id, writer.find_tool_span(call_id))


def _has_model_call(trace: Trace) -> bool:
    return any(m.role == "assistant" and m.author == "model" for m in trace.messages)


class _Spans:
    """The spans of one trace."""

    def __init__(self, trace: Trace, trace_id: str, parent: str) -> None:
        self._trace = trace
        self._trace_id = trace_id
        self._own = _make_id(trace.key, "agent", 8)
        self._parent = parent
        self._model = trace.provenance.model
        self._calls: dict[str, ToolCall] = {}
        self._runs: dict[str, str] = {}
        """The span of each tool run, by call id."""
        self._new: list[dict[str, Any]] = []
        """Messages since the last model call."""
        self._clock = (0, 0)
        """Start and end of the latest model call, ns; readers sort by them."""
        self.spans: list[dict[str, Any]] = []

    def write(self) -> None:
        ids, answers = find_call_ids(self._trace.messages)
        for index, message in enumerate(self._trace.messages):
            own_ids, call_id = ids.get(index, ()), next(iter(answers.get(index, ())), "")
            made = self._make_message(message, own_ids, call_id)
            self._calls.update(zip(own_ids, message.tool_calls, strict=True))
            if message.role == "assistant" and message.author == "model":
                self._add_model_call(index, message, made)
            else:
                self._new.append(made)
            if call_id:
                self._add_tool_run(index, message, call_id)
        self.spans.insert(0, self._make_agent_span())

    def find_tool_span(self, call_id: str | None) -> str:
        """The parent span of what a call started: its tool run, or else the agent."""
        return self._runs.get(call_id or "", self._own)

    def _make_agent_span(self) -> dict[str, Any]:
        name = self._trace.provenance.agent
        times = [int(span["startTimeUnixNano"]) for span in self.spans if span["startTimeUnixNano"] != "0"]
        attributes: dict[str, Any] = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": name,
            "gen_ai.conversation.id": self._trace.key,
            f"{FIELD}.trace": msgspec.json.encode(keep_trace_fields(self._trace)).decode(),
        }
        if self._new:
            attributes[f"{FIELD}.last_messages"] = msgspec.json.encode(self._new).decode()
        end = max((int(span["endTimeUnixNano"]) for span in self.spans), default=0)
        return self._make_span(
            self._own, self._parent, f"invoke_agent {name}" if name else "invoke_agent", _INTERNAL,
            (min(times, default=0), end), attributes,
        )  # fmt: skip

    def _add_model_call(self, index: int, message: Message, made: dict[str, Any]) -> None:
        sampled = message.sampled
        usage = sampled.usage if sampled else None
        reason = sampled.finish_reason if sampled else None
        reply = {**made, "finish_reason": reason or ("tool_call" if message.tool_calls else "stop")}
        attributes: dict[str, Any] = {
            "gen_ai.operation.name": "chat",
            "gen_ai.request.model": self._model,
            "gen_ai.conversation.id": self._trace.key,
            "gen_ai.usage.input_tokens": usage.prompt_tokens if usage else None,
            "gen_ai.usage.output_tokens": usage.completion_tokens if usage else None,
            "gen_ai.response.finish_reasons": [reason] if reason else None,
            f"{FIELD}.input": "new",
            "gen_ai.input.messages": msgspec.json.encode(self._new).decode(),
            "gen_ai.output.messages": msgspec.json.encode([reply]).decode(),
        }
        if self._trace.tools and not any(span["kind"] == _CLIENT for span in self.spans):
            attributes["gen_ai.tool.definitions"] = msgspec.json.encode(write_tools(self._trace)).decode()
        self._new = []
        start, end = _find_times(message, message.model_s)
        if start == 0 or (start, end) < self._clock:
            start = end = self._clock[1]
        self._clock = start, end
        name = f"chat {self._model}" if self._model else "chat"
        own = _make_id(self._trace.key, str(index), 8)
        self.spans.append(self._make_span(own, self._own, name, _CLIENT, (start, end), attributes))

    def _add_tool_run(self, index: int, message: Message, call_id: str) -> None:
        call = self._calls.get(call_id) or ToolCall(id=call_id)
        start, end = _find_times(message, message.tool_s)
        if start == 0:
            start = end = self._clock[1]
        own = self._runs[call_id] = _make_id(self._trace.key, str(index), 8)
        attributes: dict[str, Any] = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": call.name,
            "gen_ai.tool.call.id": call_id,
            "gen_ai.tool.call.arguments": call.arguments,
            "gen_ai.tool.call.result": message.prefix + message.content,
        }
        span = self._make_span(own, self._own, f"execute_tool {call.name}", _INTERNAL, (start, end), attributes)
        if message.is_error:
            span["status"] = {"code": _ERROR}
        self.spans.append(span)

    def _make_span(
        self, own: str, parent: str, name: str, kind: int, times: tuple[int, int], attributes: dict[str, Any]
    ) -> dict[str, Any]:
        span: dict[str, Any] = {"traceId": self._trace_id, "spanId": own}
        if parent:
            span["parentSpanId"] = parent
        start, end = map(str, times)
        return span | {
            "name": name, "kind": kind, "startTimeUnixNano": start, "endTimeUnixNano": end,
            "attributes": _make_attributes(attributes),
        }  # fmt: skip

    def _make_message(self, message: Message, ids: Sequence[str], call_id: str) -> dict[str, Any]:
        text = message.prefix + message.content
        if message.role == "tool":
            parts: list[dict[str, Any]] = [{"type": "tool_call_response", "id": call_id, "response": text}]
        else:
            parts = [*map(_make_part, split_at_parts(text, filter(_has_address, message.parts)))]
        if message.role == "assistant":
            if message.reasoning:
                parts.append({"type": "reasoning", "content": message.reasoning})
            parts += [_make_call(call, own) for call, own in zip(message.tool_calls, ids, strict=True)]
        kept = keep_message_fields(drop_numbers(message), call_ids=ids)
        return {"role": message.role, "parts": parts, FIELD: kept}


def _has_address(part: Part) -> bool:
    return bool(part.ref) and not str(part.ref).startswith("data:")


def _make_part(piece: str | Part) -> dict[str, Any]:
    if isinstance(piece, str):
        return {"type": "text", "content": piece}
    return {"type": "uri", "modality": piece.type, "mime_type": piece.media_type, "uri": piece.ref}


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


def _make_attributes(values: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"key": name, "value": _make_value(value)} for name, value in values.items() if value is not None]


def _make_value(value: Any) -> dict[str, Any]:
    if isinstance(value, list):
        items: Iterable[Any] = value
        return {"arrayValue": {"values": [_make_value(item) for item in items]}}
    return {"intValue": str(value)} if isinstance(value, int) else {"stringValue": str(value)}


PLUGIN = Otlp
