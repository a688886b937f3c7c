"""The interface of export formats: a trace becomes bytes, and losses are counted.

To add one, write a module in this folder whose `PLUGIN` has the members of `TraceFormat`, and name it in `BUILT_IN` of
`core/plugins.py`. It must work without arguments.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from foretrace.core.trace import Message, Part, Trace
from foretrace.encodings.call_forms import CallForm
from foretrace.rows.base import Drop

FieldCounts = Counter[str]
"""How many set fields were not carried over, keyed by owner and name as in `messages.logprobs`."""

UNITS = ("traces", "messages", "results", "calls")

_AUTHORS = {"system": "user", "user": "user", "assistant": "model", "tool": "environment"}
_BOOKKEEPING = {"role", "author", "content", "tool_calls", "turn", "raw_index", "sampled"}
"""Fields of a message that are counted separately, always present, or useless outside the record."""
_NUMBERS = frozenset({"token_ids", "logprobs", "prompt_token_ids"})
_FIELDS = tuple(name for name in Message.__struct_fields__ if name not in _BOOKKEEPING)


class Exported(msgspec.Struct, frozen=True, kw_only=True):
    """A trace in an export format, with the traces below it."""

    data: bytes
    """One or more complete lines, or a document."""
    lost: FieldCounts
    """Fields for which the format has no place."""
    kept: FieldCounts = msgspec.field(default_factory=FieldCounts)
    """Fields in a free-form place of the format: only foretrace reads them back."""
    has_tokens: bool = False
    """Whether it contains token ids that can be trained on as they are."""


class Family(msgspec.Struct, frozen=True):
    """A trace with the traces that it started."""

    trace: Trace
    children: Sequence[Family] = ()

    def list_traces(self) -> Iterator[Trace]:
        yield self.trace
        for child in self.children:
            yield from child.list_traces()


class TraceFormat(Protocol):
    """A format that traces are written in."""

    name: str
    suffix: str | None = None
    """Ending of each file's name if there is one file per trace, which makes the output a folder. `None`: one file."""
    call_forms: Sequence[CallForm] = ()
    """The forms of calls that can be requested; the first is the one that `write` uses for calls outside the text.
    Empty if the format itself records where each call is."""
    holds_families: bool = False
    """Whether a trace is written together with those it started. Otherwise `write` does not receive these."""

    def write(self, family: Family) -> Exported | Drop:
        """The trace in this format, or why it cannot be written. The same trace always gives the same bytes."""
        ...


def count_fields(trace: Trace) -> FieldCounts:
    """How often each field of a trace is set, without bookkeeping: `traces.reward`, `results.tool_s`, `calls.span`."""
    outcome, origin = trace.outcome, trace.provenance
    rest = msgspec.structs.replace(outcome, success=None, reward=None)
    found = FieldCounts({"traces.key": 1, "traces.task": 1, "traces.provenance": 1})
    facts = {
        "success": outcome.success, "reward": outcome.reward, "outcome": rest if rest != type(rest)() else None,
        "model": origin.model, "agent": origin.agent, "parent": trace.parent, "extra": trace.extra or None,
        "tools": trace.tools or None,
    }  # fmt: skip
    found.update(f"traces.{name}" for name, value in facts.items() if value is not None)
    for message in trace.messages:
        found.update(_list_fields(message))
    return found


def _list_fields(message: Message) -> Iterator[str]:
    unit = "results" if message.role == "tool" else "messages"
    if message.author != _AUTHORS[message.role]:
        yield f"{unit}.author"
    for name in _FIELDS:
        value = getattr(message, name)
        is_default = value is False and name in ("continues", "injected")
        if value is not None and value not in ("", (), {}) and not is_default:
            yield f"{unit}.{name}"
    if (sampled := message.sampled) is not None:
        for name in ("token_ids", "logprobs", "prompt_token_ids", "finish_reason", "usage"):
            if getattr(sampled, name):
                yield f"{unit}.{name}"
    for call in message.tool_calls:
        yield from (f"calls.{name}" for name in ("id", "span", "repairs", "error", "extra") if getattr(call, name))


def find_losses(trace: Trace, carried: frozenset[str]) -> FieldCounts:
    """The set fields that are not in `carried`, with names as in `count_fields`."""
    return FieldCounts({name: count for name, count in count_fields(trace).items() if name not in carried})


def split_losses(trace: Trace, carried: frozenset[str]) -> tuple[FieldCounts, FieldCounts]:
    """What is lost and what is kept if everything except token ids and logprobs, which are too many numbers, goes into
    a free-form place. `carried` is as in `find_losses`."""
    lost, kept = FieldCounts(), FieldCounts()
    for name, count in find_losses(trace, carried).items():
        (lost if name.partition(".")[2] in _NUMBERS else kept)[name] = count
    return lost, kept


def drop_numbers(message: Message) -> Message:
    if message.sampled is None:
        return message
    bare = msgspec.structs.replace(message.sampled, token_ids=(), logprobs=(), prompt_token_ids=None)
    return msgspec.structs.replace(message, sampled=bare)


def list_parts(
    text: str, parts: Iterable[Part], write: Callable[[Part], dict[str, Any]], *, key: str = "text"
) -> list[dict[str, Any]]:
    """The non-empty pieces of a text, each under `key`, with the images or files in their places between them."""
    found: list[dict[str, Any]] = []
    begin = 0
    for part in parts:
        if piece := text[begin : part.at]:
            found.append({"type": "text", key: piece})
            begin = part.at
        found.append(write(part))
    return [*found, {"type": "text", key: text[begin:]}] if text[begin:] else found


def describe_losses(counts: Mapping[str, int]) -> dict[str, str]:
    """Losses by owner, in the order of `UNITS`: `{"messages": "logprobs 12, model_s 3", "results": ...}`."""
    named = [(*name.split(".", 1), count) for name, count in counts.items()]
    texts = {unit: ", ".join(f"{field} {count:,}" for of, field, count in named if of == unit) for unit in UNITS}
    return {unit: text for unit, text in texts.items() if text}
