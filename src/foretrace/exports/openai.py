"""OpenAI's fine-tuning rows: only `messages` and `tools`, since OpenAI refuses other columns.

Messages that are not to be learned have weight 0. A result that answers several calls is repeated for each.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from foretrace.core.trace import Message, Part, Trace
from foretrace.encodings.call_forms import CallForm, find_call_ids, merge_spans
from foretrace.exports.base import Exported, Family, FieldCounts, TraceFormat, find_losses, list_parts
from foretrace.exports.chat import make_text, write_call
from foretrace.rows.base import Drop
from foretrace.sources.own_fields import write_tools

_CARRIED = frozenset({
    "traces.tools", "messages.train", "messages.continues", "results.tool_call_ids", "results.prefix", "calls.id",
    "calls.span",
})  # fmt: skip


class OpenAI(TraceFormat):
    """Read by OpenAI's fine-tuning, by compatible trainers, and by the source `chat`."""

    name = "openai"
    call_forms: Sequence[CallForm] = ("native", "verbatim", "xml")

    def write(self, family: Family) -> Exported | Drop:
        trace = family.trace
        if not any(message.role == "assistant" for message in trace.messages):
            return Drop("no_agent_turn")
        row: dict[str, Any] = {"messages": list(make_messages(trace, weights=True))}
        answered = {message.get("tool_call_id") for message in row["messages"]}
        if any(c["id"] not in answered for m in row["messages"][:-1] for c in m.get("tool_calls", ())):
            return Drop("unanswered_calls")  # OpenAI accepts them only in the last message
        if trace.tools:
            row["tools"] = write_tools(trace)
        return Exported(
            data=msgspec.json.encode(row) + b"\n", lost=find_message_losses(trace, row["messages"], _CARRIED)
        )


def find_message_losses(trace: Trace, written: Sequence[Mapping[str, Any]], carried: frozenset[str]) -> FieldCounts:
    """The fields that `make_messages` lost of a trace, except `carried` ones.

    Images that it wrote are not lost; a result that became a user message lost its role.
    """
    users = [message for message in trace.messages if message.role == "user"]
    images = sum(bool(message.parts) and all(map(_is_image, message.parts)) for message in users)
    roles = sum(row["role"] == "user" for row in written) - len(users)
    return find_losses(trace, carried) - FieldCounts({"messages.parts": images}) + FieldCounts({"results.role": roles})


def make_messages(trace: Trace, *, weights: bool = False, reasoning: bool = False) -> Iterator[dict[str, Any]]:
    """The trace as messages of the chat API: calls outside the text, and each result with the call that it answers.

    Args:
        weights: Add `weight` for what is, or is not, to be learned.
        reasoning: Keep the thinking, as `reasoning_content`.
    """
    messages = merge_spans(trace.messages)
    ids, answers = find_call_ids(messages)
    for index, message in enumerate(messages):
        if message.role == "tool":
            text = message.prefix + message.content
            if not answers.get(index):  # the API has no result without a call
                yield {"role": "user", "content": text}
            yield from ({"role": "tool", "tool_call_id": own, "content": text} for own in answers.get(index, ()))
            continue
        made: dict[str, Any] = {"role": message.role}
        if message.role == "user" and (images := [*filter(_is_image, message.parts)]):
            made["content"] = list_parts(
                message.content, images, lambda part: {"type": "image_url", "image_url": {"url": part.ref}}
            )
        else:
            made["content"] = make_text(msgspec.structs.replace(message, parts=()))
        if message.role == "assistant":
            if reasoning and message.reasoning:
                made["reasoning_content"] = message.reasoning
            if index in ids:
                made["tool_calls"] = [write_call(c, own) for c, own in zip(message.tool_calls, ids[index], strict=True)]
            weight = _find_weight(message) if weights else None
            if weight is not None:
                made["weight"] = weight
        yield made


def _is_image(part: Part) -> bool:
    """Whether the chat API can fetch it."""
    return "image" in part.type and part.ref is not None and part.ref.startswith(("https://", "http://"))


def _find_weight(message: Message) -> int | None:
    """0 for messages not to be learned, 1 for those to be learned, `None` if unspecified."""
    if message.author != "model" or message.train is False:
        return 0
    return None if message.train is None else 1


PLUGIN = OpenAI
