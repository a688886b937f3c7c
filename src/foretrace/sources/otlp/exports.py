"""Convert the exports of tracing tools that do not write OTLP (OpenAI's Agents SDK, Langfuse, LangSmith, MLflow) into
spans with OTel GenAI attributes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from foretrace.rows.base import Drop
from foretrace.sources.account import Account
from foretrace.sources.base import RowError
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
    read_objects,
)
from foretrace.sources.otlp.spans import Span, SpanKind, find_kind
from foretrace.sources.row_turns import find_reply
from foretrace.sources.turn_items import flatten_turns, is_turn

Record = dict[str, Any]
Keys = tuple[str, ...]
_OPERATIONS: dict[SpanKind, str] = {"model": "chat", "tool": "execute_tool", "agent": "invoke_agent", "other": "other"}


class _Tool(NamedTuple):
    """Where a tool writes the facts of a span; several keys are a path through nested objects."""

    name: str
    signs: tuple[str, ...]
    """Keys that all records of the tool have."""
    kinds: dict[str, SpanKind]
    kind: Keys
    ids: tuple[str, str, str]
    """Keys of the ids of the trace, the span and its parent."""
    times: tuple[str, str]
    label: Keys
    asked: Keys
    said: Keys
    model: Keys
    tools: Keys = ("",)
    error: Keys = ("error",)


_TOOLS = (
    _Tool(
        "OpenAI's Agents SDK", ("object", "span_data", "trace_id"),
        {"generation": "model", "response": "model", "function": "tool", "agent": "agent"}, ("span_data", "type"),
        ("trace_id", "id", "parent_id"), ("started_at", "ended_at"), ("span_data", "name"), ("span_data", "input"),
        ("span_data", "output"), ("span_data", "model"),
    ),
    _Tool(
        "Langfuse", ("traceId", "type", "startTime", "parentObservationId"),
        {"GENERATION": "model", "TOOL": "tool", "AGENT": "agent"}, ("type",),
        ("traceId", "id", "parentObservationId"), ("startTime", "endTime"), ("name",), ("input",), ("output",),
        ("model",), error=("statusMessage",),
    ),
    _Tool(
        "LangSmith", ("run_type", "trace_id", "inputs", "outputs"), {"llm": "model", "tool": "tool"}, ("run_type",),
        ("trace_id", "id", "parent_run_id"), ("start_time", "end_time"), ("name",), ("inputs",), ("outputs",),
        ("extra", "invocation_params", "model"), ("extra", "invocation_params", "tools"),
    ),
    _Tool(
        "MLflow", ("span_id", "trace_id", "attributes", "start_time_unix_nano"),
        {"LLM": "model", "CHAT_MODEL": "model", "TOOL": "tool", "AGENT": "agent"}, ("attributes", "mlflow.spanType"),
        ("trace_id", "span_id", "parent_span_id"), ("start_time_unix_nano", "end_time_unix_nano"), ("name",),
        ("attributes", "mlflow.spanInputs"), ("attributes", "mlflow.spanOutputs"),
        ("attributes", "mlflow.spanInputs", "model"),
    ),
)  # fmt: skip


def find_exporter(records: Iterable[Record]) -> str | None:
    """The name of the tool that wrote these records, or the spans in them; None if unknown."""
    found = (_find_tool(span) for record in records for span in _list_spans(record))
    return next((tool.name for tool in found if tool is not None), None)


def _find_tool(record: Record) -> _Tool | None:
    return next((tool for tool in _TOOLS if all(key in record for key in tool.signs)), None)


def _list_spans(record: Record) -> list[Record]:
    """The span records in a record: the record itself, or all spans of a trace that is one document."""
    if "observations" in record and "id" in record:
        return [{"traceId": record["id"], **each} for each in get_dicts(record, "observations")]
    spans = get_dicts(get_dict(record, "data"), "spans")
    return spans if spans and "info" in record else [record]


def read_exported(path: Path, account: Account) -> Iterator[Span | Drop]:
    """All spans of a file, ordered by start; before them a Drop for each record that cannot be read."""
    spans: dict[tuple[str, str], Span] = {}
    for value in read_objects(path):
        if isinstance(value, Drop):
            account.drop(value.reason)
            yield value
            continue
        for record in _list_spans(value):
            tool = _find_tool(record)
            span = None if tool is None else _make_span(tool, record)
            if span is None:
                account.ignore(get_text(record, "object", "type") or "record without a span")
            elif (span.trace_id, span.span_id) in spans:
                account.ignore("span that was exported twice")
            else:
                span.kind = find_kind(span)
                spans[span.trace_id, span.span_id] = span
    yield from sorted(spans.values(), key=lambda span: (span.start_ns, span.end_ns))


def _find(value: Any, keys: Keys) -> Any:
    """The value at a path of keys; JSON text on the way, and at the end, is decoded."""
    for key in keys:
        value = decode_quoted(decode_nested(as_dict(value).get(key)))
    return value


def _make_span(tool: _Tool, record: Record) -> Span:
    kind = tool.kinds.get(as_text(_find(record, tool.kind)), "other")
    asked, said, name = _find(record, tool.asked), _find(record, tool.said), as_text(_find(record, tool.label))
    attributes: dict[str, Any] = {"gen_ai.operation.name": _OPERATIONS[kind]}
    if kind == "model":
        attributes["gen_ai.input.messages"] = _list_messages(asked)
        attributes["gen_ai.output.messages"] = _list_replies(said)
        attributes["gen_ai.request.model"] = _find(record, tool.model)
        attributes["gen_ai.tool.definitions"] = as_dict(asked).get("tools") or _find(record, tool.tools)
    elif kind == "tool":
        held = as_dict(said)
        alone = held["output"] if held.keys() == {"output"} else held["content"] if held.get("type") == "tool" else said
        attributes |= {"gen_ai.tool.name": name, "gen_ai.tool.call.result": alone}
    error = _find(record, tool.error) if record.get("level", "ERROR") == "ERROR" else None
    trace_id, span_id, parent_id = (get_text(record, key) for key in tool.ids)
    begin, end = (_read_ns(record.get(key)) for key in tool.times)
    error = as_text(error) or "error" if error or record.get("level") == "ERROR" else None
    return Span(trace_id, span_id, parent_id, name, begin, end, attributes, {}, [], error)


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
        items = value.get("output")
        reply = find_reply(value)
        value = [reply] if reply is not None else items if isinstance(items, list) else [value]
    return [turn for turn in _unify(value) if turn.get("role") == "assistant"]


def _unify(turns: Any) -> list[Record]:
    """Messages of any vocabulary in OpenAI's format."""
    try:
        return [
            message for _, message in flatten_turns([(None, t) for t in as_dicts(turns) if is_turn(t)], (None, None))
        ]
    except RowError:
        return as_dicts(turns)
