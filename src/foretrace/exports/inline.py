"""A trace as one assistant message: everything that the agent wrote and received, in order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from foretrace.core.trace import Message, Trace
from foretrace.exports.base import Exported, Family, FieldCounts, TraceFormat, find_losses
from foretrace.rows.base import Drop

_ARRAYS = ("prompt_token_ids", "token_ids", "logprobs", "mask")
_CARRIED = frozenset({
    "traces.key", "traces.task", "traces.success", "traces.reward", "traces.model", "messages.train",
    "messages.continues", "results.injected", "results.prefix", "calls.id", "calls.span", "results.tool_call_ids",
})  # fmt: skip


class Inline(TraceFormat):
    """Read by trainers that take one message with the spans to be learned, or with token ids and their mask."""

    name = "inline"

    def write(self, family: Family) -> Exported | Drop:
        row = make_inline_row(family.trace)
        if isinstance(row, Drop):
            return row
        lost = find_losses(family.trace, _CARRIED)
        if row["token_ids"] is not None:
            kept = ("token_ids", "prompt_token_ids", "logprobs" if row["logprobs"] is not None else "")
            lost = FieldCounts({name: n for name, n in lost.items() if name.partition(".")[2] not in kept})
        return Exported(data=msgspec.json.encode(row) + b"\n", lost=lost, has_tokens=row["token_ids"] is not None)


def make_inline_row(trace: Trace) -> dict[str, Any] | Drop:
    """One row, or why the trace cannot be one message without changes.

    `messages` is a system message (if there is one), a user message and the assistant message. `spans` are start and
    end character offsets in the assistant message of what the model wrote and is to learn, without what the environment
    wrote. `token_ids`, `logprobs` and `mask` (1: sampled, to be learned; 0: not) have the same length, and are `None`
    if the ids of the whole message are uncertain; `prompt_token_ids` are those before it. Logprobs are natural-log
    probabilities, 0.0 where the mask is 0, and `None` if any is missing.
    """
    first = next((i for i, message in enumerate(trace.messages) if message.role == "assistant"), len(trace.messages))
    opening, rest = trace.messages[:first], trace.messages[first:]
    reason = _find_refusal(opening, rest)
    if reason:
        return Drop(reason)
    parts = [_render_message(message) for message in rest]
    spans: list[tuple[int, int]] = []
    at = 0
    for message, part in zip(rest, parts, strict=True):
        if part and _is_trained(message):
            spans.append((at, at + len(part)))
        at += len(part)
    prompt = [{"role": message.role, "content": message.content} for message in opening]
    return {
        "key": trace.key,
        "task": trace.task.id,
        "group": trace.task.group,
        "protocol": trace.provenance.protocol,
        "model": trace.provenance.model,
        "success": trace.outcome.success,
        "reward": trace.outcome.reward,
        "messages": [*prompt, {"role": "assistant", "content": "".join(parts)}],
        "spans": spans,
        **_make_token_columns(rest),
    }


def _find_refusal(opening: Sequence[Message], rest: Sequence[Message]) -> str:
    """Why this is not a single assistant message; empty if it is."""
    if not any(message.author == "model" for message in rest):
        return "empty_trace"
    if [message.role for message in opening] not in (["user"], ["system", "user"]):
        return "other_opening"
    if any(message.role == "user" and message.author == "environment" for message in rest):
        return "prompted"
    if any(message.role in ("system", "user") for message in rest):
        return "other_turns"
    if any(message.parts for message in (*opening, *rest)):
        return "parts"
    if any(message.reasoning for message in rest):
        return "thinking_apart"
    if any(call.span is None for message in rest for call in message.tool_calls):
        return "calls_not_in_text"
    return ""


def _render_message(message: Message) -> str:
    """The text that a message adds. A result between turns gets the tags that it would have within one."""
    text = message.prefix + message.content
    return f"\n<tool_response>\n{text}\n</tool_response>\n" if message.role == "tool" and not message.injected else text


def _is_trained(message: Message) -> bool:
    return message.role == "assistant" and message.author == "model" and message.train is not False


def _make_token_columns(rest: Sequence[Message]) -> dict[str, Any]:
    """The ids of the whole message; `None` if one is unknown, or was sampled in a different context."""
    ids: list[int] = []
    mask: list[int] = []
    logprobs: list[float] = []
    weighed = True
    for message in rest:
        sampled = message.sampled
        if message.turn != rest[0].turn or not (message.role == "assistant" or message.injected):
            return dict.fromkeys(_ARRAYS)
        if sampled is None and not message.content:
            continue
        if sampled is None or sampled.exact != "token":
            return dict.fromkeys(_ARRAYS)
        learned, count = _is_trained(message), len(sampled.token_ids)
        ids += sampled.token_ids
        mask += [int(learned)] * count
        logprobs += sampled.logprobs if learned else [0.0] * count
        weighed = weighed and len(logprobs) == len(ids)
    if not ids:
        return dict.fromkeys(_ARRAYS)
    first = rest[0].sampled
    before = None if first is None else first.prompt_token_ids
    return dict(zip(_ARRAYS, (before, ids, logprobs if weighed else None, mask), strict=True))


PLUGIN = Inline
