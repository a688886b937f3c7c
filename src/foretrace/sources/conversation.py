"""Put a conversation together from the records of a session, a log or spans: turns, calls, results and times.

Times (`Message.model_s`, `tool_s`): what the runner or a span measured is used as it is. Otherwise a duration is the
difference of two timestamps: for a model, from the latest input before the reply to the last record of the reply; for a
tool, from the call to its result. Timestamps that decrease, or that are less than `FLUSH_S` apart (records written
together), give no time. Neither does a tool that waits for a person.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from datetime import UTC, datetime
from typing import Any

import msgspec

from foretrace.core.trace import Author, Message, Role, TimeSource, ToolCall
from foretrace.encodings.json_arguments import encode_json, read_arguments
from foretrace.sources.account import Account

FLUSH_S = 0.002
"""Seconds; timestamps closer together say when records were written, not when something happened."""


class _Draft(msgspec.Struct):
    fields: dict[str, Any]
    """Of the message, as far as they are known."""
    began: float | None
    """Timestamp of its first record, seconds since 1970."""
    ended: float | None
    """Timestamp of its last record."""
    seconds: float | None = None
    measured_by: TimeSource | None = None
    input_at: float | None = None
    """For an agent's reply: the latest timestamp of what it answers."""


class UsedRecord(msgspec.Struct, gc=False):
    """A record that the conversation needs."""

    record: dict[str, Any]
    inside: str
    """The field that holds the message itself, if it is in an envelope."""
    call: str
    """The call that the record is about, if it does not become a message."""
    places: list[int] = msgspec.field(default_factory=list[int])
    """Indexes of the messages that were made from it."""


