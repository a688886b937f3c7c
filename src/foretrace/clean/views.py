"""Other readings of a text: with its escapes decoded, and without terminal colors."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator

_ESCAPE = re.compile(r"(\\(?:u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|[nrtbf\"'/\\`$]))")
_PERCENT = re.compile(r"(%(?:2[0-9A-Fa-f]|3[0-9A-Fa-f]|40|5[BbDd]|7[BbDd]))")
_COLOR = re.compile(r"(\x1b\[[0-9;]{0,12}[mK])")
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

    def replace(self, pattern: re.Pattern[str], read: Callable[[str], str]) -> View | None:
        """The text with each match of a pattern, which is a single group, replaced by one character, or by none; `None`
        if there is no match."""
        parts = pattern.split(self.text)  # half the time of `sub`, which makes a match object for each
        parts[1::2] = map(read, parts[1::2])
        return View("".join(parts), self, pattern) if len(parts) > 1 else None

    def find_span(self, start: int, end: int) -> tuple[int, int]:
        """Start and end in the original of the characters from `start` to `end`; `end` is above `start`."""
        return (start, end) if self._before is None else (self._spans[start][0], self._spans[end - 1][1])

    @functools.cached_property
    def _spans(self) -> list[tuple[int, int]]:
        """Start and end in the original of each character. Computed only if a secret was found, which is rare."""
        if self._before is None or self._pattern is None:
            return [(place, place + 1) for place in range(len(self.text))]
        before = self._before._spans
        matches = [match.span() for match in self._pattern.finditer(self._before.text)]
        has_characters = len(self.text) > len(before) - sum(end - start for start, end in matches)
        spans: list[tuple[int, int]] = []
        at = 0
        for start, end in matches:
            spans += before[at:start]
            if has_characters:
                spans.append((before[start][0], before[end - 1][1]))
            at = end
        return spans + before[at:]


def read_in_other_ways(text: str) -> Iterator[View]:
    """The text itself, with each level of escapes decoded, and without terminal colors."""
    views = [View(text)]
    while len(views) <= _MAX_ESCAPES and "\\" in views[-1].text:
        if (decoded := views[-1].replace(_ESCAPE, _read_escape)) is None:
            break
        views.append(decoded)
    yield from views
    if "%" in text and (plain := views[0].replace(_PERCENT, lambda found: chr(int(found[1:], 16)))) is not None:
        yield plain
    for view in views:
        if "\x1b[" in view.text and (plain := view.replace(_COLOR, lambda _: "")) is not None:
            yield plain


@functools.lru_cache(maxsize=1 << 10)
def _read_escape(found: str) -> str:
    return chr(int(found[2:], 16)) if found[1] in "ux" else _PLAIN.get(found[1], found[1])
