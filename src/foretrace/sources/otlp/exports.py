"""Spans as other tracing tools export them, made into spans with the attributes of OTel GenAI: OpenAI's Agents SDK,
Langfuse, LangSmith, MLflow, Weave, and tables of Phoenix."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from foretrace.rows.base import Drop
from foretrace.sources.account import Account
from foretrace.sources.base import RowError
from foretrace.sources.conversation import read_time
from foretrace.sources.json_values import (
    as_count,
    as_dict,
    as_dicts,
    as_text,
    decode_json,
    get_dict,
    get_dicts,
    get_text,
    read_objects,
)
from foretrace.sources.otlp.spans import Span, SpanKind, find_kind
from foretrace.sources.row_turns import find_reply
from foretrace.sources.turn_items import flatten_turns, is_turn

Record = dict[str, Any]
_OPERATIONS: dict[SpanKind, str] = {"model": "chat", "tool": "execute_tool", "agent": "invoke_agent", "other": "other"}
_UNTOLD = "is_any_function"
"""Attribute of a span that may be of any function: one that calls others is not a tool."""
_LANGFUSE: dict[str, SpanKind] = {"GENERATION": "model", "TOOL": "tool", "AGENT": "agent"}
_LANGSMITH: dict[str, SpanKind] = {"llm": "model", "tool": "tool"}
_PHOENIX: dict[str, SpanKind] = {"LLM": "model", "TOOL": "tool", "AGENT": "agent"}
_MLFLOW: dict[str, SpanKind] = {**_PHOENIX, "CHAT_MODEL": "model"}
_AGENTS: dict[str, SpanKind] = {"generation": "model", "response": "model", "function": "tool", "agent": "agent"}


def find_exporter(records: Iterable[Record]) -> str | None:
    """Which tool wrote these records, or the spans in them."""
    found = (_find_reader(span) for record in records for span in list_spans(record))
    return next((each[0] for each in found if each is not None), None)


def _find_reader(record: Record) -> tuple[str, Callable[[Record], Span]] | None:
    for name, keys, prefix, read in _TOOLS:
        attributes = get_dict(record, "attributes") if prefix else {"": None}
        if all(key in record for key in keys) and any(key.startswith(prefix) for key in attributes):
            return name, read
    return None


def list_spans(record: Record) -> list[Record]:
    """The records of the spans that a record holds: itself, or those of a whole trace in one document."""
    if "observations" in record and "id" in record:
        return [{"traceId": record["id"], **each} for each in get_dicts(record, "observations")]
    spans = get_dicts(get_dict(record, "data"), "spans")
    return spans if spans and "info" in record else [record]


def read_exported(path: Path, account: Account) -> Iterator[Span | Drop]:
    """All spans of a file, in the order of their start; records that cannot be read first, as Drops."""
    spans: dict[tuple[str, str], Span] = {}
    for value in read_objects(path):
        if isinstance(value, Drop):
            account.drop(value.reason)
            yield value
            continue
        for record in list_spans(value):
            found = _find_reader(record)
            span = None if found is None else found[1](record)
            if span is None:
                account.ignore(get_text(record, "object", "type") or "record without a span")
            elif (span.trace_id, span.span_id) in spans:
                account.ignore("span that was exported twice")
            else:
                span.kind = find_kind(span)
                spans[span.trace_id, span.span_id] = span
    parents = {span.parent_id for span in spans.values()}
    for span in spans.values():
        if _UNTOLD in span.attributes and span.span_id in parents:
            span.kind = "other"
    yield from sorted(spans.values(), key=lambda span: (span.start_ns, span.end_ns))


def _make(
    ids: tuple[Any, Any, Any], times: tuple[Any, Any], name: str, kind: SpanKind, asked: Any, said: Any, **more: Any
) -> Span:
    attributes: dict[str, Any] = {"gen_ai.operation.name": _OPERATIONS[kind], **more.pop("attributes", {})}
    if kind == "model":
        attributes["gen_ai.input.messages"] = _list_messages(asked)
        attributes["gen_ai.output.messages"] = _list_replies(said)
        if (model := more.pop("model", None)) and isinstance(model, str):
            attributes["gen_ai.request.model"] = model
        attributes["gen_ai.tool.definitions"] = as_dict(asked).get("tools") or more.pop("tools", None)
    elif kind == "tool":
        attributes["gen_ai.tool.name"] = name
        attributes["gen_ai.tool.call.result"] = _read_result(said)
    error = more.get("error")
    begin, end = (_read_ns(value) for value in times)
    trace_id, span_id, parent_id = (as_text(value) for value in ids)
    return Span(
        trace_id, span_id, parent_id, name, begin, end, attributes, {}, [], as_text(error) or "error" if error else None
    )


def _read_ns(value: Any) -> int:
    if (count := as_count(value)) is not None and count > 10**15:
        return count
    seconds = read_time(value)
    return 0 if seconds is None else round(seconds * 1e9)


def _open_json(value: Any) -> Any:
    """A JSON text as what it holds, an empty one as nothing; any other value as it is."""
    opened = decode_json(value) if isinstance(value, str) and value[:1] in "{[" else value
    return value if opened is None and value else opened


def _read_result(value: Any) -> Any:
    value = _open_json(value)
    held = as_dict(value)
    return held["output"] if held.keys() == {"output"} else held["content"] if held.get("type") == "tool" else value


def _list_messages(value: Any) -> list[Record]:
    """The messages that a model was sent: a list, a body that holds one, or a text."""
    value = _open_json(value)
    if isinstance(value, dict):
        value = next((value[key] for key in ("messages", "input", "contents") if value.get(key)), value)
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], list):
        value = value[0]
    if isinstance(value, str):
        return [{"role": "user", "content": value}]
    return _unify(as_dicts(value))


def _list_replies(value: Any) -> list[Record]:
    """What a model replied: the body of a response, a message, several, or a text."""
    value = _open_json(value)
    if isinstance(value, str):
        return [{"role": "assistant", "content": value}]
    if isinstance(value, dict):
        items = value.get("output")
        reply = find_reply(value)
        value = [reply] if reply is not None else items if isinstance(items, list) else [value]
    return [turn for turn in _unify(as_dicts(value)) if turn.get("role") == "assistant"]


def _unify(turns: list[Record]) -> list[Record]:
    """Messages of any vocabulary as OpenAI writes them, with what OpenInference nests opened."""
    opened = [as_dict(turn.get("message")) or turn for turn in map(_nest, turns)]
    try:
        return [
            _plain(message) for _, message in flatten_turns([(None, t) for t in opened if is_turn(t)], (None, None))
        ]
    except RowError:
        return opened


def _plain(message: Record) -> Record:
    """The message with calls as `tool_calls` have them, from OpenInference's envelopes too."""
    calls = [as_dict(call.get("tool_call")) or call for call in as_dicts(message.get("tool_calls"))]
    role = {"human": "user", "ai": "assistant"}.get(as_text(message.get("role")), message.get("role"))
    return {**message, "role": role, **({"tool_calls": calls} if calls else {})}


