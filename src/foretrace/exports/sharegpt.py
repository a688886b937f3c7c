"""ShareGPT rows: `conversations` of `from` and `value`, the tools as JSON text, and information about the attempt.

Calls are `<tool_call>` blocks in the agent's text, so that text and calls stay one turn; results are turns of
`observation`. Text whose calls can already be read is left as the model wrote it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from foretrace.core.trace import Message, ToolCall
from foretrace.encodings.call_forms import CallForm, merge_spans
from foretrace.encodings.calls_in_text import find_calls, remove_calls
from foretrace.encodings.json_calls import TOOL_CALL_JSON
from foretrace.exports.base import Exported, Family, TraceFormat, find_losses
from foretrace.rows.base import Drop
from foretrace.sources.own_fields import normalize_object, write_tools

_FROM = {"system": "system", "user": "human", "assistant": "gpt", "tool": "observation"}
_CARRIED = frozenset({
    "traces.key", "traces.task", "traces.success", "traces.reward", "traces.model", "traces.tools",
    "messages.continues", "results.prefix", "calls.span",
})  # fmt: skip


class ShareGPT(TraceFormat):
    """Read by LLaMA-Factory, Axolotl, Unsloth and others, and by the source `chat`."""

    name = "sharegpt"
    call_forms: Sequence[CallForm] = ("xml", "verbatim")

    def write(self, family: Family) -> Exported | Drop:
        trace = family.trace
        messages = merge_spans(trace.messages)
        if not any(message.role == "assistant" for message in messages):
            return Drop("no_agent_turn")
        row: dict[str, Any] = {
            "id": trace.key,
            "conversations": [{"from": _FROM[m.role], "value": _make_value(m)} for m in messages],
            "tools": msgspec.json.encode([tool["function"] for tool in write_tools(trace)]).decode(),
            "instance": trace.task.id,
            "group": trace.task.group,
            "success": trace.outcome.success,
        }
        if trace.outcome.reward is not None:
            row["reward"] = trace.outcome.reward
        if trace.provenance.model is not None:
            row["model"] = trace.provenance.model
        return Exported(data=msgspec.json.encode(row) + b"\n", lost=find_losses(trace, _CARRIED))


def _make_value(message: Message) -> str:
    text = message.prefix + message.content
    calls = [call for call in message.tool_calls if call.error is None]
    if not calls or list(map(_identify, find_calls(text))) == list(map(_identify, message.tool_calls)):
        return text
    text = remove_calls(msgspec.structs.replace(message, tool_calls=tuple(calls)))
    return "\n".join([*([text] if text else []), *map(_render, calls)])


def _identify(call: ToolCall) -> tuple[str, str | None]:
    return call.name, normalize_object(call.arguments)


def _render(call: ToolCall) -> str:
    arguments = normalize_object(call.arguments) or "{}"
    return TOOL_CALL_JSON.render(ToolCall(name=call.name, arguments=arguments))


PLUGIN = ShareGPT
