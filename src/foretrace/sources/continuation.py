"""Tell a conversation that has gone on from another one that has its key."""

from __future__ import annotations

import re

import msgspec

from foretrace.core.placeholders import PLACEHOLDER, USER_PLACEHOLDER
from foretrace.core.trace import Message, ToolCall, Trace, remove_run_details

_MARK = re.compile(re.sub(r"\?P<\w+>", "?:", f"{PLACEHOLDER.pattern}|{USER_PLACEHOLDER.pattern}"))


def goes_on_from(later: Trace, earlier: Trace) -> bool:
    """Whether `later` is `earlier` with something behind it.

    All before the last turn of the agent is the same (but for clocks and durations). That turn may have gone on: its
    text and calls begin with what they were. What answers it may have come since. A secret that only the end of the
    conversation gave away may stand in the earlier one: where the later has a placeholder, it may have anything.
    """
    if len(later.messages) < len(earlier.messages):
        return False
    last = max((i for i, message in enumerate(earlier.messages) if message.role == "assistant"), default=-1)
    same = zip(earlier.messages[: max(last, 0)], later.messages, strict=False)
    if not all(_is_same(old, new) for old, new in same):
        return False
    return last < 0 or _turn_goes_on(earlier.messages[last], later.messages[last])


def _turn_goes_on(earlier: Message, later: Message) -> bool:
    return (
        later.role == "assistant"
        and _fits(earlier.content, later.content, may_go_on=True)
        and _are_same(earlier.tool_calls, later.tool_calls[: len(earlier.tool_calls)])
    )


def _is_same(earlier: Message, later: Message) -> bool:
    old, new = remove_run_details(earlier), remove_run_details(later)
    if old == new:
        return True
    texts = zip((old.content, old.reasoning, old.prefix), (new.content, new.reasoning, new.prefix), strict=True)
    return (
        _remove_texts(old) == _remove_texts(new)
        and all(_fits(a or "", b or "") for a, b in texts)
        and _are_same(old.tool_calls, new.tool_calls)
    )


def _remove_texts(message: Message) -> Message:
    """The message without all that redaction may change."""
    return msgspec.structs.replace(
        message, content="", reasoning=None, prefix="", tool_calls=(), parts=(), extra={}, sampled=None
    )


def _are_same(earlier: tuple[ToolCall, ...], later: tuple[ToolCall, ...]) -> bool:
    return earlier == later or (
        len(earlier) == len(later)
        and all(a.id == b.id and a.name == b.name for a, b in zip(earlier, later, strict=True))
        and all(_fits(a.arguments, b.arguments) for a, b in zip(earlier, later, strict=True))
    )


def _fits(earlier: str, later: str, *, may_go_on: bool = False) -> bool:
    """Whether a text is the earlier one, with placeholders in the place of some of it.

    Args:
        may_go_on: It may also have more behind it.
    """
    if earlier == later or (may_go_on and later.startswith(earlier)):
        return True
    pieces = _MARK.split(later)
    if len(pieces) == 1 or not (earlier.startswith(pieces[0]) or (may_go_on and pieces[0].startswith(earlier))):
        return False
    at = len(pieces[0])
    for piece in pieces[1:-1]:
        found = earlier.find(piece, at)
        if found < 0:
            return may_go_on
        at = found + len(piece)
    return may_go_on or (earlier.endswith(pieces[-1]) and len(earlier) - len(pieces[-1]) >= at)