class Conversation:
    """Messages in the order in which they are added; records of one model reply are one message.

    Args:
        account: receives notes of what does not fit: results without a call, clocks that run backwards.
        durations_from_stamps: False for a format whose timestamps say when something happened but not how long it took,
            such as one timestamp for a reply and the results of its calls.
        person_tools: Tools that wait for a person, so that their time is not a tool's.
    """

    def __init__(
        self, account: Account, *, durations_from_stamps: bool = True, person_tools: Collection[str] = ()
    ) -> None:
        self.account = account
        self._durations_from_stamps = durations_from_stamps
        self._person_tools = person_tools
        self.used: list[UsedRecord] = []
        """The records that messages were made from: what is missing in the messages goes to `extra` (`leftovers`)."""
        self.types: Counter[str] = Counter()
        """Records by type: shown if no turn was recognized."""
        self._drafts: list[_Draft] = []
        self._replies: dict[str, _Draft] = {}
        self._called: dict[str, float | None] = {}
        """Timestamps of calls, by id."""
        self._waits: set[str] = set()
        self._latest_input: float | None = None

    def __len__(self) -> int:
        return len(self._drafts)

    @property
    def has_agent(self) -> bool:
        """Whether the agent has said or done anything in this conversation, outside of examples."""
        return any(d.fields["role"] == "assistant" and d.fields["author"] != "demo" for d in self._drafts)

    def has_call(self, call_id: str) -> bool:
        return call_id in self._called

    def use(self, record: dict[str, Any], inside: str = "", *, call: str = "", count: int = 1) -> None:
        """Count a record as used; messages that are added from now on come from it.

        Args:
            inside: The field that holds the message itself, if it is in an envelope.
            call: Id of the call that the record is about, if it does not become a message.
            count: How many records it is for the account: a message and its parts may be several.
        """
        self.account.use(count)
        self.used.append(UsedRecord(record, inside, call))

    def add(
        self,
        role: str,
        text: str,
        raw_index: int,
        *,
        reasoning: str | None = None,
        calls: Iterable[ToolCall] = (),
        call_id: str = "",
        is_error: bool | None = None,
        author: Author | None = None,
        seconds: float | None = None,
        **more: Any,
    ) -> None:
        """Add a message by the name of its role; arguments that do not apply to the role are ignored."""
        if role == "assistant":
            said = {"text": text, "reasoning": reasoning, "calls": calls, "author": author or "model"}
            self.add_agent(raw_index, seconds=seconds, **said, **more)
        elif role == "tool":
            self.add_result(call_id, text, raw_index, is_error=is_error, seconds=seconds, **more)
        elif role == "system":
            self.add_system(text, raw_index, **{**more, "at": None})
        else:
            self.add_user(text, raw_index, author=author or "user", **more)

    def add_system(self, text: str, raw_index: int, *, at: float | None = None, **more: Any) -> None:
        self._add("system", "user", text, raw_index, at, more)

    def add_user(
        self, text: str, raw_index: int, *, author: Author = "user", at: float | None = None, **more: Any
    ) -> None:
        """Add a message of a person. `author="environment"`: what the agent's program says in that role (a reminder, a
        summary, an acknowledgement); `author="demo"`: part of an example in the prompt."""
        self._add("user", author, text, raw_index, at, more)

    def add_agent(
        self,
        raw_index: int,
        *,
        text: str = "",
        reasoning: str | None = None,
        calls: Iterable[ToolCall] = (),
        reply: str | None = None,
        at: float | None = None,
        began: float | None = None,
        seconds: float | None = None,
        measured_by: TimeSource = "runner",
        author: Author = "model",
        **more: Any,
    ) -> None:
        """Add a message of the model, or a part of one: all records with the same `reply` are one message.

        Args:
            reply: The format's own id of the model's reply.
            at: Timestamp of the record, in seconds since 1970.
            began: When the model was asked, if the format says so.
            seconds: What the runner or a span measured, or what the format's reader found from timestamps.
            author: `environment` for what the agent's program did without asking the model; `demo` for what is shown to
                the model as an example or copied from another conversation, which is not a step.
            more: Further fields of `Message`: parts, train, sampled, extra.
        """
        calls = tuple(calls)
        draft = self._replies.get(reply) if reply else None
        if draft is None:
            draft = self._add("assistant", author, "", raw_index, at, more)
            draft.input_at = began if began is not None else self._latest_input
            if reply:
                self._replies[reply] = draft
        else:
            draft.fields["extra"].update(more.get("extra", {}))
            draft.fields["parts"] += tuple(more.get("parts", ()))
            self._note_origin(draft)
        said = draft.fields
        if text:
            said["content"] += "\n\n" * bool(said["content"]) + text
        if reasoning:
            before = said.get("reasoning")
            said["reasoning"] = reasoning if before is None else f"{before}\n\n{reasoning}"
        if calls:
            said["tool_calls"] = (*said.get("tool_calls", ()), *calls)
            self._called.update((call.id, at) for call in calls if call.id)
            self._waits.update(call.id for call in calls if call.name in self._person_tools)
        if at is not None:
            draft.ended = max(at, draft.ended or at)
        if seconds is not None:
            draft.seconds, draft.measured_by = seconds, measured_by

    def add_result(
        self,
        call_id: str,
        text: str,
        raw_index: int,
        *,
        at: float | None = None,
        seconds: float | None = None,
        measured_by: TimeSource = "runner",
        also: Iterable[str] = (),
        **more: Any,
    ) -> None:
        """Add the result of a call; `call_id` is empty if the format has none. `also`: ids of further calls that the
        same result answers. `more`: further fields of `Message`: is_error, parts, extra."""
        answered = (call_id, *also) if call_id else ()
        draft = self._add("tool", "environment", text, raw_index, at, {**more, "tool_call_ids": answered})
        self.account.note("results without a call", bool(call_id) and call_id not in self._called)
        if seconds is not None:
            draft.seconds, draft.measured_by = seconds, measured_by

    def time_call(self, call_id: str, seconds: float) -> None:
        """Set the duration that the runner measured for a call whose result was added before."""
        for draft in reversed(self._drafts):
            if call_id in draft.fields.get("tool_call_ids", ()):
                draft.seconds, draft.measured_by = seconds, "runner"
                return

    def wait_for_person(self, call_id: str) -> None:
        """Note that a call waited for a person, so that its time is not a tool's."""
        self._waits.add(call_id)

    def finish(self) -> tuple[Message, ...]:
        """All messages, with their times."""
        answered = {call_id for draft in self._drafts for call_id in draft.fields.get("tool_call_ids", ())}
        self.account.note("calls without a result", len(self._called.keys() - answered))
        return tuple(self._make_message(draft) for draft in self._drafts)

    def _add(
        self, role: Role, author: Author, text: str, raw_index: int, at: float | None, more: dict[str, Any]
    ) -> _Draft:
        fields = {
            **more, "role": role, "author": author, "content": text, "raw_index": raw_index, "turn": len(self._drafts),
            "parts": tuple(more.get("parts", ())), "extra": dict(more.get("extra", {})),
        }  # fmt: skip
        draft = _Draft(fields, began=at, ended=at)
        if role in ("user", "tool") and at is not None:
            self._latest_input = at
        self._drafts.append(draft)
        self._note_origin(draft)
        return draft

    def _note_origin(self, draft: _Draft) -> None:
        if self.used and draft.fields["turn"] not in self.used[-1].places:
            self.used[-1].places.append(draft.fields["turn"])

    def _make_message(self, draft: _Draft) -> Message:
        fields = draft.fields
        if draft.began is not None:
            fields["started"] = write_time(draft.began)
        if fields["role"] in ("assistant", "tool"):
            name = "model_s" if fields["role"] == "assistant" else "tool_s"
            fields[name], fields[f"{name}_source"] = self._find_time(draft)
        return Message(**fields)

    def _find_time(self, draft: _Draft) -> tuple[float | None, TimeSource | None]:
        answered = draft.fields.get("tool_call_ids", ())
        if not self._waits.isdisjoint(answered):
            return None, None
        if draft.seconds is not None:
            if draft.seconds >= 0:
                return draft.seconds, draft.measured_by
            self.account.note("durations below zero")
            return None, None
        begin = draft.input_at
        if draft.fields["role"] == "tool":
            begin = max((at for own in answered if (at := self._called.get(own)) is not None), default=None)
        if not self._durations_from_stamps or begin is None or draft.ended is None:
            return None, None
        if draft.ended < begin:
            self.account.note("clocks that run backwards")
            return None, None
        seconds = draft.ended - begin
        return (round(seconds, 6), "stamps") if seconds >= FLUSH_S else (None, None)


