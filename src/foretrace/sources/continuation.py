"""Tell a continued conversation from a different one with the same key."""

from __future__ import annotations

from typing import Any

from foretrace.core.placeholders import PLACEHOLDER, USER_PLACEHOLDER
from foretrace.core.trace import Message, Trace


def goes_on_from(later: Trace, earlier: Trace) -> bool:
    """Whether `later` is `earlier` with something added: everything before the agent's last turn is the same, and that
    turn begins with its earlier version.

    The earlier text may contain a secret that was only detected because of the later part of the conversation: a text
    is not compared if the later one has a placeholder.
    """
    last = max((i for i, message in enumerate(earlier.messages) if message.role == "assistant"), default=0)
    if len(later.messages) < len(earlier.messages) or len(later.messages) <= last:
        return False
    pairs = zip(earlier.messages[:last], later.messages, strict=False)
    said, now = earlier.messages[last], later.messages[last]
    calls = _list_calls(said)
    is_same = said.role == now.role and calls == _list_calls(now)[: len(calls)]
    has_gone_on = now.content.startswith(said.content) or _fits(said.content, now.content)
    return is_same and has_gone_on and all(_is_same(old, new) for old, new in pairs)


def _is_same(old: Message, new: Message) -> bool:
    known = (old.role, old.author, old.tool_call_ids, _list_calls(old))
    return known == (new.role, new.author, new.tool_call_ids, _list_calls(new)) and _fits(old.content, new.content)


def _list_calls(message: Message) -> list[tuple[Any, ...]]:
    return [(call.id, call.name) for call in message.tool_calls]


def _fits(earlier: str, later: str) -> bool:
    return earlier == later or bool(PLACEHOLDER.search(later) or USER_PLACEHOLDER.search(later))
