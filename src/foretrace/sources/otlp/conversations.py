"""Join the model calls of a file into conversations: each call repeats the history and adds to its end."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

import msgspec

from foretrace.sources.account import Account
from foretrace.sources.otlp.messages import Exchange, Turn, read_exchange, read_id
from foretrace.sources.otlp.spans import Span

_MAX_ANCESTORS = 200
_MAX_CANDIDATES = 32
"""How many of the latest conversations of a trace or session a model call is compared with."""
_RESULTS = (
    "gcp.vertex.agent.tool_response", "gen_ai.tool.call.result", "tool_response", "output.value",
    "traceloop.entity.output",
)  # fmt: skip
"""ADK's own copy comes first: its output.value is wrapped in the call."""
_CALL_IDS = ("gen_ai.tool.call.id", "tool_call.id", "tool.id")


class ToolRun(msgspec.Struct):
    """One run of a tool, as its span records it."""

    span: Span
    call_id: str
    name: str
    result: Any
    """None if it was not captured."""
    taken: bool = False


class Thread(msgspec.Struct):
    """One conversation: model calls that each continue the one before."""

    trace_id: str
    session: str
    owner: str
    """Id of the agent span around it; empty if there is none."""
    number: int
    """Position among the threads of the file."""
    exchanges: list[Exchange] = msgspec.field(default_factory=list[Exchange])
    turns: list[Turn] = msgspec.field(default_factory=list[Turn])
    call_ids: set[str] = msgspec.field(default_factory=set[str])

    @property
    def first(self) -> Span:
        return self.exchanges[0].span

    @property
    def has_new_only(self) -> bool:
        """Whether its model calls hold only new messages: see `Exchange`."""
        return self.exchanges[0].has_new_only

    def goes_on_with(self, exchange: Exchange, owner: str) -> bool:
        """Whether a model call continues this conversation: it repeats what was said or answers a call made here. If
        there is no history to compare, its trace decides."""
        inputs, is_same_trace = exchange.inputs, exchange.span.trace_id == self.trace_id
        if exchange.has_new_only or self.has_new_only:
            return exchange.has_new_only == self.has_new_only and owner == self.owner and is_same_trace
        if not inputs:
            return is_same_trace
        shared = self._count_shared(inputs)
        if self.turns and shared == len(self.turns):
            return True
        talk = next((turn for turn in inputs if turn.role != "system"), None)
        if talk is not None and (talk.call_id in self.call_ids or self._has_calls(talk)):
            return True
        # Some libraries leave out messages without text: here the last reply, whose call has a result.
        is_left_out = bool(self.turns) and bool(self.turns[-1].calls) and shared == len(self.turns) - 1 < len(inputs)
        if is_left_out and inputs[shared].role == "tool":
            return True
        last = next((turn for turn in reversed(self.turns) if turn.role == "assistant"), None)
        return last is not None and owner == self.owner and any(t.signature == last.signature for t in inputs)

    def _has_calls(self, turn: Turn) -> bool:
        """Whether a turn has calls, and the ids of all of them are known here."""
        return bool(turn.calls) and all(call.id in self.call_ids for call in turn.calls)

    def _count_shared(self, inputs: list[Turn]) -> int:
        """How many of the first turns are already known here, in this order."""
        for index, (turn, known) in enumerate(zip(inputs, self.turns, strict=False)):
            is_reply = known.exchange is not None and turn.role == "assistant"  # it may be written differently
            if not is_reply and turn.signature != known.signature:
                return index
        return min(len(inputs), len(self.turns))

    def add(self, exchange: Exchange) -> None:
        """Add the new messages that a model call was sent, and its reply."""
        new = exchange.inputs
        if not exchange.has_new_only:
            # The history may repeat a reply with several calls as one turn per call.
            new = [t for t in self._find_new(new) if not self._has_calls(t) and (t.role == "tool" or not t.is_empty)]
        new = [*new, *([] if exchange.reply is None else [exchange.reply])]
        self.turns += new
        self.exchanges.append(exchange)
        self.call_ids.update(call.id for turn in new for call in turn.calls if call.id)

    def _find_new(self, inputs: list[Turn]) -> list[Turn]:
        shared = self._count_shared(inputs)
        if shared in (len(self.turns), len(inputs)):
            return inputs[shared:]
        # The history was cut or summarized: what follows the last known turn is new.
        recent = [turn.signature for turn in self.turns[-4:]]
        known = [index for index, turn in enumerate(inputs) if turn.signature in recent]
        systems = {turn.signature for turn in self.turns if turn.role == "system"}
        return [turn for turn in inputs[known[-1] + 1 if known else shared :] if turn.signature not in systems]


