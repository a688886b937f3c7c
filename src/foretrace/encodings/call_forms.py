"""The messages of a trace as chat messages, with calls as the agent wrote them or all in one form."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from foretrace.core.trace import Message, ToolCall, Trace
from foretrace.encodings.calls_in_text import remove_calls
from foretrace.encodings.json_calls import TOOL_CALL_JSON

CallForm = Literal["verbatim", "native", "xml"]
"""How calls are written. `verbatim`: calls that the agent wrote in its text stay there unchanged, and their results are
user messages. `native`: all calls are separate from the text. `xml`: all calls are `<tool_call>` blocks with JSON in
the text, and their results `<tool_response>` blocks of the user."""

_RESPONSE = "<tool_response>\n{}\n</tool_response>"


def choose_form(trace: Trace) -> CallForm:
    """The form that the trace's own instructions ask for: those of a generated trace ask for calls in the text."""
    return "verbatim" if trace.provenance.origin == "generated" else "native"


def write_calls(messages: Iterable[Message], form: CallForm) -> list[Message]:
    """The messages with their calls in this form; unchanged for `native`.

    Results that the agent saw as one message become one. A result inside the agent's own turn (`injected`) also becomes
    a user message, since no chat format has a place for it.
    """
    if form == "native":
        return list(messages)
    written: list[Message] = []
    is_apart: dict[str, bool] = {}
    """By call id: whether the last call with this id stays separate from the text."""
    for message in merge_spans(messages) if form == "xml" else messages:
        if message.role == "assistant":
            after = _write_in_text(message, all_calls=form == "xml")
            is_apart.update((call.id, call in after.tool_calls) for call in message.tool_calls)
            written.append(after)
        elif message.role != "tool" or any(is_apart.get(own, False) for own in message.tool_call_ids or ("",)):
            written.append(message)
        else:
            answer = _make_answer(message, as_block=form == "xml" and not message.injected)
            before = written[-1] if written else None
            if before is not None and _is_same_answer(before, answer):
                written[-1] = msgspec.structs.replace(before, content=f"{before.content}\n{answer.content}")
            else:
                written.append(answer)
    return written


def _is_same_answer(before: Message, answer: Message) -> bool:
    """Whether the agent saw both as one message: from the environment, in one turn, and not inside the agent's."""
    are_of_environment = before.role == "user" and before.author == answer.author == "environment"
    return are_of_environment and before.turn == answer.turn and not (before.injected or answer.injected)


def _make_answer(result: Message, *, as_block: bool) -> Message:
    text = result.prefix + result.content
    content = _RESPONSE.format(text) if as_block else text
    return msgspec.structs.replace(result, role="user", content=content, prefix="", tool_call_ids=(), is_error=None)


def _write_in_text(message: Message, *, all_calls: bool) -> Message:
    """The message with the calls of its text only there. With `all_calls`, readable calls are blocks after the text."""
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
    """The messages, with adjacent spans of one turn of the model merged: contents joined, calls in order."""
    found: list[Message] = []
    for message in messages:
        if found and message.continues and _is_adjacent(found[-1], message):
            found[-1] = _join(found[-1], message)
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


def find_call_ids(messages: Sequence[Message]) -> tuple[dict[int, tuple[str, ...]], dict[int, tuple[str, ...]]]:
    """By index of the message: the ids of the calls that it makes, and of those that it answers."""
    ids: dict[int, tuple[str, ...]] = {}
    answered: dict[int, tuple[str, ...]] = {}
    waiting: tuple[str, ...] = ()
    for index, message in enumerate(messages):
        made = tuple(call.id or f"call_{index}_{n}" for n, call in enumerate(message.tool_calls))
        if message.role == "assistant":
            waiting = made
        elif message.role == "tool":
            # By its own ids, otherwise by its position after the calls; the last result answers all remaining calls.
            is_last = not any(m.role == "tool" for m in messages[index + 1 : index + 2])
            own = message.tool_call_ids or (waiting if is_last else waiting[:1])
            waiting = tuple(each for each in waiting if each not in own)
            answered[index] = own
        if made:
            ids[index] = made
    return ids, answered
