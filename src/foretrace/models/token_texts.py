"""The text of each token of a reply whose server decodes every token by itself: half a character is U+FFFD then.

The whole text is decoded from the bytes of all tokens, and so it has the characters that the tokens share.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

_UNREADABLE = "\ufffd"
_MAX_POSITIONS = 512
"""Places in the text at which one token may end. There are more only in hundreds of such tokens in a row."""


class _Position(NamedTuple):
    """How far the tokens so far have come in the text."""

    chars: int
    """Characters that they spell."""
    parts: int = 0
    """Parts of the next character that they have brought, each of one or more bytes."""


class _Step(NamedTuple):
    """How a token came to a position."""

    before: _Position
    beyond: str = ""
    """What it says behind the end of the text."""


def align_token_texts(text: str, shown: Sequence[str]) -> tuple[str, ...] | None:
    """The text of each token; a character that spans several is in the text of the last of them.

    Args:
        text: begins what the tokens spell; behind it the tokens say what they are shown with.
        shown: each token as it is decoded by itself. A token that is only a part of a character is U+FFFD, several
            times where its bytes are read so, or empty; others may lack a space at their beginning.

    Returns:
        `None` where the tokens do not spell the text, or far too much of it is unreadable.
    """
    steps: list[dict[_Position, _Step]] = []
    positions = [_Position(0)]
    for token in shown:
        found: dict[_Position, _Step] = {}
        for before in positions:
            for after, beyond in _read_token(text, token, before):
                # What may belong to the text does: the last part of its last character.
                if after not in found or len(beyond) < len(found[after].beyond):
                    found[after] = _Step(before, beyond)
        if not 0 < len(found) <= _MAX_POSITIONS:
            return None
        steps.append(found)
        positions = list(found)
    position = _Position(len(text))
    if position not in positions:
        return None
    texts: list[str] = []
    for found in reversed(steps):
        before, beyond = found[position]
        texts.append(text[before.chars : position.chars] + beyond)
        position = before
    return tuple(reversed(texts))


def _read_token(text: str, token: str, start: _Position) -> Iterator[tuple[_Position, str]]:
    """Where a token may end that begins at `start`, and what it says behind the text."""
    end = _Position(len(text))
    if start == end:
        yield end, token
        return
    if not token:
        yield start, ""
        if (after := _add_part(text, start)) is not None:
            yield after, ""
        return
    if _UNREADABLE not in token:
        if not start.parts:
            yield from _read_plain(text, token, start.chars)
        return
    positions = {start}
    for index, char in enumerate(token):
        reached: set[_Position] = set()
        for position in positions:
            if position == end:
                yield end, token[index:]
                continue
            if char == text[position.chars] and not position.parts:
                reached.add(_Position(position.chars + 1))
            if char == _UNREADABLE:
                reached.update(_read_part(text, position))
        positions = reached
    yield from ((position, "") for position in positions)


def _read_plain(text: str, token: str, at: int) -> Iterator[tuple[_Position, str]]:
    for space in ("", " "):  # a tokenizer of words drops the space in front of one that stands alone
        told = space + token
        if text.startswith(told, at):
            yield _Position(at + len(told)), ""
        elif told.startswith(text[at:]):
            yield _Position(len(text)), told[len(text) - at :]


def _read_part(text: str, position: _Position) -> Iterator[_Position]:
    """Where one more part of the next character leads: it may be the last part of it or not."""
    if position.parts and not text[position.chars].isascii():
        yield _Position(position.chars + 1)
    if (more := _add_part(text, position)) is not None:
        yield more


def _add_part(text: str, position: _Position) -> _Position | None:
    """The same place with one more part of a character that goes on behind it; `None` where it has no more."""
    code = ord(text[position.chars])
    size = 1 + (code > 0x7F) + (code > 0x7FF) + (code > 0xFFFF)
    return _Position(position.chars, position.parts + 1) if position.parts + 1 < size else None
