"""`trajectories`: whole attempts with native tool calls and a train flag on every message."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from foretrace.core.trace import Message, ToolCall, ToolSpec, Trace
from foretrace.dataset.recipes.attempts import Attempt, TaskAttempts
from foretrace.dataset.recipes.base import IDENTITY, Config, Row
from foretrace.encodings.calls_in_text import remove_calls
from foretrace.encodings.json_arguments import encode_json

_ANY_PARAMETERS = '{"type":"object"}'
"""Parameters of a tool of which nothing else is known."""


CONFIG = Config(
    name="trajectories",
    columns={
        "messages": "trajectory",
        "tools": "string",
        "success": "bool",
        "flags": "strings",
        "steps": "int",
        **IDENTITY,
    },
    about="Whole attempts with native tool calls; `foretrace.tokenize` puts the loss on trained messages only.",
    repository="trajectories",
    accounts_for="traces",
)


class Trajectories:
    """One row for each wanted attempt."""

    configs = (CONFIG,)

    def rows(self, task: TaskAttempts) -> Iterator[Row]:
        """One row each, in key order."""
        for attempt in task.attempts:
            if not attempt.wanted:
                task.drops["attempt_not_wanted"] += 1
            elif not attempt.targets:
                task.drops["no_step"] += 1
            else:
                yield CONFIG.make_row(_make_values(attempt))


def _make_values(attempt: Attempt) -> dict[str, Any]:
    trace = attempt.trace
    trained = {target.index for target in attempt.targets}
    return {
        "messages": _make_messages(trace, trained),
        "tools": _make_tools(trace),
        "success": trace.outcome.success,
        "flags": list(trace.outcome.flags),
        "steps": len(trained),
        **attempt.make_identity(len(trace.messages)),
    }


def _make_messages(trace: Trace, trained: set[int]) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    waiting: list[str] = []
    for index, message in enumerate(trace.messages):
        calls = [c for c in message.tool_calls if c.error is None]
        ids = [c.id or f"call_{index}_{n}" for n, c in enumerate(calls)]
        item: dict[str, Any] = {
            "role": message.role,
            "content": remove_calls(message) if message.role == "assistant" else message.prefix + message.content,
            "tool_calls": [_make_call(c, i) for c, i in zip(calls, ids, strict=True)],
            "tool_call_id": "",
            "train": index in trained,
        }
        if message.role == "assistant":
            waiting = ids
        elif message.role == "tool":
            item["tool_call_id"] = _find_answered_call(message, waiting)
        messages.append(item)
    return messages


def _find_answered_call(message: Message, waiting: list[str]) -> str:
    if message.tool_call_ids:
        return message.tool_call_ids[0]
    return waiting.pop(0) if len(waiting) > 1 else waiting[0] if waiting else ""


def _make_call(call: ToolCall, call_id: str) -> dict[str, Any]:
    arguments = call.arguments if _is_json(call.arguments) else encode_json(call.arguments)
    return {"id": call_id, "type": "function", "function": {"name": call.name, "arguments": arguments}}


def _is_json(text: str) -> bool:
    try:
        msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True


def _make_tools(trace: Trace) -> str:
    """JSON text of the tools, in OpenAI's form; where the source names none, the names that were called."""
    specs = trace.tools or tuple(
        ToolSpec(name=name, parameters=_ANY_PARAMETERS)
        for name in sorted({c.name for m in trace.messages for c in m.tool_calls if c.name})
    )
    listed = (
        f'{{"type":"function","function":{{"name":{encode_json(s.name)},"description":{encode_json(s.description)},'
        f'"parameters":{s.parameters if _is_json(s.parameters) else _ANY_PARAMETERS}}}}}'
        for s in specs
    )
    return f"[{','.join(listed)}]"


PLUGIN = Trajectories()
