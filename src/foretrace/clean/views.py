"""Other readings of a text: with its escapes decoded, and without terminal colors."""

from __future__ import annotations

import bisect
import functools
import re
from collections.abc import Callable, Iterator

_ESCAPE = re.compile(r"(\\(?:u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|[nrtbf\"'/\\`$]))")
_PERCENT = re.compile(r"(%(?:2[0-9A-Fa-f]|3[0-9A-Fa-f]|40|5[BbDd]|7[BbDd]))")
_COLOR = re.compile(r"\x1b\[[0-9;]{0,12}[mK]")
"""A terminal color, which `grep` puts around each match."""
_PLAIN = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f"}
_MAX_ESCAPES = 3
"""Most levels of escaping that are decoded."""


class View:
    """One reading of a text, with the way back to offsets in the original."""

    def __init__(self, text: str, before: View | None = None, pattern: re.Pattern[str] | None = None) -> None:
        self.text = text
        self._before = before
        """The reading that this one was made from by replacing each match of the pattern; None for the original."""
        self._pattern = pattern

    def find_span(self, start: int, end: int) -> tuple[int, int]:
        """Start and end in the original of the characters from `start` to `end`; `end` is above `start`."""
        if self._before is None:
            return start, end
        return self._before.find_span(self._find_character(start)[0], self._find_character(end - 1)[1])

    def replace(self, pattern: re.Pattern[str], read: Callable[[str], str]) -> View | None:
        """The text with each match of a pattern, which is a single group, replaced by one character; None if there is
        no match."""
        parts = pattern.split(self.text)  # half the time of `sub`, which makes a match object for each
        parts[1::2] = map(read, parts[1::2])
        return View("".join(parts), self, pattern) if len(parts) > 1 else None

    def remove(self, pattern: re.Pattern[str]) -> View | None:
        """The text without the matches of a pattern; None if there is no match."""
        text, count = pattern.subn("", self.text)
        return View(text, self, pattern) if count else None

    @functools.cached_property
    def _matches(self) -> tuple[list[int], list[tuple[int, int]], int]:
        """Where each match is in this text, where it is in the previous one, and its new length. Computed only if a
        secret was found, which is rare."""
        assert self._before is not None and self._pattern is not None
        spans = [match.span() for match in self._pattern.finditer(self._before.text)]
        removed = len(self._before.text) - len(self.text)
        width = (sum(end - start for start, end in spans) - removed) // len(spans)
        places, shorter = list[int](), 0
        for start, end in spans:
            places.append(start - shorter)
            shorter += end - start - width
        return places, spans, width

    def _find_character(self, offset: int) -> tuple[int, int]:
        """Start and end, in the previous text, of the character at `offset`."""
        places, spans, width = self._matches
        index = bisect.bisect_right(places, offset) - 1
        if index < 0:
            return offset, offset + 1
        start, end = spans[index]
        if offset < places[index] + width:
            return start, end
        at = end + offset - places[index] - width
        return at, at + 1


def read_in_other_ways(text: str) -> Iterator[View]:
    """The text itself, with each level of escapes decoded, and without terminal colors."""
    views = [View(text)]
    while len(views) <= _MAX_ESCAPES and "\\" in views[-1].text:
        if (decoded := views[-1].replace(_ESCAPE, _read_escape)) is None:
            break
        views.append(decoded)
    yield from views
    if "%" in text and (plain := View(text).replace(_PERCENT, lambda found: chr(int(found[1:], 16)))) is not None:
        yield plain
    for view in views:
        if "\x1b[" in view.text and (plain := view.remove(_COLOR)) is not None:
            yield plain


@functools.lru_cache(maxsize=1 << 10)
def _read_escape(found: str) -> str:
    return chr(int(found[2:], 16)) if found[1] in "ux" else _PLAIN.get(found[1], found[1])