class Conversations:
    """The conversations of a file, in the order of their first model calls, and its tool runs; counts every span."""

    def __init__(self, spans: list[Span], account: Account) -> None:
        self.threads: list[Thread] = []
        self.runs: list[ToolRun] = []
        self._spans = {span.key: span for span in spans}
        self._children: dict[tuple[str, str], list[Span]] = {}
        self._runs: dict[tuple[str, str, str], deque[ToolRun]] = {}
        """By trace, `call` or `tool`, and the call's id or the tool's name."""
        self._near: dict[str, list[Thread]] = {}
        """Threads by trace, and by session."""
        self._threads: dict[tuple[str, str], Thread] = {}
        """Threads by the spans of their model calls and agents."""
        for span in spans:
            self._children.setdefault((span.trace_id, span.parent_id), []).append(span)
        replies: dict[tuple[str, str], Span] = {}
        for span in spans:
            if span.kind == "model":
                self._take_exchange(span, replies, account)
            elif span.kind != "tool":
                account.ignore("agent span" if span.kind == "agent" else "span of another kind")
            elif self._is_reported_above(span):
                account.ignore("second span of one tool run")
            else:
                self._add_run(span)

    def find_owner(self, thread: Thread) -> Span | None:
        """The agent span around a conversation."""
        return self._spans.get((thread.trace_id, thread.owner))

    def find_run(self, thread: Thread, call_id: str, tool: str = "", since: int = 0) -> ToolRun | None:
        """Take the free run of a call in the traces of a conversation: by its id, else the first run of the tool since
        a time in nanoseconds that has not the id of another call."""
        traces = dict.fromkeys(exchange.span.trace_id for exchange in thread.exchanges)
        for what, name in (("call", call_id), ("tool", tool)):
            for trace_id in traces if name else ():
                waiting = self._runs.get((trace_id, what, name), deque())
                while waiting and waiting[0].taken:
                    waiting.popleft()
                for run in waiting:
                    is_free = what == "call" or (run.span.start_ns >= since and run.call_id not in thread.call_ids)
                    if is_free and not run.taken:
                        run.taken = True
                        return run
        return None

    def find_parent(self, thread: Thread) -> tuple[Thread, str | None] | None:
        """The conversation that started another one, and the id of the call that did it, if spans show it."""
        call_id: str | None = None
        for above in self._climb(thread.first):
            found = self._threads.get(above.key)
            if above.kind == "tool":
                call_id = _find_call_id(above) or None
                others = self._near.get(above.trace_id, ())
                found = next((other for other in others if other is not thread and call_id in other.call_ids), None)
            if found is not None and found is not thread and above.span_id != thread.owner:
                return found, call_id if call_id in found.call_ids else None
        return None

    def _climb(self, span: Span) -> Iterator[Span]:
        for _ in range(_MAX_ANCESTORS):
            above = self._spans.get((span.trace_id, span.parent_id))
            if above is None or above is span:
                return
            yield above
            span = above

    def _is_reported_above(self, span: Span) -> bool:
        """Whether an ancestor, with only spans of kind `other` in between, reports the same event."""
        return next((above.kind for above in self._climb(span) if above.kind != "other"), "") == span.kind

    def _add_run(self, span: Span) -> None:
        result = next((value for name in _RESULTS if (value := span.attributes.get(name)) is not None), None)
        tool = span.get_text("gen_ai.tool.name", "tool.name", "traceloop.entity.name") or span.name
        run = ToolRun(span, _find_call_id(span), tool, result)
        self.runs.append(run)
        for what, name in (("call", run.call_id), ("tool", run.name)):
            self._runs.setdefault((span.trace_id, what, name), deque()).append(run)

    def _take_exchange(self, span: Span, replies: dict[tuple[str, str], Span], account: Account) -> None:
        """Read a model call, unless another span reports the same one (two instrumentations at once)."""
        response = span.get_text("gen_ai.response.id")
        other = replies.get((span.trace_id, response)) if response else None
        overlaps = other is not None and span.start_ns < other.end_ns  # some give all calls of a run the same id
        if overlaps or self._is_reported_above(span):
            account.ignore("second span of one model call")
            return
        replies[span.trace_id, response] = span
        exchange = read_exchange(span)
        if exchange.reply is None:
            inner = (read_exchange(child) for child in self._children.get(span.key, ()) if child.kind == "model")
            exchange = next((found for found in inner if found.reply is not None), exchange)
            exchange.span = span
        account.use()
        account.note("alternative replies that were not kept", exchange.alternatives)
        self._place(exchange)

    def _place(self, exchange: Exchange) -> None:
        span = exchange.span
        owner = next((above.span_id for above in self._climb(span) if above.kind == "agent"), "")
        session = span.get_text("gen_ai.conversation.id", "session.id", "gen_ai.session.id")
        near = list(dict.fromkeys(name for name in (span.trace_id, session) if name))
        latest = [thread for name in near for thread in self._near.get(name, ())[-_MAX_CANDIDATES:]]
        latest.sort(key=lambda thread: thread.number, reverse=True)
        thread = next((thread for thread in latest if thread.goes_on_with(exchange, owner)), None)
        if thread is None:
            thread = Thread(span.trace_id, session, owner, len(self.threads))
            self.threads.append(thread)
            for name in near:
                self._near.setdefault(name, []).append(thread)
        thread.add(exchange)
        self._threads[span.key] = thread
        if owner:
            self._threads.setdefault((span.trace_id, owner), thread)


def _find_call_id(span: Span) -> str:
    return next((name for key in _CALL_IDS if (name := read_id(span.attributes.get(key)))), "")
