"""Other ways to read a text: with its escapes undone, and without the colors of a terminal."""

from __future__ import annotations

import bisect
import functools
import re
from collections.abc import Callable, Iterator

_ESCAPE = re.compile(r"(\\(?:u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|[nrtbf\"'/\\`$]))")
_PERCENT = re.compile(r"(%(?:2[0-9A-Fa-f]|3[0-9A-Fa-f]|40|5[BbDd]|7[BbDd]))")
_COLOUR = re.compile(r"\x1b\[[0-9;]{0,12}[mK]")
"""What a terminal does not show: `grep` puts it around each match."""
_PLAIN = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f"}
_MAX_ESCAPES = 3
"""How often an escaped text may have been escaped again."""


class View:
    """A reading of a text."""

    def __init__(self, text: str, before: View | None = None, pattern: re.Pattern[str] | None = None) -> None:
        self.text = text
        self._before = before
        """The reading that this one was made of, each match of the pattern being replaced; None for the original."""
        self._pattern = pattern

    def find_span(self, start: int, end: int) -> tuple[int, int]:
        """Where in the original the characters from `start` to `end` stand; `end` is above `start`."""
        if self._before is None:
            return start, end
        return self._before.find_span(self._find_character(start)[0], self._find_character(end - 1)[1])

    def replace(self, pattern: re.Pattern[str], read: Callable[[str], str]) -> View | None:
        """The text with all matches of a pattern, which is one group, as the one character each stands for. None where
        there is none."""
        parts = pattern.split(self.text)  # half the time of `sub`, which makes a match for each
        parts[1::2] = map(read, parts[1::2])
        return View("".join(parts), self, pattern) if len(parts) > 1 else None

    def remove(self, pattern: re.Pattern[str]) -> View | None:
        """The text without the matches of a pattern. None where there is none."""
        text, count = pattern.subn("", self.text)
        return View(text, self, pattern) if count else None

    @functools.cached_property
    def _matches(self) -> tuple[list[int], list[tuple[int, int]], int]:
        """Where each match is in this text, where it is in the text before, and how many characters it became: found
        out only where something was found, which is seldom."""
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
        """Where the character at `offset` stands in the text before."""
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
    """The text itself, with its escapes undone, as often as it was escaped, and without the colors of a terminal."""
    view: View | None = View(text)
    yield view
    for _ in range(_MAX_ESCAPES):
        if "\\" not in view.text or (view := view.replace(_ESCAPE, _read_escape)) is None:
            break
        yield view
    if "%" in text and (plain := View(text).replace(_PERCENT, lambda found: chr(int(found[1:], 16)))) is not None:
        yield plain
    if "\x1b[" in text and (plain := View(text).remove(_COLOUR)) is not None:
        yield plain


@functools.lru_cache(maxsize=1 << 10)
def _read_escape(found: str) -> str:
    return chr(int(found[2:], 16)) if found[1] in "ux" else _PLAIN.get(found[1], found[1])
