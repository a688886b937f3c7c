"""OpenTelemetry traces of agents as OTLP JSON: OTel GenAI in its several versions, and OpenInference.

A conversation is a chain of model calls: each repeats the history and adds to its end. Times come from the spans of
model calls and tools; the length of an agent's span is never added. Spans have messages only if their capture was
switched on; otherwise the conversation is a Drop, `content_not_captured`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from foretrace.core.digest import digest
from foretrace.core.trace import Failure, Outcome, Parent, Sampled, Task, ToolCall, Trace
from foretrace.rows.base import Drop
from foretrace.rows.head import FileHead, read_head
from foretrace.sources.account import Account
from foretrace.sources.conversation import Conversation
from foretrace.sources.file_traces import finish_trace
from foretrace.sources.json_values import as_number, decode_json, write_text
from foretrace.sources.otlp.conversations import Conversations, Entry, Thread, ToolRun
from foretrace.sources.otlp.exports import find_exporter, read_exported
from foretrace.sources.otlp.messages import Exchange, Turn, read_messages, read_tools
from foretrace.sources.otlp.spans import Span, read_spans
from foretrace.sources.own_fields import FIELD

_ROOTS = ("resourceSpans", "resource_spans", "resourceLogs", "resource_logs")
_SAMPLING = {
    "temperature": "gen_ai.request.temperature", "top_p": "gen_ai.request.top_p",
    "max_tokens": "gen_ai.request.max_tokens", "seed": "gen_ai.request.seed",
}  # fmt: skip
_OWN = ("trace", "last_messages")
"""What our own exports keep in an agent's span."""


class Otlp:
    """One trace for each conversation; its parent is the conversation that started it, if any."""

    name = "otlp"
    license: str | None = None

    def recognize(self, head: FileHead) -> str | None:
        """By a top-level key, or by the keys of another tool's spans."""
        found = next((root for root in _ROOTS if isinstance(head.first.get(root), list)), None)
        if found:
            return f"holds {found}"
        exporter = _find_exporter(head)
        return f"spans as {exporter} exports them" if exporter else None

    def read_traces(self, path: Path, account: Account) -> Iterator[Trace | Drop]:
        """All conversations of a file. Spans come in any order, so the whole file is held in memory."""
        spans: list[Span] = []
        read = read_exported if _find_exporter(read_head(path)) else read_spans
        for span in read(path, account):
            if isinstance(span, Drop):
                yield span
            else:
                spans.append(span)
        found = Conversations(spans, account)
        if spans and not found.threads:
            kinds = Counter(span.name[:40] for span in spans).most_common(5)
            met = ", ".join(f"{count} {name!r}" for name, count in kinds)
            yield Drop("no_agent_turn", f"no span of a model call among {len(spans)} ({met})")
        for thread in found.threads:
            yield _make_trace(thread, found, path, account)
        for run in found.runs:
            account.use() if run.taken else account.ignore("tool span without a call that is known")


def _find_exporter(head: FileHead) -> str | None:
    return find_exporter(head.records[:5] or (head.first,))


def _make_key(thread: Thread) -> str:
    return f"otlp@{thread.session or thread.trace_id}/{thread.first.span_id}"


def _make_trace(thread: Thread, found: Conversations, path: Path, account: Account) -> Trace | Drop:
    key, first = _make_key(thread), thread.first
    failed = [exchange for exchange in thread.exchanges if exchange.span.error is not None]
    silent = [e for e in thread.exchanges if e.reply is None and e.span.error is None]
    account.note("model calls whose content was not captured", len(silent))
    account.note("model calls that failed", len(failed))
    if not any(entry.turn.role == "assistant" for entry in thread.entries):
        if failed and not silent:
            return Drop("failed_model_call", f"{key}: {failed[-1].span.error}"[:300])
        return Drop(
            "content_not_captured",
            f"{key}: {len(silent)} model calls, and nothing that was said",
            ("have it captured: set OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT, or your library's switch",),
        )
    owner = found.tree.get(thread.trace_id, thread.owner)
    own = {} if owner is None else {name: decode_json(owner.attributes.get(f"{FIELD}.{name}")) for name in _OWN}
    thread.entries += [Entry(turn) for turn in read_messages(own.get("last_messages") or [])]
    talk = Conversation(account, durations_from_stamps=False)
    _Writer(talk, thread, found, account).write()
    above = found.find_parent(thread)
    ended_badly = thread.exchanges[-1].span.error if thread.exchanges[-1].reply is None else None
    outcome = (
        Outcome(status="error", error=Failure(kind="model_call", message=ended_badly)) if ended_badly else Outcome()
    )
    return finish_trace(
        talk,
        key=key,
        task=Task(id=digest(key), group=digest(thread.session or thread.trace_id)),
        path=path,
        raw_id=thread.trace_id,
        agent=_find_agent_name(owner, first),
        model=first.get_text("gen_ai.response.model", "gen_ai.request.model", "llm.model_name"),
        sampling={k: v for k, name in _SAMPLING.items() if (v := as_number(first.attributes.get(name))) is not None},
        created_at=None if first.started is None else datetime.fromtimestamp(first.started, UTC).isoformat(),
        met={"model calls": len(thread.exchanges)},
        tools=next((tools for e in reversed(thread.exchanges) if (tools := read_tools(e.span))), ()),
        outcome=outcome,
        parent=Parent(key=_make_key(above[0]), call_id=above[1]) if above else None,
        extra={FIELD: own["trace"]} if own.get("trace") else None,
    )


