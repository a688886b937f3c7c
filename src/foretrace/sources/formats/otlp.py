"""OpenTelemetry traces of agents as OTLP JSON: OTel GenAI in its several versions, and OpenInference.

A conversation is a chain of model calls: each repeats the history and adds to its end. Times come from the spans of
model calls and tools; the length of an agent's span is never added. Spans have messages only if their capture was
switched on; otherwise the conversation is a Drop, `content_not_captured`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from foretrace.core.digest import digest
from foretrace.core.errors import count_things
from foretrace.core.trace import Failure, Outcome, Parent, Sampled, Task, ToolCall, Trace
from foretrace.rows.base import Drop
from foretrace.rows.head import FileHead
from foretrace.sources.account import Account
from foretrace.sources.conversation import Conversation, write_time
from foretrace.sources.file_traces import finish_trace
from foretrace.sources.json_values import as_number, decode_json, write_text
from foretrace.sources.otlp.conversations import Conversations, Thread, ToolRun
from foretrace.sources.otlp.messages import Turn, read_messages, read_tools
from foretrace.sources.otlp.spans import Span, describe_spans, read_spans
from foretrace.sources.own_fields import FIELD

_SAMPLING = ("temperature", "top_p", "max_tokens", "seed")


class Otlp:
    """One trace for each conversation; its parent is the conversation that started it, if any."""

    name = "otlp"
    license: str | None = None

    def recognize(self, head: FileHead) -> str | None:
        """By a top-level key, or by the keys of another tool's spans."""
        return describe_spans(head.records[:5] or (head.first,))

    def read_traces(self, path: Path, account: Account) -> Iterator[Trace | Drop]:
        """All conversations of a file. Spans come in any order, so the whole file is held in memory."""
        spans: list[Span] = []
        for span in read_spans(path, account):
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


def _make_key(thread: Thread) -> str:
    return f"otlp@{thread.session or thread.trace_id}/{thread.first.span_id}"


def _make_trace(thread: Thread, found: Conversations, path: Path, account: Account) -> Trace | Drop:
    key, first, last = _make_key(thread), thread.first, thread.exchanges[-1]
    failed = [exchange.span.error for exchange in thread.exchanges if exchange.span.error is not None]
    silent = [exchange for exchange in thread.exchanges if exchange.reply is None and exchange.span.error is None]
    account.note("model calls whose content was not captured", len(silent))
    account.note("model calls that failed", len(failed))
    if not any(turn.role == "assistant" for turn in thread.turns):
        if failed and not silent:
            return Drop("failed_model_call", f"{key}: {failed[-1]}"[:300])
        return Drop(
            "content_not_captured",
            f"{key}: {count_things(len(silent), 'model call')}, and nothing that was said",
            ("have it captured: set OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT, or your library's switch",),
        )
    owner = found.find_owner(thread)
    own, behind = (  # what our own exports keep in an agent's span
        None if owner is None else decode_json(owner.attributes.get(f"{FIELD}.{name}"))
        for name in ("trace", "last_messages")
    )
    thread.turns += read_messages(behind or [])
    talk = Conversation(account, durations_from_stamps=False)
    talk.types["model calls"] = len(thread.exchanges)
    _Writer(talk, thread, found).write()
    above = found.find_parent(thread)
    error = last.span.error if last.reply is None else None
    sampling = {name: as_number(first.attributes.get(f"gen_ai.request.{name}")) for name in _SAMPLING}
    return finish_trace(
        talk,
        key=key,
        task=Task(id=digest(key), group=digest(thread.session or thread.trace_id)),
        path=path,
        raw_id=thread.trace_id,
        agent=_find_agent_name(owner, first),
        model=first.get_text("gen_ai.response.model", "gen_ai.request.model", "llm.model_name"),
        sampling={name: value for name, value in sampling.items() if value is not None},
        created_at=None if first.started is None else write_time(first.started),
        tools=next((tools for exchange in reversed(thread.exchanges) if (tools := read_tools(exchange.span))), ()),
        outcome=Outcome(status="error", error=Failure(kind="model_call", message=error)) if error else Outcome(),
        parent=Parent(key=_make_key(above[0]), call_id=above[1]) if above else None,
        extra={FIELD: own} if own else None,
    )


