"""The text of each token of a reply whose server decodes every token by itself: half a character is U+FFFD then.

The whole text is decoded from the bytes of all tokens, and so it has the characters that the tokens share.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

_UNREADABLE = "\ufffd"
_MAX_POSITIONS = 512
"""Places in the text at which one token may end. There are more only in hundreds of such tokens in a row."""


def align_token_texts(text: str, shown: Sequence[str]) -> tuple[str, ...] | None:
    """The text of each token; a character that spans several is in the text of the last of them.

    Args:
        text: begins what the tokens spell; behind it the tokens say what they are shown with.
        shown: each token as it is decoded by itself. A token that is only a part of a character is U+FFFD, several
            times where its bytes are read so, or empty; others may lack a space at their beginning.

    Returns:
        `None` where the tokens do not spell the text, or far too much of it is unreadable.
    """
    steps: list[dict[int, tuple[int, str]]] = []
    positions = [0]
    for token in shown:
        found: dict[int, tuple[int, str]] = {}
        for before in positions:
            for after, beyond in _read_token(text, token, before):
                # What may belong to the text does, and a character is in the last of its tokens.
                if after not in found or len(beyond) <= len(found[after][1]):
                    found[after] = before, beyond
        if not 0 < len(found) <= _MAX_POSITIONS:
            return None
        steps.append(found)
        positions = sorted(found, reverse=True)
    position = len(text)
    if position not in positions:
        return None
    texts: list[str] = []
    for found in reversed(steps):
        before, beyond = found[position]
        texts.append(text[before:position] + beyond)
        position = before
    return tuple(reversed(texts))


def _read_token(text: str, token: str, start: int) -> Iterator[tuple[int, str]]:
    """Where a token may end that begins at `start`, and what it says behind the text."""
    if start == len(text) or not token:
        yield start, token
        return
    if _UNREADABLE not in token:
        for told in (token, " " + token):  # a tokenizer of words drops the space in front of one that stands alone
            if text.startswith(told, start):
                yield start + len(told), ""
            elif told.startswith(text[start:]):
                yield len(text), told[len(text) - start :]
        return
    positions = {start}
    for index, char in enumerate(token):
        reached: set[int] = set()
        for position in positions:
            if position == len(text):
                yield position, token[index:]
            elif char == text[position]:
                reached.add(position + 1)
            elif char == _UNREADABLE and not text[position].isascii():
                reached |= {position, position + 1}  # a part of the next character, or its last part
        positions = reached
    yield from ((position, "") for position in positions)
