"""ATIF trajectories, version 1.7: a document per trace, with the agents that it started.

A step is a message, and the agent's steps contain the results of their calls. Replies that call something one after
another, before the results come, are one step.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from foretrace.core.trace import Message, Part, Sampled, ToolCall, Trace
from foretrace.encodings.call_forms import find_call_ids, merge_spans
from foretrace.exports.base import Exported, Family, FieldCounts, TraceFormat, find_losses, list_parts
from foretrace.rows.base import Drop
from foretrace.sources.conversation import read_time
from foretrace.sources.own_fields import normalize_object, write_tools

_IMAGES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
_SOURCES = {"system": "system", "user": "user", "assistant": "agent", "tool": "user"}
_CARRIED = frozenset({
    "traces.key", "traces.model", "traces.agent", "traces.parent", "traces.tools", "messages.reasoning",
    "messages.started", "messages.token_ids", "messages.logprobs", "messages.prompt_token_ids", "messages.usage",
    "results.tool_call_ids", "results.prefix", "results.is_error", "calls.id",
})  # fmt: skip


class Atif(TraceFormat):
    """Read by Harbor, and by the source `atif`."""

    name = "atif"
    suffix: str | None = ".json"
    holds_families = True

    def write(self, family: Family) -> Exported | Drop:
        if any(not trace.messages for trace in family.list_traces()):
            return Drop("no_messages")
        lost = FieldCounts()
        document = _make_document(family, lost)
        return Exported(data=msgspec.json.encode(document) + b"\n", lost=lost)


def _make_document(family: Family, lost: FieldCounts) -> dict[str, Any]:
    trace = family.trace
    lost.update(find_losses(trace, _CARRIED))
    origin = trace.provenance
    name = origin.agent or origin.source or "unknown"
    agent: dict[str, Any] = {"name": name, "version": origin.tool_versions.get(name) or "unknown"}
    if origin.model is not None:
        agent["model_name"] = origin.model
    if trace.tools:
        agent["tool_definitions"] = write_tools(trace)
    messages = merge_spans(_join_parallel(trace.messages))
    lost["messages.turn"] += len(trace.messages) - len(messages)
    document: dict[str, Any] = {
        "schema_version": "ATIF-v1.7",
        "trajectory_id": trace.key,
        "agent": agent,
        "steps": _make_steps(messages, [child.trace for child in family.children], lost),
    }
    if family.children:
        document["subagent_trajectories"] = [_make_document(child, lost) for child in family.children]
    return document


def _join_parallel(messages: Sequence[Message]) -> Iterator[Message]:
    """The messages; replies that call something one after another, before the results come, share a turn. One with
    words of its own stays apart, as does one with token ids."""
    ids, answers = find_call_ids(messages)
    answered = {call_id for own in answers.values() for call_id in own}
    before: Message | None = None
    for index, message in enumerate(messages):
        joins = (
            before is not None
            and before.role == message.role == "assistant"
            and message.tool_calls
            and not message.content
            and before.sampled is None
            and message.sampled is None
            and not answered.isdisjoint(ids.get(index - 1, ()))
        )
        turn = before.turn if before is not None and joins else message.turn
        before = msgspec.structs.replace(message, turn=turn, continues=joins)
        yield before


def _make_steps(messages: Sequence[Message], children: Sequence[Trace], lost: FieldCounts) -> list[dict[str, Any]]:
    steps: list[dict[str, Any]] = []
    made_by: dict[str, dict[str, Any]] = {}
    results: dict[str, dict[str, Any]] = {}
    ids, answers = find_call_ids(messages)
    for index, message in enumerate(messages):
        own = next((call_id for call_id in answers.get(index, ()) if call_id in made_by), None)
        # A result belongs to the step of its call, or else to the last step if that is the agent's.
        step = made_by[own] if own is not None else steps[-1] if steps and steps[-1]["source"] == "agent" else None
        content = _make_content(message)
        lost["results.role"] += message.role == "tool" and step is None
        if message.role == "tool" and step is not None:
            lost["results.place"] += step is not steps[-1]
            result: dict[str, Any] = {} if own is None else {"source_call_id": own}
            result["content"] = content
            if message.is_error is not None:
                result["extra"] = {"is_error": message.is_error}
            step.setdefault("observation", {"results": []})["results"].append(result)
            results |= {} if own is None else {own: result}
            continue
        step = {"step_id": len(steps) + 1, "source": _SOURCES[message.role], "message": content}
        if message.started is not None and read_time(message.started) is not None:
            step["timestamp"] = message.started
        if message.role == "assistant":
            step |= _make_agent_fields(message, ids.get(index, ()))
            made_by.update(dict.fromkeys(ids.get(index, ()), step))
        if message.author == "demo":
            step["is_copied_context"] = True
        steps.append(step)
    for child in children:
        result = results.get(child.parent.call_id or "" if child.parent else "", {})
        result.setdefault("subagent_trajectory_ref", []).append({"trajectory_id": child.key})
    return steps


def _make_content(message: Message) -> str | list[dict[str, Any]]:
    """Text, or its pieces with the images between them that the format can name."""
    text = message.prefix + message.content
    shown = [p for p in message.parts if p.ref and p.media_type in _IMAGES and p.type == p.media_type.partition("/")[0]]
    return list_parts(text, shown, _make_image) if shown else text


def _make_image(part: Part) -> dict[str, Any]:
    return {"type": part.type, "source": {"media_type": part.media_type, "path": part.ref}}


def _make_agent_fields(message: Message, ids: Sequence[str]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    if message.reasoning:
        fields["reasoning_content"] = message.reasoning
    if message.tool_calls:
        fields["tool_calls"] = [_make_call(c, i) for c, i in zip(message.tool_calls, ids, strict=True)]
    if message.sampled is not None and (metrics := _make_metrics(message.sampled)):
        fields["metrics"] = metrics
    elif message.author == "environment" and not message.reasoning:
        fields["llm_call_count"] = 0
    return fields


def _make_call(call: ToolCall, own_id: str) -> dict[str, Any]:
    arguments = msgspec.Raw((normalize_object(call.arguments) or "{}").encode())
    return {"tool_call_id": own_id, "function_name": call.name, "arguments": arguments}


def _make_metrics(sampled: Sampled) -> dict[str, Any]:
    usage = sampled.usage
    fields = {
        "prompt_tokens": usage.prompt_tokens if usage else None,
        "completion_tokens": usage.completion_tokens if usage else None,
        "prompt_token_ids": sampled.prompt_token_ids or None,
        "completion_token_ids": sampled.token_ids or None,
        # JSON has no number for an infinite logprob.
        "logprobs": (all(map(math.isfinite, sampled.logprobs)) and sampled.logprobs) or None,
    }
    return {name: value for name, value in fields.items() if value is not None}


PLUGIN = Atif
