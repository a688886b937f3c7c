"""Read spans of OTLP JSON, and the log records that belong to them, as plain values."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec

from foretrace.rows.base import Drop
from foretrace.sources.account import Account
from foretrace.sources.json_values import as_count, as_dict, as_dicts, as_text, read_objects

SpanKind = Literal["model", "tool", "agent", "other"]
_MODEL_OPERATIONS = frozenset({"chat", "text_completion", "generate_content", "completion"})
_AGENT_OPERATIONS = frozenset({"invoke_agent", "create_agent", "invoke_workflow"})
_OPENINFERENCE: dict[str, SpanKind] = {"LLM": "model", "TOOL": "tool", "AGENT": "agent"}
_TRACELOOP: dict[str, SpanKind] = {"tool": "tool", "agent": "agent"}
_MODEL_SIGNS = ("gen_ai.output.messages", "gen_ai.response.finish_reasons", "gen_ai.response.model")
"""Attributes that only model calls have, for spans that do not name their operation."""
_MAX_DEPTH = 32
_ERROR = 2


class SpanEvent(msgspec.Struct, frozen=True):
    """An event of a span, or a log record that names the span."""

    name: str
    values: dict[str, Any]
    """Its attributes, overridden by the fields of its body."""


class Span(msgspec.Struct):
    """One span of a trace."""

    trace_id: str
    span_id: str
    parent_id: str
    name: str
    start_ns: int
    end_ns: int
    attributes: dict[str, Any]
    resource: dict[str, Any]
    events: list[SpanEvent]
    error: str | None = None
    """The error message, if the span failed."""
    kind: SpanKind = "other"

    @property
    def seconds(self) -> float | None:
        """How long it took; None if unknown, or if the clock was too coarse to measure it."""
        return round((self.end_ns - self.start_ns) / 1e9, 9) if self.end_ns > self.start_ns > 0 else None

    @property
    def started(self) -> float | None:
        """When it started, in seconds since 1970; None if unknown."""
        return self.start_ns / 1e9 if self.start_ns > 0 else None

    def get_text(self, *names: str) -> str:
        """The first of these attributes that has text; empty if none has."""
        return next((text for name in names if (text := as_text(self.attributes.get(name)))), "")


def read_spans(path: Path, account: Account) -> Iterator[Span | Drop]:
    """All spans of a file, ordered by start; before them a Drop for each record that cannot be read."""
    spans: dict[tuple[str, str], Span] = {}
    logs: list[dict[str, Any]] = []
    for value in read_objects(path):
        if isinstance(value, Drop):
            account.drop(value.reason)
            yield value
            continue
        groups = _get(value, "resourceSpans", "resource_spans"), _get(value, "resourceLogs", "resource_logs")
        if groups == (None, None):
            account.meet_unknown("+".join(sorted(value)[:3]) or "empty object")
        for resource in as_dicts(groups[0]):
            _collect_spans(resource, spans, account)
        for resource in as_dicts(groups[1]):
            for scope in as_dicts(_get(resource, "scopeLogs", "scope_logs")):
                logs += as_dicts(_get(scope, "logRecords", "log_records"))
    for log in logs:
        _attach_log(log, spans, account)
    for span in spans.values():
        span.kind = find_kind(span)
    yield from sorted(spans.values(), key=lambda span: (span.start_ns, span.end_ns))


def _collect_spans(resource: dict[str, Any], spans: dict[tuple[str, str], Span], account: Account) -> None:
    about = decode_attributes(as_dict(resource.get("resource")).get("attributes"))
    for scope in as_dicts(_get(resource, "scopeSpans", "scope_spans", "instrumentationLibrarySpans")):
        for raw in as_dicts(scope.get("spans")):
            span = _make_span(raw, about)
            if not span.span_id:
                account.drop("span_without_id")
            elif (span.trace_id, span.span_id) in spans:
                account.ignore("span that was exported twice")
            else:
                spans[span.trace_id, span.span_id] = span


def _make_span(raw: dict[str, Any], resource: dict[str, Any]) -> Span:
    status = as_dict(raw.get("status"))
    failed = status.get("code") in (_ERROR, str(_ERROR), "STATUS_CODE_ERROR")
    return Span(
        trace_id=as_text(_get(raw, "traceId", "trace_id")),
        span_id=as_text(_get(raw, "spanId", "span_id")),
        parent_id=as_text(_get(raw, "parentSpanId", "parent_span_id")),
        name=as_text(raw.get("name")),
        start_ns=as_count(_get(raw, "startTimeUnixNano", "start_time_unix_nano")) or 0,
        end_ns=as_count(_get(raw, "endTimeUnixNano", "end_time_unix_nano")) or 0,
        attributes=decode_attributes(raw.get("attributes")),
        resource=resource,
        events=[
            SpanEvent(as_text(event.get("name")), decode_attributes(event.get("attributes")))
            for event in as_dicts(raw.get("events"))
        ],
        error=(as_text(status.get("message")) or "error") if failed else None,
    )


def _attach_log(log: dict[str, Any], spans: dict[tuple[str, str], Span], account: Account) -> None:
    """Make a log record an event of its span: some instrumentations write messages only there."""
    attributes, body = decode_attributes(log.get("attributes")), decode_value(log.get("body"))
    name = as_text(_get(log, "eventName", "event_name")) or as_text(attributes.get("event.name"))
    span = spans.get((as_text(_get(log, "traceId", "trace_id")), as_text(_get(log, "spanId", "span_id"))))
    if not name.startswith("gen_ai."):
        account.ignore("log record of another kind")
    elif span is None:
        account.drop("log_without_span")
    else:
        account.use()
        span.events.append(SpanEvent(name, {**attributes, **as_dict(body)}))


def find_kind(span: Span) -> SpanKind:
    """What a span reports, as its attributes and name tell."""
    names = span.attributes
    operation = span.get_text("gen_ai.operation.name")
    if operation in _MODEL_OPERATIONS:
        return "model"
    if operation == "execute_tool":
        return "tool"
    if operation in _AGENT_OPERATIONS:
        return "agent"
    kind = names.get("openinference.span.kind") or names.get("traceloop.span.kind")
    if isinstance(kind, str) and (known := _OPENINFERENCE.get(kind) or _TRACELOOP.get(kind)):
        return known
    if "llm.request.type" in names or any(name.startswith(("gen_ai.prompt", "gen_ai.completion")) for name in names):
        return "model"
    if "gen_ai.tool.name" in names or "gen_ai.tool.call.id" in names:
        return "tool"
    if "gen_ai.agent.name" in names or "agent_name" in names or span.name.startswith("invoke_agent"):
        return "agent"
    says_model = not operation and any(name in names for name in _MODEL_SIGNS)
    return "model" if says_model else "other"


def decode_attributes(value: Any) -> dict[str, Any]:
    """Attributes as a mapping; if two have the same name, the last one counts."""
    return {str(item.get("key")): decode_value(item.get("value")) for item in as_dicts(value)}


def decode_value(value: Any, depth: int = 0) -> Any:
    """A typed OTLP value as a plain one; OTLP writes whole numbers as text."""
    if not isinstance(value, dict) or depth > _MAX_DEPTH:
        return None if isinstance(value, dict) else value
    kind, inner = next(iter(value.items()), ("", None))
    if kind in ("intValue", "int_value"):
        number = as_count(inner.removeprefix("-") if isinstance(inner, str) else inner)
        return -number if number is not None and str(inner).startswith("-") else number
    if kind in ("arrayValue", "array_value"):
        items = as_dict(inner).get("values")
        return [decode_value(item, depth + 1) for item in items] if isinstance(items, list) else []
    if kind in ("kvlistValue", "kvlist_value"):
        pairs = as_dicts(as_dict(inner).get("values"))
        return {str(pair.get("key")): decode_value(pair.get("value"), depth + 1) for pair in pairs}
    return inner


def _get(value: dict[str, Any], *names: str) -> Any:
    return next((value[name] for name in names if name in value), None)
