"""`trajectories`: whole attempts with native tool calls and a mark on the trained ones.

Messages are in the form that chat templates of tool-calling models take: arguments as objects, no field that is empty.
Calls of a generated trace stay in the text, where its instructions ask for them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from foretrace.core.trace import Message, ToolCall, ToolSpec
from foretrace.dataset.recipes.attempts import Attempt, TaskAttempts
from foretrace.dataset.recipes.base import COMMON_COLUMNS, Config, Row
from foretrace.encodings.call_forms import choose_form, merge_spans, write_calls
from foretrace.encodings.calls_in_text import remove_calls

_LONG_NUMBER = re.compile(r"\d{19}")
_INT64 = range(-(2**63), 2**64)
"""Whole numbers that the `datasets` library reads: it refuses a row with a longer one."""

CONFIG = Config(
    name="trajectories",
    columns={
        "messages": "json_list",
        "tools": "json_list",
        "steps": "int",
        **COMMON_COLUMNS,
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
    marked = (msgspec.structs.replace(m, train=index in trained) for index, m in enumerate(trace.messages))
    messages = merge_spans(write_calls(marked, choose_form(trace)))
    return {
        "messages": _make_messages(messages),
        "tools": _make_tools(trace.tools, messages),
        "steps": len(trained),
        **attempt.make_common_values(len(trace.messages)),
    }


def _make_messages(messages: list[Message]) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = []
    waiting: dict[str, str] = {}
    """The calls of the last assistant message by their ids, each with the name of its tool."""
    for index, message in enumerate(messages):
        item: dict[str, Any] = {"role": message.role, "content": message.prefix + message.content}
        if message.role == "assistant":
            item["content"] = remove_calls(message)
            calls = [_make_call(c, f"call_{index}_{n}") for n, c in enumerate(message.tool_calls) if c.error is None]
            waiting = {c["id"]: c["function"]["name"] for c in calls}
            if calls:
                item["tool_calls"] = calls
        elif message.role == "tool" and (answered := _find_answered_call(message, waiting)):
            item["tool_call_id"] = answered
            if name := waiting.pop(answered, ""):
                item["name"] = name
        made.append(item | {"trained": message.train})
    return made


def _find_answered_call(message: Message, waiting: dict[str, str]) -> str:
    return message.tool_call_ids[0] if message.tool_call_ids else next(iter(waiting), "")


def _make_call(call: ToolCall, call_id: str) -> dict[str, Any]:
    arguments = _read_json(call.arguments, call.arguments)
    return {"id": call.id or call_id, "type": "function", "function": {"name": call.name, "arguments": arguments}}


def _read_json(text: str, otherwise: Any) -> Any:
    """The value of JSON text, numbers that are too long for the `datasets` library as text."""
    try:
        value = msgspec.json.decode(text)
        return json.loads(text, parse_int=_read_integer) if _LONG_NUMBER.search(text) else value
    except (msgspec.DecodeError, RecursionError):
        return otherwise


def _read_integer(digits: str) -> int | str:
    return int(digits) if len(digits) <= 20 and int(digits) in _INT64 else digits


def _make_tools(tools: Sequence[ToolSpec], messages: list[Message]) -> list[dict[str, Any]]:
    """The tools in OpenAI's form; where the source names none, the names that were called."""
    called = sorted({c.name for m in messages for c in m.tool_calls if c.name})
    return [
        {
            "type": "function",
            "function": {"name": spec.name, "description": spec.description, "parameters": _read_parameters(spec)},
        }
        for spec in tools or [ToolSpec(name=name) for name in called]
    ]


def _read_parameters(spec: ToolSpec) -> dict[str, Any]:
    """The schema, with the two fields that templates take for granted."""
    schema = _read_json(spec.parameters, None)
    return {"type": "object", "properties": {}} | (schema if isinstance(schema, dict) else {})


PLUGIN = Trajectories()
