"""Read spans as plain values: of OTLP JSON, with the log records that belong to them, and as the tools export them that
do not write OTLP (OpenAI's Agents SDK, Langfuse, LangSmith, MLflow), with the attributes of OTel GenAI."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from foretrace.rows.base import Drop
from foretrace.rows.head import read_objects
from foretrace.sources.account import Account
from foretrace.sources.conversation import read_time
from foretrace.sources.json_values import (
    as_count,
    as_dict,
    as_dicts,
    as_text,
    decode_nested,
    decode_quoted,
    get_dict,
    get_dicts,
    get_text,
)
from foretrace.sources.row_turns import find_reply
from foretrace.sources.turn_items import flatten_turns, is_turn

Record = dict[str, Any]
SpanKind = Literal["model", "tool", "agent", "other"]
_OPERATIONS: dict[str, SpanKind] = {
    **dict.fromkeys(("chat", "text_completion", "generate_content", "completion"), "model"),
    **dict.fromkeys(("invoke_agent", "create_agent", "invoke_workflow"), "agent"), "execute_tool": "tool",
}  # fmt: skip
_KINDS: dict[str, SpanKind] = {"LLM": "model", "TOOL": "tool", "AGENT": "agent", "tool": "tool", "agent": "agent"}
"""OpenInference's in capitals, Traceloop's in small letters."""
_SIGNS: tuple[tuple[SpanKind, re.Pattern[str]], ...] = (
    ("model", re.compile(r"llm\.request\.type|gen_ai\.(?:prompt|completion)\b.*")),
    ("tool", re.compile(r"gen_ai\.tool\.(?:name|call\.id)")),
    ("agent", re.compile(r"gen_ai\.agent\.name|agent_name")),
    ("model", re.compile(r"gen_ai\.(?:output\.messages|response\.finish_reasons|response\.model)")),
)
"""Attributes of a kind, for spans that name neither their operation nor their kind."""
_MAX_DEPTH = 32
_ROOTS = ("resourceSpans", "resourceLogs")


class Span(msgspec.Struct):
    """One span of a trace."""

    trace_id: str
    span_id: str
    parent_id: str
    name: str
    start_ns: int
    end_ns: int
    attributes: Record
    resource: Record
    error: str | None = None
    """The error message, if the span failed."""
    events: list[tuple[str, Record]] = msgspec.field(default_factory=list[tuple[str, Record]])
    """Names and values of its events, and of the log records that name it."""
    kind: SpanKind = "other"

    @property
    def key(self) -> tuple[str, str]:
        """Identifies it among all spans."""
        return self.trace_id, self.span_id

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


def describe_spans(records: Iterable[Record]) -> str | None:
    """What kind of spans these records of a file are; None if they are none."""
    for record in records:
        for root in _ROOTS:
            if isinstance(record.get(root), list):
                return f"holds {root}"
        if tool := next(filter(None, map(_find_tool, _list_exported(record))), None):
            return f"spans as {tool.name} exports them"
    return None


def read_spans(path: Path, account: Account) -> Iterator[Span | Drop]:
    """All spans of a file, ordered by start; before them a Drop for each record that cannot be read."""
    spans: dict[tuple[str, str], Span] = {}
    logs: list[Record] = []
    for value in read_objects(path):
        if isinstance(value, Drop):
            account.drop(value.reason)
            yield value
        elif any(root in value for root in _ROOTS):
            for resource in get_dicts(value, "resourceSpans"):
                about = _decode_attributes(get_dict(resource, "resource").get("attributes"))
                for scope in get_dicts(resource, "scopeSpans"):
                    for raw in get_dicts(scope, "spans"):
                        _add_span(spans, _decode_span(raw, about), account)
            for resource in get_dicts(value, "resourceLogs"):
                for scope in get_dicts(resource, "scopeLogs"):
                    logs += get_dicts(scope, "logRecords")
        else:
            for record in _list_exported(value):
                if tool := _find_tool(record):
                    _add_span(spans, _convert_span(tool, record), account)
                elif kind := get_text(record, "object", "type"):
                    account.ignore(kind)
                else:
                    account.meet_unknown("+".join(sorted(record)[:3]) or "empty object")
    for log in logs:
        _attach_log(log, spans, account)
    for span in spans.values():
        span.kind = _find_kind(span)
    yield from sorted(spans.values(), key=lambda span: (span.start_ns, span.end_ns))


def _add_span(spans: dict[tuple[str, str], Span], span: Span, account: Account) -> None:
    if not span.span_id:
        account.drop("span_without_id")
    elif span.key in spans:
        account.ignore("span that was exported twice")
    else:
        spans[span.key] = span


def _find_kind(span: Span) -> SpanKind:
    """What a span reports, as its attributes and name tell."""
    operation = span.get_text("gen_ai.operation.name")
    named = span.get_text("openinference.span.kind") or span.get_text("traceloop.span.kind")
    if known := _OPERATIONS.get(operation) or _KINDS.get(named):
        return known
    for kind, sign in _SIGNS[:3] if operation else _SIGNS:
        if any(map(sign.fullmatch, span.attributes)) or (kind == "agent" and span.name.startswith("invoke_agent")):
            return kind
    return "other"


def _decode_span(raw: Record, resource: Record) -> Span:
    status = get_dict(raw, "status")
    failed = status.get("code") in (2, "2", "STATUS_CODE_ERROR")
    return Span(
        *(get_text(raw, name) for name in ("traceId", "spanId", "parentSpanId")),
        name=as_text(raw.get("name")),
        start_ns=as_count(raw.get("startTimeUnixNano")) or 0,
        end_ns=as_count(raw.get("endTimeUnixNano")) or 0,
        attributes=_decode_attributes(raw.get("attributes")),
        resource=resource,
        error=(get_text(status, "message") or "error") if failed else None,
        events=[(get_text(e, "name"), _decode_attributes(e.get("attributes"))) for e in get_dicts(raw, "events")],
    )


def _attach_log(log: Record, spans: dict[tuple[str, str], Span], account: Account) -> None:
    """Make a log record an event of its span: some instrumentations write messages only there."""
    attributes, body = _decode_attributes(log.get("attributes")), _decode_value(log.get("body"))
    name = get_text(log, "eventName") or get_text(attributes, "event.name")
    span = spans.get((get_text(log, "traceId"), get_text(log, "spanId")))
    if not name.startswith("gen_ai."):
        account.ignore("log record of another kind")
    elif span is None:
        account.drop("log_without_span")
    else:
        account.use()
        span.events.append((name, {**attributes, **as_dict(body)}))


def _decode_attributes(value: Any) -> Record:
    """Attributes as a mapping; if two have the same name, the last one counts."""
    return {str(item.get("key")): _decode_value(item.get("value")) for item in as_dicts(value)}


def _decode_value(value: Any, depth: int = 0) -> Any:
    """A typed OTLP value as a plain one; OTLP writes whole numbers as text."""
    if not isinstance(value, dict) or depth > _MAX_DEPTH:
        return None if isinstance(value, dict) else value
    kind, inner = next(iter(value.items()), ("", None))
    values = as_dict(inner).get("values")
    if kind == "intValue":
        number = as_count(inner.removeprefix("-") if isinstance(inner, str) else inner)
        return -number if number is not None and str(inner).startswith("-") else number
    if kind == "arrayValue":
        return [_decode_value(item, depth + 1) for item in values] if isinstance(values, list) else []
    if kind == "kvlistValue":
        return {str(pair.get("key")): _decode_value(pair.get("value"), depth + 1) for pair in as_dicts(values)}
    return inner


class _Tool(NamedTuple):
    """Where a tool writes the facts of a span; dots separate the keys of nested objects."""

    name: str
    signs: str
    """Keys that all records of the tool have."""
    kinds: dict[str, str]
    """Its kinds of spans, and the operations that they are."""
    kind: str
    ids: str
    """Keys of the ids of the trace, the span and its parent."""
    times: str
    label: str
    asked: str
    said: str
    model: str
    error: str = "error"


_TOOLS = (
    _Tool(
        "OpenAI's Agents SDK", "object span_data trace_id",
        {"generation": "chat", "response": "chat", "function": "execute_tool", "agent": "invoke_agent"},
        "span_data/type", "trace_id id parent_id", "started_at ended_at", "span_data/name", "span_data/input",
        "span_data/output", "span_data/model",
    ),
    _Tool(
        "Langfuse", "traceId type startTime parentObservationId",
        {"GENERATION": "chat", "TOOL": "execute_tool", "AGENT": "invoke_agent"}, "type",
        "traceId id parentObservationId", "startTime endTime", "name", "input", "output", "model", "statusMessage",
    ),
    _Tool(
        "LangSmith", "run_type trace_id inputs outputs", {"llm": "chat", "tool": "execute_tool"}, "run_type",
        "trace_id id parent_run_id", "start_time end_time", "name", "inputs", "outputs",
        "extra/invocation_params/model",
    ),
    _Tool(
        "MLflow", "span_id trace_id attributes start_time_unix_nano",
        {"LLM": "chat", "CHAT_MODEL": "chat", "TOOL": "execute_tool", "AGENT": "invoke_agent"},
        "attributes/mlflow.spanType", "trace_id span_id parent_span_id", "start_time_unix_nano end_time_unix_nano",
        "name", "attributes/mlflow.spanInputs", "attributes/mlflow.spanOutputs", "attributes/mlflow.spanInputs/model",
    ),
)  # fmt: skip


def _find_tool(record: Record) -> _Tool | None:
    return next((tool for tool in _TOOLS if record.keys() >= {*tool.signs.split()}), None)


def _list_exported(record: Record) -> list[Record]:
    """The span records in a record: the record itself, or all spans of a trace that is one document."""
    if "observations" in record and "id" in record:
        return [{"traceId": record["id"], **each} for each in get_dicts(record, "observations")]
    spans = get_dicts(get_dict(record, "data"), "spans")
    return spans if spans and "info" in record else [record]


def _find(value: Any, path: str) -> Any:
    """The value at a path of keys; JSON text on the way, and at the end, is decoded."""
    for key in path.split("/"):
        value = decode_quoted(decode_nested(as_dict(value).get(key)))
    return value


def _convert_span(tool: _Tool, record: Record) -> Span:
    operation = tool.kinds.get(as_text(_find(record, tool.kind)), "other")
    asked, said, name = _find(record, tool.asked), _find(record, tool.said), as_text(_find(record, tool.label))
    attributes: Record = {"gen_ai.operation.name": operation}
    if operation == "chat":
        attributes["gen_ai.input.messages"] = _list_messages(asked)
        attributes["gen_ai.output.messages"] = _list_replies(said)
        attributes["gen_ai.request.model"] = _find(record, tool.model)
        tools = as_dict(asked).get("tools") or _find(record, "extra/invocation_params/tools")
        attributes["gen_ai.tool.definitions"] = tools
    elif operation == "execute_tool":
        held = as_dict(said)
        alone = held["output"] if held.keys() == {"output"} else held["content"] if held.get("type") == "tool" else said
        attributes |= {"gen_ai.tool.name": name, "gen_ai.tool.call.result": alone}
    error = _find(record, tool.error)
    level = record.get("level", "ERROR" if error else None)
    begin, end = (_read_ns(record.get(key)) for key in tool.times.split())
    return Span(
        *(get_text(record, key) for key in tool.ids.split()),
        name=name,
        start_ns=begin,
        end_ns=end,
        attributes=attributes,
        resource={},
        error=(as_text(error) or "error") if level == "ERROR" else None,
    )


def _read_ns(value: Any) -> int:
    if (count := as_count(value)) is not None and count > 10**15:
        return count
    seconds = read_time(value)
    return 0 if seconds is None else round(seconds * 1e9)


def _list_messages(value: Any) -> list[Record]:
    """The messages sent to a model, from a list, a request body with a list, or a text."""
    if isinstance(value, dict):
        value = next((value[key] for key in ("messages", "input", "contents") if value.get(key)), value)
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], list):
        value = value[0]
    return [{"role": "user", "content": value}] if isinstance(value, str) else _unify(value)


def _list_replies(value: Any) -> list[Record]:
    """The model's replies, from a response body, one or several messages, or a text."""
    if isinstance(value, str):
        return [{"role": "assistant", "content": value}]
    if isinstance(value, dict):
        reply = find_reply(value)
        items = value.get("output")
        value = [reply] if reply is not None else items if isinstance(items, list) else [value]
    return [turn for turn in _unify(value) if turn.get("role") == "assistant"]


def _unify(turns: Any) -> list[Record]:
    """Messages of any vocabulary in OpenAI's format."""
    return [message for _, message in flatten_turns((None, turn) for turn in as_dicts(turns) if is_turn(turn))]
