"""Join the model calls of a file into conversations: each call repeats the history and adds to its end."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, Literal

import msgspec

from foretrace.sources.account import Account
from foretrace.sources.otlp.messages import Exchange, Turn, read_exchange, read_id
from foretrace.sources.otlp.spans import Span

_MAX_ANCESTORS = 200
_NONE: set[str] = set()
_MAX_CANDIDATES = 32
"""How many of the latest conversations of a trace or session a model call is compared with."""
_RESULTS = (
    "gcp.vertex.agent.tool_response", "gen_ai.tool.call.result", "tool_response", "output.value",
    "traceloop.entity.output",
)  # fmt: skip
_CALL_IDS = ("gen_ai.tool.call.id", "tool_call.id", "tool.id")


class ToolRun(msgspec.Struct):
    """One run of a tool, as its span records it."""

    span: Span
    call_id: str
    name: str
    result: Any
    """None if it was not captured."""
    taken: bool = False


class Entry(msgspec.Struct):
    """A turn of a conversation, and its origin."""

    turn: Turn
    exchange: Exchange | None = None
    """The model call that gave a reply; None for a turn that is only known from the history of a later call."""


class Thread(msgspec.Struct):
    """One conversation: model calls that each continue the one before."""

    trace_id: str
    session: str
    owner: str
    """Id of the agent span around it; empty if there is none."""
    exchanges: list[Exchange] = msgspec.field(default_factory=list[Exchange])
    entries: list[Entry] = msgspec.field(default_factory=list[Entry])
    call_ids: set[str] = msgspec.field(default_factory=set[str])
    number: int = 0
    """Position among the threads of the file."""

    @property
    def first(self) -> Span:
        """The span of its first model call."""
        return self.exchanges[0].span

    @property
    def has_new_only(self) -> bool:
        """Whether its model calls hold only new messages: see `Exchange`."""
        return bool(self.exchanges) and self.exchanges[0].has_new_only

    def goes_on_with(self, exchange: Exchange, owner: str) -> bool:
        """Whether a model call continues this conversation: it repeats what was said or answers a call made here. If
        there is no history to compare, its trace decides."""
        inputs = exchange.inputs
        if exchange.has_new_only or self.has_new_only:
            is_same = owner == self.owner and exchange.span.trace_id == self.trace_id
            return is_same and exchange.has_new_only == self.has_new_only
        if not inputs:
            return exchange.span.trace_id == self.trace_id
        known = self.entries
        shared = self.count_shared(inputs)
        if known and shared == len(known):
            return True
        talk = next((turn for turn in inputs if turn.role != "system"), None)
        if talk is not None and (talk.call_id in self.call_ids or self._has_calls(talk)):
            return True
        if self._answers_last_reply(inputs, shared):
            return True
        last = next((e.turn for e in reversed(known) if e.turn.role == "assistant"), None)
        return last is not None and owner == self.owner and any(t.signature == last.signature for t in inputs)

    def _answers_last_reply(self, inputs: list[Turn], shared: int) -> bool:
        """Whether the input of a model call lacks the last reply, which called a tool, but has the tool's result: some
        libraries leave out messages without text."""
        reply = self.entries[-1].turn if self.entries else None
        is_left_out = reply is not None and bool(reply.calls) and shared == len(self.entries) - 1 < len(inputs)
        return is_left_out and inputs[shared].role == "tool"

    def _has_calls(self, turn: Turn) -> bool:
        """Whether a turn has calls, and the ids of all of them are known here."""
        return bool(turn.calls) and all(call.id in self.call_ids for call in turn.calls)

    def count_shared(self, inputs: list[Turn]) -> int:
        """How many of the first turns are already known here, in this order."""
        for index, (turn, entry) in enumerate(zip(inputs, self.entries, strict=False)):
            is_reply = entry.exchange is not None and turn.role == "assistant"  # it may be written differently
            if not is_reply and turn.signature != entry.turn.signature:
                return index
        return min(len(inputs), len(self.entries))

    def add(self, exchange: Exchange) -> None:
        """Add the new messages that a model call was sent, and its reply."""
        new = exchange.inputs
        if not exchange.has_new_only:
            # The history may repeat a reply with several calls as one turn per call.
            found = self._find_new(new)
            new = [t for t in found if not self._has_calls(t) and (t.role == "tool" or not t.is_empty)]
        self.entries += [Entry(turn) for turn in new]
        self.exchanges.append(exchange)
        for turn in new:
            self.call_ids.update(call.id for call in turn.calls if call.id)
        if exchange.reply is not None:
            self.entries.append(Entry(exchange.reply, exchange))
            self.call_ids.update(call.id for call in exchange.reply.calls if call.id)

    def _find_new(self, inputs: list[Turn]) -> list[Turn]:
        if not self.entries:
            return inputs
        shared = self.count_shared(inputs)
        if shared in (len(self.entries), len(inputs)):
            return inputs[shared:]
        # The history was cut or summarized: what follows the last known turn is new.
        recent = [entry.turn.signature for entry in self.entries[-4:]]
        known = [index for index, turn in enumerate(inputs) if turn.signature in recent]
        start = known[-1] + 1 if known else shared
        systems = {e.turn.signature for e in self.entries if e.turn.role == "system"}
        return [turn for turn in inputs[start:] if turn.signature not in systems]


class Conversations:
    """The conversations of a file, in the order of their first model calls, and its tool runs; counts every span."""

    def __init__(self, spans: list[Span], account: Account) -> None:
        self.threads: list[Thread] = []
        self.tree = SpanTree(spans)
        self.runs: list[ToolRun] = []
        self._runs: dict[tuple[str, str, str], deque[ToolRun]] = {}
        """By trace, `call` or `tool`, and the call's id or the tool's name."""
        self._near: dict[str, list[Thread]] = {}
        """Threads by trace, and by session."""
        self._spans: dict[tuple[str, str], Thread] = {}
        """Threads by the spans of their model calls and agents."""
        replies: dict[tuple[str, str], Span] = {}
        for span in spans:
            if span.kind == "tool":
                if self.tree.find_same_kind_above(span) is not None:
                    account.ignore("second span of one tool run")
                else:
                    self._add_run(_read_tool_run(span))
            elif span.kind == "model":
                exchange = _take_exchange(span, self.tree, replies, account)
                if exchange is not None:
                    self._place(exchange)
            else:
                account.ignore("agent span" if span.kind == "agent" else "span of another kind")

    def take_run(
        self,
        traces: Iterable[str],
        what: Literal["call", "tool"],
        name: str,
        *,
        since: int = 0,
        avoid: set[str] = _NONE,
    ) -> ToolRun | None:
        """Take the first free run in these traces with this call id or tool name.

        Args:
            since: When the model call that asked for it began; nanoseconds.
            avoid: Ids of calls whose runs are passed over.
        """
        for trace_id in traces:
            waiting = self._runs.get((trace_id, what, name), deque())
            while waiting and waiting[0].taken:
                waiting.popleft()
            for run in waiting:
                if not run.taken and run.span.start_ns >= since and run.call_id not in avoid:
                    run.taken = True
                    return run
        return None

    def find_parent(self, thread: Thread) -> tuple[Thread, str | None] | None:
        """The conversation that started another one, and the id of the call that did it, if spans show it."""
        call_id: str | None = None
        for above in self.tree.climb(thread.first):
            found = self._spans.get((above.trace_id, above.span_id))
            if above.kind == "tool":
                call_id = _find_call_id(above) or None
                others = self._near.get(above.trace_id, ())
                found = next((other for other in others if other is not thread and call_id in other.call_ids), None)
            if found is not None and found is not thread and above.span_id != thread.owner:
                return found, call_id if call_id in found.call_ids else None
        return None

    def _add_run(self, run: ToolRun) -> None:
        self.runs.append(run)
        for what, name in (("call", run.call_id), ("tool", run.name)):
            if name:
                self._runs.setdefault((run.span.trace_id, what, name), deque()).append(run)

    def _place(self, exchange: Exchange) -> None:
        span, owner = exchange.span, self.tree.find_owner(exchange.span)
        session = span.get_text("gen_ai.conversation.id", "session.id", "gen_ai.session.id")
        near = list(dict.fromkeys(name for name in (span.trace_id, session) if name))
        latest = [thread for name in near for thread in self._near.get(name, ())[-_MAX_CANDIDATES:]]
        latest.sort(key=lambda thread: thread.number, reverse=True)
        thread = next((thread for thread in latest if thread.goes_on_with(exchange, owner)), None)
        if thread is None:
            thread = Thread(span.trace_id, session, owner, number=len(self.threads))
            self.threads.append(thread)
            for name in near:
                self._near.setdefault(name, []).append(thread)
        thread.add(exchange)
        self._spans[span.trace_id, span.span_id] = thread
        if owner:
            self._spans.setdefault((span.trace_id, owner), thread)


def _take_exchange(
    span: Span, tree: SpanTree, replies: dict[tuple[str, str], Span], account: Account
) -> Exchange | None:
    """The model call of a span; None if another span reports the same call (two instrumentations at once)."""
    response = span.get_text("gen_ai.response.id")
    other = replies.get((span.trace_id, response)) if response else None
    overlaps = other is not None and span.start_ns < other.end_ns  # some give all calls of a run the same id
    if overlaps or tree.find_same_kind_above(span) is not None:
        account.ignore("second span of one model call")
        return None
    exchange = read_exchange(span)
    if exchange.reply is None:
        inner = (read_exchange(child) for child in tree.find_same_kind_below(span))
        exchange = next((found for found in inner if found.reply is not None), exchange)
        exchange.span = span
    if response:
        replies[span.trace_id, response] = span
    account.use()
    account.note("alternative replies that were not kept", exchange.alternatives)
    return exchange


def _find_call_id(span: Span) -> str:
    return next((name for key in _CALL_IDS if (name := read_id(span.attributes.get(key)))), "")


def _read_tool_run(span: Span) -> ToolRun:
    # ADK's own copy comes first: its output.value is wrapped in the call.
    result = next((v for name in _RESULTS if (v := span.attributes.get(name)) is not None), None)
    return ToolRun(
        span=span,
        call_id=_find_call_id(span),
        name=span.get_text("gen_ai.tool.name", "tool.name", "traceloop.entity.name") or span.name,
        result=result,
    )


class SpanTree:
    """Finds the spans above and below a span."""

    def __init__(self, spans: list[Span]) -> None:
        self._spans = {(span.trace_id, span.span_id): span for span in spans}
        self._children: dict[tuple[str, str], list[Span]] = {}
        for span in spans:
            self._children.setdefault((span.trace_id, span.parent_id), []).append(span)

    def get(self, trace_id: str, span_id: str) -> Span | None:
        """The span with that id."""
        return self._spans.get((trace_id, span_id))

    def climb(self, span: Span) -> Iterator[Span]:
        """The ancestors of a span, its parent first."""
        for _ in range(_MAX_ANCESTORS):
            above = self._spans.get((span.trace_id, span.parent_id))
            if above is None or above is span:
                return
            yield above
            span = above

    def find_owner(self, span: Span) -> str:
        """Id of the nearest agent span above a span; empty if there is none."""
        return next((above.span_id for above in self.climb(span) if above.kind == "agent"), "")

    def find_same_kind_above(self, span: Span) -> Span | None:
        """The ancestor of the same kind, with only spans of kind `other` in between: both report one event."""
        for above in self.climb(span):
            if above.kind == span.kind:
                return above
            if above.kind != "other":
                return None
        return None

    def find_same_kind_below(self, span: Span) -> Iterator[Span]:
        """The spans below one that report the same event."""
        waiting, seen = [span], 0
        while waiting and seen < _MAX_ANCESTORS:
            seen += 1
            at = waiting.pop()
            for child in self._children.get((at.trace_id, at.span_id), ()):
                if child.kind == span.kind:
                    yield child
                elif child.kind == "other":
                    waiting.append(child)
