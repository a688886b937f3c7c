"""The verifiers library's rows for supervised training: `messages`, and `tool_defs` as JSON text."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from foretrace.encodings.call_forms import CallForm
from foretrace.exports.base import Exported, Family, TraceFormat
from foretrace.exports.openai import find_message_losses, make_messages
from foretrace.rows.base import Drop
from foretrace.sources.own_fields import normalize_object, write_tools

_CARRIED = frozenset({
    "traces.tools", "messages.reasoning", "messages.continues", "results.tool_call_ids", "results.prefix", "calls.id",
    "calls.span",
})  # fmt: skip


class VerifiersSft(TraceFormat):
    """Read by prime-rl's `sft`, and by the source `chat`."""

    name = "verifiers_sft"
    call_forms: Sequence[CallForm] = ("native", "verbatim", "xml")

    def write(self, family: Family) -> Exported | Drop:
        """One line. None for an attempt that ended in an error, as in the library's own export, or for one with
        arguments that are not a JSON object, at which prime-rl would stop."""
        trace = family.trace
        if trace.outcome.status == "error":
            return Drop("ended_in_error")
        if not any(message.role == "assistant" for message in trace.messages):
            return Drop("no_agent_turn")
        # the same column type for all rows, whatever the schemas of their tools
        tools = [{"type": "function", **tool["function"]} for tool in write_tools(trace)]
        messages = list(make_messages(trace, reasoning=True))
        calls = [call for message in messages for call in message.get("tool_calls", ())]
        if any(normalize_object(call["function"]["arguments"]) is None for call in calls):
            return Drop("unreadable_arguments")
        row = {"messages": messages, "tool_defs": msgspec.json.encode(tools).decode()}
        return Exported(data=msgspec.json.encode(row) + b"\n", lost=find_message_losses(trace, messages, _CARRIED))


PLUGIN = VerifiersSft
