"""List all texts of a trace in a fixed order, and rewrite the trace with other texts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import msgspec

from foretrace.core.redactions import FIELD
from foretrace.core.trace import Message, Outcome, Part, Sampled, ToolCall, ToolSpec, Trace

Replace = Callable[[str], str]
"""Maps a text of a trace to its replacement. Called once for each text, in a fixed order."""


class Rewriter(NamedTuple):
    """How texts are replaced."""

    text: Replace
    identity: Replace
    """For keys and ids: the same result for the same text in every trace."""
    move: Callable[[str, int, bool], int]
    """Maps an offset in a text to one in its replacement; the flag says whether it is the end of a span."""
    mark: Callable[[Message], dict[str, int]]
    """What was replaced since the last call, by type: the texts of one message."""


def list_texts(trace: Trace) -> Iterator[str]:
    """The texts of a trace, mappings as JSON. Times, numbers and fixed words are left out."""
    for message in trace.messages:
        yield message.content
        if message.reasoning:
            yield message.reasoning
        if message.prefix:
            yield message.prefix
        for call in message.tool_calls:
            yield call.arguments
            if call.error:
                yield call.error
            if call.extra:
                yield encode_mapping(call.extra)
            yield call.id
            yield call.name
        if message.extra:
            yield encode_mapping(message.extra)
        if message.parts:
            for part in message.parts:
                yield part.ref or ""
        yield from message.tool_call_ids
    for tool in trace.tools:
        yield tool.name
        yield tool.description
        yield tool.parameters
    yield from list_facts(trace)


def list_facts(trace: Trace) -> Iterator[str]:
    """The texts outside of the conversation, as JSON or as they are."""
    task, origin = trace.task, trace.provenance
    yield from (trace.key, task.id, task.group)
    if trace.parent is not None:
        yield trace.parent.key
        yield trace.parent.call_id or ""
    if task.statement:
        yield task.statement
    for mapping in (task.extra, trace.extra):
        if mapping:
            yield encode_mapping(mapping)
    yield encode_mapping(_read_outcome(trace))
    if origin.capabilities:
        yield encode_mapping(origin.capabilities)
    yield encode_mapping(_read_origin(origin))


def _read_outcome(trace: Trace) -> dict[str, Any]:
    """The outcome. Of our own metrics only the names, since numbers after names such as `prompt_tokens` look like
    secrets, and differ between attempts."""
    facts: dict[str, Any] = msgspec.to_builtins(trace.outcome)
    if trace.provenance.origin == "generated" and facts.get("metrics"):
        facts["metrics"] = dict.fromkeys(facts["metrics"], 0)
    return facts


def _read_origin(origin: Any) -> dict[str, Any]:
    """Where the trace comes from, without the server's capabilities, which all attempts of a run share."""
    facts: dict[str, Any] = msgspec.to_builtins(origin)
    left_out = ("transforms", "created_at", "origin", "capabilities")
    return {name: value for name, value in facts.items() if name not in left_out}


def encode_mapping(mapping: Any) -> str:
    """A mapping as JSON text."""
    return msgspec.json.encode(mapping, order="deterministic").decode()


def rewrite_trace(trace: Trace, rewriter: Rewriter) -> Trace:
    """The trace with its texts replaced.

    Raises:
        msgspec.MsgspecError: the replacement of a mapping is not a mapping.
    """
    messages = tuple(_rewrite_message(message, rewriter) for message in trace.messages)
    tools = tuple(
        ToolSpec(
            name=rewriter.text(t.name), description=rewriter.text(t.description), parameters=rewriter.text(t.parameters)
        )
        for t in trace.tools
    )
    task, parent = trace.task, trace.parent
    task = msgspec.structs.replace(
        task,
        id=rewriter.identity(task.id),
        group=rewriter.identity(task.group),
        statement=rewriter.text(task.statement) if task.statement else task.statement,
        extra=_rewrite_mapping(task.extra, rewriter),
    )
    if parent is not None:
        call_id = rewriter.identity(parent.call_id) if parent.call_id else parent.call_id
        parent = msgspec.structs.replace(parent, key=rewriter.identity(parent.key), call_id=call_id)
    extra = _rewrite_mapping(trace.extra, rewriter)
    outcome = _rewrite_outcome(trace, rewriter)
    origin: dict[str, Any] = msgspec.to_builtins(trace.provenance)
    if trace.provenance.capabilities:
        origin["capabilities"] = _rewrite_mapping(trace.provenance.capabilities, rewriter)
    origin |= _rewrite_mapping(_read_origin(trace.provenance), rewriter)
    return msgspec.structs.replace(
        trace,
        key=rewriter.identity(trace.key),
        messages=messages,
        tools=tools,
        task=task,
        parent=parent,
        extra=extra,
        outcome=outcome,
        provenance=msgspec.convert(origin, type(trace.provenance)),
    )


def _rewrite_outcome(trace: Trace, rewriter: Rewriter) -> Outcome:
    before = _read_outcome(trace)
    after = _rewrite_mapping(before, rewriter)
    if after is before:
        return trace.outcome
    if after.get("metrics") and trace.provenance.origin == "generated":
        numbers = [trace.outcome.metrics[name] for name in sorted(trace.outcome.metrics)]
        after["metrics"] = dict(zip(after["metrics"], numbers, strict=True))
    return msgspec.convert(after, Outcome)


def _rewrite_mapping(mapping: dict[str, Any], rewriter: Rewriter) -> dict[str, Any]:
    if not mapping:
        return mapping
    before = encode_mapping(mapping)
    after = rewriter.text(before)
    return mapping if after == before else msgspec.json.decode(after, type=dict[str, Any])


def _rewrite_message(message: Message, rewriter: Rewriter) -> Message:
    text = rewriter.text
    before = message.content
    content = text(before)
    reasoning = text(message.reasoning) if message.reasoning else message.reasoning
    prefix = text(message.prefix) if message.prefix else message.prefix
    calls = tuple(_rewrite_call(call, before, rewriter) for call in message.tool_calls)
    extra = _rewrite_mapping(message.extra, rewriter)
    parts = tuple(_rewrite_part(part, before, rewriter) for part in message.parts)
    ids = tuple(rewriter.identity(call_id) for call_id in message.tool_call_ids)
    found = rewriter.mark(message)
    if not found and ids == message.tool_call_ids:
        return message
    sampled = message.sampled
    if found and sampled is not None:  # its token ids spell the secret
        sampled = Sampled(finish_reason=sampled.finish_reason, usage=sampled.usage)
    return msgspec.structs.replace(
        message,
        content=content,
        reasoning=reasoning,
        prefix=prefix,
        tool_calls=calls,
        parts=parts,
        tool_call_ids=ids,
        sampled=sampled,
        extra={**extra, FIELD: found} if found else extra,
    )


def _rewrite_call(call: ToolCall, content: str, rewriter: Rewriter) -> ToolCall:
    span = call.span
    if span is not None:
        span = rewriter.move(content, span[0], False), rewriter.move(content, span[1], True)
    arguments = rewriter.text(call.arguments)
    error = rewriter.text(call.error) if call.error else call.error
    extra = _rewrite_mapping(call.extra, rewriter)
    call_id, name = rewriter.identity(call.id), rewriter.text(call.name)
    return msgspec.structs.replace(
        call, id=call_id, name=name, arguments=arguments, error=error, extra=extra, span=span
    )


def _rewrite_part(part: Part, content: str, rewriter: Rewriter) -> Part:
    ref = rewriter.text(part.ref) if part.ref else part.ref
    return msgspec.structs.replace(part, ref=ref, at=rewriter.move(content, part.at, True))