def _nest(value: Any) -> Any:
    """Keys with dots as objects within objects."""
    if isinstance(value, list):
        return [_nest(item) for item in value]
    if not isinstance(value, dict):
        return value
    found: dict[str, Any] = {}
    for key, inner in value.items():
        *above, last = str(key).split(".")
        place = found
        for name in above:
            place = place.setdefault(name, {})
            if not isinstance(place, dict):
                return value
        place[last] = _nest(inner)
    return found


def _read_agents_sdk(record: Record) -> Span:
    data = get_dict(record, "span_data")
    kind = _AGENTS.get(get_text(data, "type"), "other")
    ids = record.get("trace_id"), record.get("id"), record.get("parent_id")
    times = record.get("started_at"), record.get("ended_at")
    return _make(
        ids, times, get_text(data, "name") or get_text(data, "type"), kind, data.get("input"), data.get("output"),
        model=data.get("model"), error=record.get("error"),
    )  # fmt: skip


def _read_langfuse(record: Record) -> Span:
    kind = _LANGFUSE.get(get_text(record, "type"), "other")
    ids = record.get("traceId"), record.get("id"), record.get("parentObservationId")
    times = record.get("startTime"), record.get("endTime")
    failed = record.get("level") == "ERROR"
    return _make(
        ids, times, get_text(record, "name"), kind, record.get("input"), record.get("output"),
        model=record.get("model"), error=record.get("statusMessage") or "error" if failed else None,
    )  # fmt: skip


