"""Times of messages from the timestamps in their own records, by the rules of `conversation`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from foretrace.core.trace import Message
from foretrace.sources.conversation import FLUSH_S, read_time, write_time

_STAMPS = ("timestamp", "ts", "created_at", "createdAt", "created", "time", "datetime", "date")
_HOLDERS = ("message", "metadata")
"""Keys of objects in a record that may hold its timestamp."""
_FIRST = 1e9
"""Seconds since 1970 (in 2001): a smaller number is not counted from 1970."""


def read_stamps(turns: Iterable[tuple[int | None, dict[str, Any]]]) -> dict[int, float]:
    """The timestamp of each turn that has one, in seconds since 1970, by position."""
    found = ((place, _find_stamp(item)) for place, item in turns)
    return {place: at for place, at in found if place is not None and at is not None}


def add_times(messages: tuple[Message, ...], stamps: dict[int, float]) -> tuple[Message, ...]:
    """Add to each message when it was written, and how long that took.

    The time of a reply is counted from the message before it: if the model writes a reply in several records, each is a
    message, and their times must not overlap. The time of a tool is counted from its call.
    """
    timed: list[Message] = []
    called: dict[str, float | None] = {}
    latest: float | None = None
    said: float | None = None
    for message in messages:
        at = None if message.raw_index is None else stamps.get(message.raw_index)
        fields: dict[str, Any] = {} if at is None else {"started": write_time(at)}
        begin = None
        if message.role == "assistant":
            begin, said = latest, at
            called.update((call.id, at) for call in message.tool_calls if call.id)
        elif message.role == "tool":
            known = [stamp for own in message.tool_call_ids if (stamp := called.get(own)) is not None]
            begin = max(known, default=None) if message.tool_call_ids else said
        if begin is not None and at is not None and at - begin >= FLUSH_S:
            name = "model_s" if message.role == "assistant" else "tool_s"
            fields |= {name: round(at - begin, 6), f"{name}_source": "stamps"}
        latest = at if at is not None else latest
        timed.append(msgspec.structs.replace(message, **fields) if fields else message)
    return tuple(timed)


def _find_stamp(item: dict[str, Any]) -> float | None:
    for holder in (item, *(item.get(key) for key in _HOLDERS)):
        if not isinstance(holder, dict):
            continue
        for key in _STAMPS:
            at = read_time(holder[key]) if key in holder else None
            if at is not None and at >= _FIRST:
                return at
    return None
