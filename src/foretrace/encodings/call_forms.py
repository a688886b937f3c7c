"""The messages of a trace as chat messages: calls as the agent wrote them, or all in one form."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

from foretrace.core.trace import Message, ToolCall, Trace
from foretrace.encodings.calls_in_text import remove_calls
from foretrace.encodings.json_calls import TOOL_CALL_JSON

CallForm = Literal["verbatim", "native", "xml"]
"""How calls are written. `verbatim`: those that the agent wrote in its text stay there, character for character, and
what answered them is a user's message, as the agent saw it. `native`: all calls are apart from the text. `xml`: all
calls are `<tool_call>` blocks with JSON in the text, and their results `<tool_response>` blocks of the user."""

_RESPONSE = "<tool_response>\n{}\n</tool_response>"


def choose_form(trace: Trace) -> CallForm:
    """The form in which a trace says what its agent was asked to write: the instructions of a generated trace ask for
    calls in the text."""
    return "verbatim" if trace.provenance.origin == "generated" else "native"


def write_calls(messages: Iterable[Message], form: CallForm) -> list[Message]:
    """The messages with their calls in this form, as many as there were; for `xml`, the spans of a turn as one."""
    if form == "native":
        return list(messages)
    written: list[Message] = []
    native: set[str] = set()
    """Ids of calls that stay apart from the text; "" for one without an id."""
    for message in merge_spans(messages) if form == "xml" else messages:
        if message.role == "assistant":
            message = _write_in_text(message, all_calls=form == "xml")
            native.update(call.id for call in message.tool_calls)
        elif message.role == "tool" and not native.intersection(message.tool_call_ids or ("",)):
            text = message.prefix + message.content
            message = msgspec.structs.replace(
                message,
                role="user",
                content=text if form == "verbatim" or message.injected else _RESPONSE.format(text),
                prefix="",
                tool_call_ids=(),
                is_error=None,
            )
        written.append(message)
    return written


def _write_in_text(message: Message, *, all_calls: bool) -> Message:
    """The message without the calls that stand in its text; with `all_calls`, those that can be read are blocks behind
    the text."""
    if not all_calls:
        apart = tuple(call for call in message.tool_calls if call.span is None)
        return msgspec.structs.replace(message, tool_calls=apart)
    readable = tuple(call for call in message.tool_calls if call.error is None)
    if not readable:
        return msgspec.structs.replace(message, tool_calls=())
    text = remove_calls(msgspec.structs.replace(message, tool_calls=readable))
    blocks = map(TOOL_CALL_JSON.render, readable)
    return msgspec.structs.replace(message, content="\n".join([*([text] if text else []), *blocks]), tool_calls=())


def merge_spans(messages: Iterable[Message]) -> list[Message]:
    """The messages, with adjacent spans of one turn as one: the agent's contents joined, calls in their order, and
    answers that were one message for the agent on lines of their own."""
    found: list[Message] = []
    for message in messages:
        if found and message.continues and _is_adjacent(found[-1], message):
            found[-1] = _join(found[-1], message)
        elif found and _is_same_answer(found[-1], message):
            found[-1] = msgspec.structs.replace(found[-1], content=f"{found[-1].content}\n{message.content}")
        else:
            found.append(message)
    return found


def _is_adjacent(one: Message, other: Message) -> bool:
    return (
        one.role == other.role == "assistant"
        and (one.turn, one.author, one.train) == (other.turn, other.author, other.train)
        and not one.injected
        and not other.injected
    )


def _is_same_answer(one: Message, other: Message) -> bool:
    return (
        one.role == other.role == "user"
        and one.author == other.author == "environment"
        and one.turn == other.turn
        and not (one.injected or other.injected or one.parts or other.parts)
    )


def _join(one: Message, other: Message) -> Message:
    at = len(one.content)
    calls: list[ToolCall] = [
        msgspec.structs.replace(c, span=None if c.span is None else (c.span[0] + at, c.span[1] + at))
        for c in other.tool_calls
    ]
    thoughts = [text for text in (one.reasoning, other.reasoning) if text is not None]
    return msgspec.structs.replace(
        one,
        content=one.content + other.content,
        reasoning="\n\n".join(thoughts) if thoughts else None,
        tool_calls=(*one.tool_calls, *calls),
        parts=(*one.parts, *(msgspec.structs.replace(part, at=part.at + at) for part in other.parts)),
        sampled=None,
    )