def _find_agent_name(owner: Span | None, first: Span) -> str | None:
    name = ""
    if owner is not None:
        name = owner.get_text("gen_ai.agent.name", "agent_name", "agent.name", "graph.node.id", "traceloop.entity.name")
    service = first.resource.get("service.name")
    is_named = isinstance(service, str) and not service.startswith("unknown_service")
    return name or first.get_text("gen_ai.agent.name") or (str(service) if is_named else "") or None


class _Writer:
    """Writes the entries of a conversation, with tool times, and results that only the tools' spans have."""

    def __init__(self, talk: Conversation, thread: Thread, found: Conversations, account: Account) -> None:
        self._talk = talk
        self._thread = thread
        self._found = found
        self._traces = list(dict.fromkeys(exchange.span.trace_id for exchange in thread.exchanges))
        self._account = account
        self._open: dict[str, tuple[ToolCall, Exchange | None]] = {}
        """Calls without a result so far, by id."""

    def write(self) -> None:
        for index, entry in enumerate(self._thread.entries):
            turn = entry.turn
            if turn.role == "assistant":
                self._add_results_of_spans(index)
                self._add_reply(entry, index)
            elif turn.role == "tool":
                self._add_result(turn, index)
            elif turn.role == "system":
                self._talk.add_system(turn.text, index, parts=turn.parts, extra=turn.extra)
            else:
                self._add_results_of_spans(index)
                self._talk.add_user(turn.text, index, parts=turn.parts, extra=turn.extra)
        self._add_results_of_spans(len(self._thread.entries))

    def _add_reply(self, entry: Entry, index: int) -> None:
        turn, exchange = entry.turn, entry.exchange
        calls = list[ToolCall]()
        for number, call in enumerate(turn.calls):
            call_id = call.id or f"{index}.{number}"
            calls.append(ToolCall(
                id=call_id, name=call.name, arguments=call.arguments, repairs=call.repairs, error=call.error,
                extra=call.extra,
            ))  # fmt: skip
            self._open[call_id] = (calls[-1], exchange)
        more: dict[str, Any] = {"extra": turn.extra}
        if exchange is not None:
            span = exchange.span
            # A span with a reply but no input only reports a model call: its length is not that of the call.
            seconds = span.seconds if exchange.inputs else None
            more |= {"at": span.started, "seconds": seconds, "measured_by": "span"}
            if exchange.is_cut:
                self._account.note("replies whose beginning is missing")
                more |= {"train": False, "extra": {**turn.extra, "is_cut": True}}
            more["sampled"] = Sampled(finish_reason=exchange.finish_reason, usage=exchange.usage)
        else:
            self._account.note("turns known only from the history")
        self._talk.add_agent(index, text=turn.text, reasoning=turn.reasoning, calls=calls, parts=turn.parts, **more)

    def _add_result(self, turn: Turn, index: int) -> None:
        call_id = turn.call_id
        if self._thread.has_new_only:  # our own exports are complete: an empty text is the result
            self._write_result(call_id, turn.text, index, self._found.take_run(self._traces, "call", call_id), turn)
            return
        if call_id not in self._open:
            named = (i for i, (call, _) in self._open.items() if not turn.tool or call.name == turn.tool)
            call_id = turn.call_id or next(named, "")
        waiting = self._open.pop(call_id, None)
        run = self._find_run(call_id, *waiting) if waiting else None
        text = turn.text
        if not text and run is not None:
            text = write_text(run.result)
        self._write_result(call_id, text, index, run, turn)

    def _add_results_of_spans(self, index: int) -> None:
        """Add results that no later model call was sent, if the tools' spans have them."""
        if self._thread.has_new_only:
            return
        for call_id, (call, exchange) in list(self._open.items()):
            run = self._find_run(call_id, call, exchange)
            if run is None:
                continue
            if run.result is None and run.span.error is None:
                self._account.note("results that were not captured")
                continue
            del self._open[call_id]
            self._write_result(call_id, write_text(run.result) or run.span.error or "", index, run, Turn("tool"))

    def _write_result(self, call_id: str, text: str, index: int, run: ToolRun | None, turn: Turn) -> None:
        more: dict[str, Any] = {}
        if run is not None:
            more = {"at": run.span.started, "seconds": run.span.seconds, "measured_by": "span"}
            more["is_error"] = True if run.span.error is not None else None
        self._talk.add_result(call_id, text, index, parts=turn.parts, extra=turn.extra, **more)

    def _find_run(self, call_id: str, call: ToolCall, exchange: Exchange | None) -> ToolRun | None:
        """The run of a call: by its id, else the first run of the tool since the model asked for it."""
        run = self._found.take_run(self._traces, "call", call_id)
        if run is None:
            since = exchange.span.start_ns if exchange is not None else 0
            others = self._thread.call_ids
            run = self._found.take_run(self._traces, "tool", call.name, since=since, avoid=others)
        return run


PLUGIN = Otlp