def measure(start: Any, end: Any) -> float | None:
    """Seconds from one timestamp to a later one; `None` if either is missing or they are not in order."""
    begin, finish = read_time(start), read_time(end)
    return round(finish - begin, 6) if begin is not None and finish is not None and finish > begin else None


def make_call(call_id: Any, name: Any, arguments: Any, **extra: Any) -> ToolCall:
    """A call as a format gives it: arguments are an object or JSON text, which is repaired if needed."""
    if isinstance(arguments, dict):
        return ToolCall(id=str(call_id or ""), name=str(name or ""), arguments=encode_json(arguments), extra=extra)
    text = arguments if isinstance(arguments, str) else encode_json({} if arguments is None else arguments)
    read = read_arguments(text if text.strip() else "{}")
    if read.error is not None:
        extra["raw"] = arguments
    return ToolCall(
        id=str(call_id or ""), name=str(name or ""), arguments=read.text, repairs=read.repairs, error=read.error,
        extra=extra,
    )  # fmt: skip


def read_time(value: Any) -> float | None:
    """Seconds since 1970 of a timestamp: ISO 8601 text (UTC if it has no zone), or a number of seconds, milliseconds,
    microseconds or nanoseconds, depending on its size. `None` if it is none of these."""
    if isinstance(value, str):
        text = value.strip()
        if text.isdecimal() and len(text) < 30:
            return read_time(int(text))
        try:
            stamp = datetime.fromisoformat(text)
        except ValueError:
            return None
        return (stamp if stamp.tzinfo else stamp.replace(tzinfo=UTC)).timestamp()
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < 1e20:
        return None
    for unit in (1e9, 1e6, 1e3):
        if value > 1e9 * unit / 10:
            return value / unit
    return float(value)


def write_time(stamp: float) -> str | None:
    """Seconds since 1970 as ISO 8601 text; `None` if out of range."""
    try:
        return datetime.fromtimestamp(stamp, UTC).isoformat()
    except (ValueError, OverflowError, OSError):
        return None
