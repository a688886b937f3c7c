"""ATIF trajectories, version 1.7 or 1.8: a document per trace, with the agents that it started.

A step is a message, and the agent's steps contain the results of their calls. Anything without a field in the format is
in the `extra` of a step, a result or the trajectory, under `foretrace`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from foretrace.core.errors import Setting, UsageError
from foretrace.core.trace import Message, Part, Sampled, ToolCall, Trace
from foretrace.encodings.call_forms import find_call_ids
from foretrace.exports.base import Exported, Family, FieldCounts, TraceFormat, find_losses, split_at_parts
from foretrace.rows.base import Drop
from foretrace.sources.own_fields import (
    FIELD,
    keep_message_fields,
    keep_trace_fields,
    normalize_object,
    write_tools,
)

VERSIONS = ("1.7", "1.8")
_IMAGES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
_SOUNDS = frozenset({
    "audio/wav", "audio/mpeg", "audio/mp4", "audio/aac", "audio/ogg", "audio/flac", "audio/webm", "audio/aiff"
})  # fmt: skip
_SOURCES = {"system": "system", "user": "user", "assistant": "agent", "tool": "user"}
_CARRIED = frozenset({
    "traces.key", "traces.model", "traces.agent", "traces.parent", "traces.tools", "messages.reasoning",
    "messages.parts", "messages.started", "messages.token_ids", "messages.logprobs", "messages.prompt_token_ids",
    "messages.usage", "results.tool_call_ids", "results.prefix", "results.parts", "calls.id",
})  # fmt: skip


class Atif(TraceFormat):
    """Read by Harbor, and by the source `atif`."""

    name = "atif"
    suffix: str | None = ".json"
    holds_families = True

    def __init__(self, version: str = VERSIONS[0]) -> None:
        if version not in VERSIONS:
            raise UsageError(
                Setting("format", f"atif:{version}"), f": ATIF is written in version {' or '.join(VERSIONS)}"
            )
        self._version = version

    def write(self, family: Family) -> Exported | Drop:
        """One document; an empty trace gives none."""
        if any(not trace.messages for trace in family.list_traces()):
            return Drop("no_messages")
        kept = FieldCounts()
        document = self._make_document(family, kept)
        return Exported(data=msgspec.json.encode(document) + b"\n", lost=FieldCounts(), kept=kept)

    def _make_document(self, family: Family, kept: FieldCounts) -> dict[str, Any]:
        trace = family.trace
        steps = _Steps(_IMAGES if self._version == "1.7" else _IMAGES | _SOUNDS)
        ids, answers = find_call_ids(trace.messages)
        for index, message in enumerate(trace.messages):
            steps.add(message, ids.get(index, ()), answers.get(index, ()))
        steps.refer_to([child.trace for child in family.children])
        kept.update(steps.kept)
        kept.update(find_losses(trace, _CARRIED))
        origin = trace.provenance
        name = origin.agent or origin.source or "unknown"
        agent: dict[str, Any] = {"name": name, "version": origin.tool_versions.get(name) or "unknown"}
        if origin.model is not None:
            agent["model_name"] = origin.model
        if trace.tools:
            agent["tool_definitions"] = write_tools(trace)
        document: dict[str, Any] = {
            "schema_version": f"ATIF-v{self._version}",
            "trajectory_id": trace.key,
            "agent": agent,
            "steps": steps.finish(),
            "extra": {FIELD: keep_trace_fields(trace)},
        }
        if family.children:
            document["subagent_trajectories"] = [self._make_document(c, kept) for c in family.children]
        return document


class _Steps:
    """The steps of one trajectory."""

    def __init__(self, media: frozenset[str]) -> None:
        self._media = media
        self._steps: list[dict[str, Any]] = []
        self._made_by: dict[str, int] = {}
        """The step that last made the call with each id."""
        self._results: dict[str, dict[str, Any]] = {}
        self._kept: list[dict[str, Any]] = []
        self._is_moved = False
        self.kept = FieldCounts()

    def add(self, message: Message, ids: Sequence[str], answers: Sequence[str]) -> None:
        """Add a message with the ids of its calls, or of the calls that it answers."""
        if message.role != "tool" or not self._add_result(message, answers):
            self._add_step(message, ids)

    def _add_step(self, message: Message, ids: Sequence[str]) -> None:
        is_agent = message.role == "assistant"
        step: dict[str, Any] = {"step_id": len(self._steps) + 1}
        if message.started is not None and _is_time(message.started):
            step["timestamp"] = message.started
        elif message.started is not None:
            self.kept["messages.started"] += 1
        step["source"] = _SOURCES[message.role]
        step["message"] = self._make_content(message)
        if is_agent:
            self._add_agent_fields(step, message, ids)
        if message.author == "demo":
            step["is_copied_context"] = True
        step["extra"] = {FIELD: self._keep(message, ids)}
        self._steps.append(step)

    def _add_agent_fields(self, step: dict[str, Any], message: Message, ids: Sequence[str]) -> None:
        if message.reasoning:
            step["reasoning_content"] = message.reasoning
        if message.tool_calls:
            step["tool_calls"] = [_make_call(c, i) for c, i in zip(message.tool_calls, ids, strict=True)]
            self._made_by.update(dict.fromkeys(ids, len(self._steps)))
        metrics = self._make_metrics(message.sampled) if message.sampled is not None else {}
        if metrics:
            step["metrics"] = metrics
        if message.author == "environment" and not metrics and not message.reasoning:
            step["llm_call_count"] = 0

    def _add_result(self, message: Message, answers: Sequence[str]) -> bool:
        """Whether the result was added: to the step with its call, or else to the last step if that is the agent's."""
        own = next((i for i in answers if i in self._made_by), None)
        last = len(self._steps) - 1
        if own is None and (last < 0 or self._steps[last]["source"] != "agent"):
            return False
        at = last if own is None else self._made_by[own]
        self._is_moved = self._is_moved or at != last
        step = self._steps[at]
        result: dict[str, Any] = {"source_call_id": own} if own is not None else {}
        result["content"] = self._make_content(message)
        is_error = {} if message.is_error is None else {"is_error": message.is_error}
        result["extra"] = {FIELD: self._keep(message, []), **is_error}
        step.setdefault("observation", {"results": []})["results"].append(result)
        if own is not None:
            self._results[own] = result
        return True

    def _keep(self, message: Message, ids: Sequence[str]) -> dict[str, Any]:
        sampled = message.sampled
        has_tokens = sampled is None or _is_exact_in_json(sampled)
        kept = keep_message_fields(message, has_tokens=has_tokens, call_ids=ids)
        self._kept.append(kept)
        return kept

    def _make_content(self, message: Message) -> str | list[dict[str, Any]]:
        """Text, or its pieces with the images between them that the format can name."""
        text = message.prefix + message.content
        shown = list(filter(self._can_show, message.parts))
        if len(shown) < len(message.parts):
            self.kept["results.parts" if message.role == "tool" else "messages.parts"] += 1
        return [*map(_make_piece, split_at_parts(text, shown))] if shown else text

    def _can_show(self, part: Part) -> bool:
        return bool(part.ref) and part.media_type in self._media and part.type == part.media_type.partition("/")[0]

    def _make_metrics(self, sampled: Sampled) -> dict[str, Any]:
        usage, logprobs = sampled.usage, sampled.logprobs
        if not _is_exact_in_json(sampled):
            self.kept["messages.logprobs"] += bool(logprobs)
            logprobs = ()
        fields = {
            "prompt_tokens": usage.prompt_tokens if usage else None,
            "completion_tokens": usage.completion_tokens if usage else None,
            "prompt_token_ids": sampled.prompt_token_ids or None,
            "completion_token_ids": sampled.token_ids or None,
            "logprobs": logprobs or None,
        }
        return {name: value for name, value in fields.items() if value is not None}

    def refer_to(self, children: list[Trace]) -> None:
        """Reference the trajectories of agents in the results of the calls that started them."""
        for child in children:
            call_id = child.parent.call_id if child.parent else None
            result = self._results.get(call_id or "")
            if result is not None:
                result.setdefault("subagent_trajectory_ref", []).append({"trajectory_id": child.key})

    def finish(self) -> list[dict[str, Any]]:
        """All steps. If a result moved to the step of its call, each message records its original place."""
        if self._is_moved:
            for place, kept in enumerate(self._kept):
                kept["place"] = place
        return self._steps


def _make_piece(piece: str | Part) -> dict[str, Any]:
    if isinstance(piece, str):
        return {"type": "text", "text": piece}
    return {"type": piece.type, "source": {"media_type": piece.media_type, "path": piece.ref}}


def _make_call(call: ToolCall, own_id: str) -> dict[str, Any]:
    arguments = msgspec.Raw((normalize_object(call.arguments) or "{}").encode())
    return {"tool_call_id": own_id, "function_name": call.name, "arguments": arguments}


def _is_exact_in_json(sampled: Sampled) -> bool:
    """Whether the metrics of a step can represent the tokens: JSON has no number for an infinite logprob."""
    return all(map(math.isfinite, sampled.logprobs)) and sampled.prompt_token_ids != ()


def _is_time(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


PLUGIN = Atif