def _read_langsmith(record: Record) -> Span:
    kind = _LANGSMITH.get(get_text(record, "run_type"), "other")
    ids = record.get("trace_id"), record.get("id"), record.get("parent_run_id")
    offered = get_dict(get_dict(record, "extra"), "invocation_params")
    return _make(
        ids, (record.get("start_time"), record.get("end_time")), get_text(record, "name"), kind,
        record.get("inputs"), record.get("outputs"), error=record.get("error"),
        model=offered.get("model"), tools=offered.get("tools"),
    )  # fmt: skip


def _read_weave(record: Record) -> Span:
    op = get_text(record, "op_name").rsplit("/", 1)[-1].partition(":")[0]
    asked, said = record.get("inputs"), record.get("output")
    is_model = isinstance(as_dict(asked).get("messages"), list) and bool(_list_replies(said))
    ids = record.get("trace_id"), record.get("id"), record.get("parent_id")
    times = record.get("started_at"), record.get("ended_at")
    kind: SpanKind = "model" if is_model else "tool"
    model = as_dict(asked).get("model")
    return _make(
        ids, times, op, kind, asked, said, model=model, error=record.get("exception"), attributes={_UNTOLD: True}
    )


def _read_mlflow(record: Record) -> Span:
    attributes = get_dict(record, "attributes")
    held = {name: decode_json(value) if isinstance(value, str) else value for name, value in attributes.items()}
    kind = _MLFLOW.get(as_text(held.get("mlflow.spanType")), "other")
    ids = record.get("trace_id"), record.get("span_id"), record.get("parent_span_id") or record.get("parent_id")
    times = (
        record.get("start_time_unix_nano", record.get("start_time_ns")),
        record.get("end_time_unix_nano", record.get("end_time_ns")),
    )
    asked, said = held.get("mlflow.spanInputs"), held.get("mlflow.spanOutputs")
    return _make(ids, times, get_text(record, "name"), kind, asked, said, model=as_dict(asked).get("model"))


def _read_phoenix(record: Record) -> Span:
    held = {name.removeprefix("attributes."): value for name, value in record.items() if name.startswith("attributes.")}
    kind = _PHOENIX.get(get_text(record, "span_kind") or as_text(held.get("openinference.span.kind")), "other")
    ids = record.get("context.trace_id"), record.get("context.span_id"), record.get("parent_id")
    times = record.get("start_time"), record.get("end_time")
    asked = held.get("llm.input_messages") or held.get("input.value")
    said = held.get("llm.output_messages") or held.get("output.value")
    name = as_text(held.get("tool.name")) or get_text(record, "name")
    return _make(ids, times, name, kind, asked, said, model=held.get("llm.model_name"))


_TOOLS: tuple[tuple[str, tuple[str, ...], str, Callable[[Record], Span]], ...] = (
    ("OpenAI's Agents SDK", ("object", "span_data", "trace_id"), "", _read_agents_sdk),
    ("Langfuse", ("traceId", "type", "startTime", "parentObservationId"), "", _read_langfuse),
    ("LangSmith", ("run_type", "trace_id", "inputs", "outputs"), "", _read_langsmith),
    ("Weave", ("op_name", "trace_id", "inputs", "output"), "", _read_weave),
    ("MLflow", ("span_id", "trace_id", "attributes", "name"), "mlflow.", _read_mlflow),
    ("Phoenix", ("context.trace_id", "context.span_id"), "", _read_phoenix),
)
"""Each tool, the keys that its records have, the beginning of an attribute that only they have, and what reads them."""