def _find_agent_name(owner: Span | None, first: Span) -> str | None:
    name = first.get_text("gen_ai.agent.name")
    if owner is not None:
        names = ("gen_ai.agent.name", "agent_name", "agent.name", "graph.node.id", "traceloop.entity.name")
        name = owner.get_text(*names) or name
    service = first.resource.get("service.name")
    is_named = isinstance(service, str) and not service.startswith("unknown_service")
    return name or (str(service) if is_named else "") or None


class _Writer:
    """Writes the turns of a conversation, with tool times, and results that only the tools' spans have."""

    def __init__(self, talk: Conversation, thread: Thread, found: Conversations) -> None:
        self._talk = talk
        self._thread = thread
        self._found = found
        self._open: dict[str, tuple[ToolCall, int]] = {}
        """Calls without a result so far, by id, and when the model was asked."""

    def write(self) -> None:
        for index, turn in enumerate(self._thread.turns):
            if turn.role == "tool":
                self._add_result(turn, index)
                continue
            if turn.role != "system":
                self._add_results_of_spans(index)
            if turn.role == "assistant":
                self._add_reply(turn, index)
            else:
                self._talk.add(turn.role, turn.text, index, parts=turn.parts, extra=turn.extra)
        self._add_results_of_spans(len(self._thread.turns))

    def _add_reply(self, turn: Turn, index: int) -> None:
        exchange, account = turn.exchange, self._talk.account
        calls = [
            msgspec.structs.replace(call, id=call.id or f"{index}.{number}") for number, call in enumerate(turn.calls)
        ]
        asked = 0 if exchange is None else exchange.span.start_ns
        self._open.update((call.id, (call, asked)) for call in calls)
        more: dict[str, Any] = {"extra": turn.extra}
        account.note("turns known only from the history", exchange is None)
        if exchange is not None:
            # A span with a reply but no input only reports a model call: its length is not that of the call.
            seconds = exchange.span.seconds if exchange.inputs else None
            more |= {"at": exchange.span.started, "seconds": seconds, "measured_by": "span"}
            more["sampled"] = Sampled(finish_reason=exchange.finish_reason, usage=exchange.usage)
            if exchange.is_cut:
                account.note("replies whose beginning is missing")
                more |= {"train": False, "extra": {**turn.extra, "is_cut": True}}
        self._talk.add_agent(index, text=turn.text, reasoning=turn.reasoning, calls=calls, parts=turn.parts, **more)

    def _add_result(self, turn: Turn, index: int) -> None:
        call_id, text = turn.call_id, turn.text
        if self._thread.has_new_only:  # our own exports are complete: an empty text is the result
            self._write_result(call_id, text, index, self._found.find_run(self._thread, call_id), turn)
            return
        if call_id not in self._open:
            named = (own for own, (call, _) in self._open.items() if not turn.tool or call.name == turn.tool)
            call_id = call_id or next(named, "")
        call, asked = self._open.pop(call_id, (None, 0))
        run = self._found.find_run(self._thread, call_id, call.name, asked) if call else None
        self._write_result(call_id, text or ("" if run is None else write_text(run.result)), index, run, turn)

    def _add_results_of_spans(self, index: int) -> None:
        """Add results that no later model call was sent, if the tools' spans have them."""
        for call_id, (call, asked) in [] if self._thread.has_new_only else list(self._open.items()):
            run = self._found.find_run(self._thread, call_id, call.name, asked)
            if run is not None and run.result is None and run.span.error is None:
                self._talk.account.note("results that were not captured")
            elif run is not None:
                del self._open[call_id]
                self._write_result(call_id, write_text(run.result) or run.span.error or "", index, run, Turn("tool"))

    def _write_result(self, call_id: str, text: str, index: int, run: ToolRun | None, turn: Turn) -> None:
        more: dict[str, Any] = {}
        if run is not None:
            more = {"at": run.span.started, "seconds": run.span.seconds, "measured_by": "span"}
            more["is_error"] = True if run.span.error is not None else None
        self._talk.add_result(call_id, text, index, parts=turn.parts, extra=turn.extra, **more)


PLUGIN = Otlp
