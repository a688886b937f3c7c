"""Tell a conversation that has gone on from another one that has its key."""

from __future__ import annotations

from typing import Any

from foretrace.core.placeholders import PLACEHOLDER, USER_PLACEHOLDER
from foretrace.core.trace import Message, Trace


def goes_on_from(later: Trace, earlier: Trace) -> bool:
    """Whether `later` is `earlier` with something behind it: all before the last turn of the agent is the same, and
    that turn begins with what it was.

    A secret that only the end of the conversation gave away may stand in the earlier one: where the later text has a
    placeholder, it is not compared.
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
