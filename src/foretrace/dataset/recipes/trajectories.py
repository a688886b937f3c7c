"""`trajectories`: whole attempts as chat messages, which are marked if trained.

Messages have the form that chat templates of tool-calling models accept: arguments as objects, and no empty fields. A
trace with results inside the agent's own turn (protocol `inline`) has no such form."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from foretrace.core.trace import Message, ToolCall, ToolSpec
from foretrace.dataset.recipes.attempts import Attempt, TaskAttempts
from foretrace.dataset.recipes.base import COMMON_COLUMNS, Config, Row
from foretrace.encodings.call_forms import CallForm, choose_form, find_call_ids, merge_spans, write_calls
from foretrace.encodings.calls_in_text import remove_calls

_LONG_NUMBER = re.compile(r"\d{19}")
_INT64 = range(-(2**63), 2**64)
"""Integers that the `datasets` library reads: it refuses a row with a larger one."""

CONFIG = Config(
    name="trajectories",
    columns={
        "messages": "json_list",
        "tools": "json_list",
        "steps": "int",
        **COMMON_COLUMNS,
    },
    about="Whole attempts, calls as the agent wrote them; `foretrace.tokenize` puts the loss on trained messages only.",
    repository="trajectories",
    accounts_for="traces",
)


class Trajectories:
    """One row for each wanted attempt."""

    configs = (CONFIG,)

    def rows(self, task: TaskAttempts) -> Iterator[Row]:
        for attempt in task.attempts:
            form = choose_form(attempt.trace)
            if not attempt.wanted:
                task.drops["attempt_not_wanted"] += 1
            elif not attempt.targets:
                task.drops["no_step"] += 1
            elif form == "verbatim" and any(message.injected for message in attempt.trace.messages):
                task.drops["results_within_a_turn"] += 1
            else:
                yield CONFIG.make_row(_make_values(attempt, form))


def _make_values(attempt: Attempt, form: CallForm) -> dict[str, Any]:
    trace = attempt.trace
    trained = {target.index for target in attempt.targets}
    marked = (msgspec.structs.replace(m, train=index in trained) for index, m in enumerate(trace.messages))
    messages = [m for m in merge_spans(write_calls(marked, form)) if m.role != "system" or m.prefix or m.content]
    has_calls = form == "native" or any(message.tool_calls for message in messages)
    return {
        "messages": list(_make_messages(messages)),
        "tools": _make_tools(trace.tools, messages) if has_calls else [],
        "steps": len(trained),
        **attempt.make_common_values(len(trace.messages)),
    }


def _make_messages(messages: list[Message]) -> Iterator[dict[str, Any]]:
    """The messages as chat templates accept them; a result that answers several calls is repeated for each."""
    ids, answers = find_call_ids(messages)
    names: dict[str, str] = {}
    for index, message in enumerate(messages):
        item: dict[str, Any] = {"role": message.role, "content": message.prefix + message.content}
        if message.role == "assistant":
            item["content"] = remove_calls(message)
            made = zip(message.tool_calls, ids.get(index, ()), strict=False)
            calls = [_make_call(call, own) for call, own in made if call.error is None]
            names |= {call["id"]: call["function"]["name"] for call in calls}
            if calls:
                item["tool_calls"] = calls
        for own in answers.get(index, ()) or ("",):
            named = {"tool_call_id": own, "name": names.get(own, "")} if own else {}
            yield {**item, **{name: value for name, value in named.items() if value}, "trained": message.train}


def _make_call(call: ToolCall, call_id: str) -> dict[str, Any]:
    arguments = _read_json(call.arguments, call.arguments)
    return {"id": call_id, "type": "function", "function": {"name": call.name, "arguments": arguments}}


def _read_json(text: str, otherwise: Any) -> Any:
    """The value of JSON text, with numbers too long for the `datasets` library as text."""
    try:
        value = msgspec.json.decode(text)
        return json.loads(text, parse_int=_read_integer) if _LONG_NUMBER.search(text) else value
    except (msgspec.DecodeError, RecursionError):
        return otherwise


def _read_integer(digits: str) -> int | str:
    return int(digits) if len(digits) <= 20 and int(digits) in _INT64 else digits


def _make_tools(tools: Sequence[ToolSpec], messages: list[Message]) -> list[dict[str, Any]]:
    """The tools in OpenAI's form; if the source names none, the names of the called tools."""
    called = sorted({c.name for m in messages for c in m.tool_calls if c.name})
    return [
        {
            "type": "function",
            "function": {"name": spec.name, "description": spec.description, "parameters": _read_parameters(spec)},
        }
        for spec in tools or [ToolSpec(name=name) for name in called]
    ]


def _read_parameters(spec: ToolSpec) -> dict[str, Any]:
    """The schema, with the two fields that templates assume."""
    schema = _read_json(spec.parameters, None)
    return {"type": "object", "properties": {}} | (schema if isinstance(schema, dict) else {})


PLUGIN = Trajectories()
