"""Session traces of the Hugging Face Hub: a file per trace, with a line for the session and one for each message.

Anything without a field in the format is under `foretrace`, in the session's line or next to the fields of a message.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from foretrace.core.trace import Message, Trace
from foretrace.encodings.call_forms import find_call_ids
from foretrace.exports.base import Exported, Family, TraceFormat, drop_numbers, split_losses
from foretrace.sources.conversation import read_time
from foretrace.sources.own_fields import FIELD, keep_message_fields, keep_trace_fields, write_tools

_CARRIED = frozenset({
    "traces.key", "traces.model", "traces.agent", "traces.tools", "messages.reasoning", "messages.started",
    "results.tool_call_ids", "results.prefix", "results.started", "calls.id",
})  # fmt: skip
_MAX_TITLE = 80
"""Most characters of a session's name."""


class HubSession(TraceFormat):
    """Read by the Hub's trace viewer, and by the source `hub_session`."""

    name = "hub_session"
    suffix: str | None = ".jsonl"

    def write(self, family: Family) -> Exported:
        """The lines of one session."""
        trace = family.trace
        origin = trace.provenance
        head: dict[str, Any] = {"type": "session", "harness": origin.agent or "foretrace", "id": trace.key}
        if title := _make_title(trace):
            head["name"] = title
        if trace.tools:
            head["tools"] = write_tools(trace)
        head[FIELD] = keep_trace_fields(trace)
        ids, answers = find_call_ids(trace.messages)
        lines = [head]
        for index, message in enumerate(trace.messages):
            made = _make_message(message, ids.get(index, ()), answers.get(index, ()), origin.model)
            lines.append({"type": "message", "message": made})
        lost, kept = split_losses(trace, _CARRIED)
        return Exported(data=b"".join(msgspec.json.encode(line) + b"\n" for line in lines), lost=lost, kept=kept)


def _make_title(trace: Trace) -> str:
    """The first line of the task, or of the first user message."""
    first = next((m.content for m in trace.messages if m.role == "user"), "")
    lines = (trace.task.statement or first).strip().splitlines()
    return lines[0].strip()[:_MAX_TITLE] if lines else ""


def _make_message(message: Message, ids: Sequence[str], answers: Sequence[str], model: str | None) -> dict[str, Any]:
    made: dict[str, Any] = {"role": message.role, "content": message.prefix + message.content}
    if message.role == "assistant":
        if message.reasoning:
            made["reasoningContent"] = message.reasoning
        if message.tool_calls:
            made["toolCalls"] = [
                {"id": i, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
                for call, i in zip(message.tool_calls, ids, strict=True)
            ]
        if model is not None:
            made["model"] = model
    if answers:
        made["toolCallId"] = answers[0]
    started = None if message.started is None else read_time(message.started)
    if started is not None:
        made["timestamp"] = round(started * 1000)
    made[FIELD] = keep_message_fields(drop_numbers(message), has_argument_text=True, call_ids=ids)
    return made


PLUGIN = HubSession
