"""The texts by which traces are compared: the statement of the task, and what the agent did."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from foretrace.core.digest import digest
from foretrace.core.trace import Message, Trace

_MAX_ACTION = 400
"""Characters of an action that are kept as they are; the rest is replaced by a digest."""
_MAX_ACTIONS = 256


def find_statement(trace: Trace) -> str | None:
    """The statement of the task as the source gives it, else what the user wrote before the agent's first call (in a
    conversation without calls, before its first message); `None` if there is none."""
    if trace.task.statement and trace.task.statement.strip():
        return trace.task.statement
    written: list[str] = []
    has_calls = any(_is_of_agent(message) and message.tool_calls for message in trace.messages)
    for message in trace.messages:
        if _is_of_agent(message) and (message.tool_calls or not has_calls):
            break
        if message.role == "user" and message.author == "user":
            written.append(message.content)
    text = "\n".join(written)
    return text if text.strip() else None


def list_actions(trace: Trace) -> list[str]:
    """What the agent did, in order: the tool and arguments of each call, or the text of a message without calls."""
    actions: list[str] = []
    for message in trace.messages:
        if not _is_of_agent(message):
            continue
        texts = [f"{call.name} {_spell_arguments(call.arguments)}" for call in message.tool_calls] or [message.content]
        actions += [_shorten(text) for text in texts if text.strip()]
        if len(actions) >= _MAX_ACTIONS:
            break
    return actions[:_MAX_ACTIONS]


def _is_of_agent(message: Message) -> bool:
    return message.role == "assistant" and message.author != "demo"


def _shorten(text: str) -> str:
    return text if len(text) <= _MAX_ACTION else f"{text[:_MAX_ACTION]} x{digest(text)}"


def _spell_arguments(arguments: str) -> str:
    try:
        return " ".join(_list_values(msgspec.json.decode(arguments)))
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return arguments


def _list_values(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for name in sorted(value):
            yield name
            yield from _list_values(value[name])
    elif isinstance(value, list):
        for each in value:
            yield from _list_values(each)
    else:
        yield str(value)
