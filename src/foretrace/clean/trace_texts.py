"""Go through all texts of a trace in a fixed order, to list them or to replace them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from foretrace.core.redactions import FIELD
from foretrace.core.trace import Message, Outcome, Part, Provenance, Sampled, ToolCall, ToolSpec, Trace
from foretrace.encodings.json_arguments import try_decode


class Rewriter(NamedTuple):
    """How texts are replaced."""

    text: Callable[[str], str]
    """Maps a text of a trace to its replacement. Called once for each text, in a fixed order."""
    identity: Callable[[str], str]
    """For keys and ids: the same result for the same text in every trace."""
    move: Callable[[str, int, bool], int]
    """Maps an offset in a text to one in its replacement; the flag says whether it is the end of a span."""
    mark: Callable[[], dict[str, int]]
    """What was replaced since the last call, by type: the texts of one message."""


def list_texts(trace: Trace) -> list[str]:
    """The texts of a trace, mappings as JSON. Times, numbers and fixed words are left out."""
    texts: list[str] = []

    def note(text: str) -> str:
        texts.append(text)
        return text

    rewrite_trace(trace, Rewriter(note, note, lambda _, offset, __: offset, dict))
    return texts


def rewrite_trace(trace: Trace, rewriter: Rewriter) -> Trace:
    """The trace with its texts replaced.

    Raises:
        ValueError: the replacement of a mapping is not a mapping, or that of JSON arguments not JSON.
    """
    text, identity, replace = rewriter.text, rewriter.identity, msgspec.structs.replace
    task, parent = trace.task, trace.parent
    return replace(
        trace,
        messages=tuple([_rewrite_message(message, rewriter) for message in trace.messages]),
        tools=tuple(
            ToolSpec(name=text(t.name), description=text(t.description), parameters=text(t.parameters))
            for t in trace.tools
        ),
        key=identity(trace.key),
        task=replace(
            task,
            id=identity(task.id),
            group=identity(task.group),
            statement=_apply(text, task.statement),
            extra=_rewrite_mapping(task.extra, rewriter),
        ),
        parent=parent and replace(parent, key=identity(parent.key), call_id=_apply(identity, parent.call_id)),
        extra=_rewrite_mapping(trace.extra, rewriter),
        outcome=_rewrite_outcome(trace, rewriter),
        provenance=_rewrite_origin(trace.provenance, rewriter),
    )


def _rewrite_outcome(trace: Trace, rewriter: Rewriter) -> Outcome:
    """Of our own metrics only the names are rewritten, since numbers after names such as `prompt_tokens` look like
    secrets, and differ between attempts."""
    is_ours = trace.provenance.origin == "generated"
    before: dict[str, Any] = msgspec.to_builtins(trace.outcome)
    if is_ours and before.get("metrics"):
        before["metrics"] = dict.fromkeys(before["metrics"], 0)
    after = _rewrite_mapping(before, rewriter)
    if after is before:
        return trace.outcome
    if is_ours and after.get("metrics"):
        numbers = [trace.outcome.metrics[name] for name in sorted(trace.outcome.metrics)]
        after["metrics"] = dict(zip(after["metrics"], numbers, strict=True))
    return msgspec.convert(after, Outcome)


def _rewrite_origin(origin: Provenance, rewriter: Rewriter) -> Provenance:
    """Rewrite the server's capabilities by themselves, since all attempts of a run share them."""
    capabilities = _rewrite_mapping(origin.capabilities, rewriter)
    fields: dict[str, Any] = msgspec.to_builtins(origin)
    facts = {name: value for name, value in fields.items() if name not in _NO_TEXTS}
    clean = _rewrite_mapping(facts, rewriter)
    if clean is facts and capabilities is origin.capabilities:
        return origin
    return msgspec.convert({**fields, **clean, "capabilities": capabilities}, Provenance)


_NO_TEXTS = ("transforms", "created_at", "origin", "capabilities")


def _rewrite_mapping(mapping: dict[str, Any], rewriter: Rewriter) -> dict[str, Any]:
    if not mapping:
        return mapping
    before = msgspec.json.encode(mapping, order="deterministic").decode()
    after = rewriter.text(before)
    return mapping if after == before else msgspec.json.decode(after, type=dict[str, Any])


def _apply(function: Callable[[str], str], text: str | None) -> str | None:
    return function(text) if text else text


def _rewrite_message(message: Message, rewriter: Rewriter) -> Message:
    text, before = rewriter.text, message.content
    content = text(before)
    reasoning = _apply(text, message.reasoning)
    prefix = text(message.prefix) if message.prefix else ""
    calls = tuple([_rewrite_call(call, before, rewriter) for call in message.tool_calls])
    extra = _rewrite_mapping(message.extra, rewriter)
    parts = tuple([_rewrite_part(part, before, rewriter) for part in message.parts])
    ids = tuple([rewriter.identity(call_id) for call_id in message.tool_call_ids])
    found = rewriter.mark()
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
    span, arguments = call.span, rewriter.text(call.arguments)
    if arguments != call.arguments and try_decode(call.arguments) is not None and try_decode(arguments) is None:
        raise ValueError("arguments are not JSON any more")
    return msgspec.structs.replace(
        call,
        arguments=arguments,
        error=_apply(rewriter.text, call.error),
        extra=_rewrite_mapping(call.extra, rewriter),
        id=rewriter.identity(call.id),
        name=rewriter.text(call.name),
        span=span and (rewriter.move(content, span[0], False), rewriter.move(content, span[1], True)),
    )


def _rewrite_part(part: Part, content: str, rewriter: Rewriter) -> Part:
    return msgspec.structs.replace(part, ref=_apply(rewriter.text, part.ref), at=rewriter.move(content, part.at, True))
