"""Other ways to read a text: with its escapes undone, and with tokens joined that line breaks cut apart."""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Iterator
from typing import NamedTuple

_ESCAPE = re.compile(r"\\(?:u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|[nrtbf\"'/\\`$])")
_PERCENT = re.compile(r"%(?:2[0-9A-Fa-f]|3[0-9A-Fa-f]|40|5[BbDd]|7[BbDd])")
_BREAK = re.compile(
    r"(?<=[A-Za-z0-9_+/=.:-])[\"'`]?[ \t]*[+.&]?[ \t]*\\?\r?\n[ \t]*(?:(?:[+>|#*-]|//|\d{1,6}[\t|:])[ \t]*)?"
    r"(?:[+.&][ \t]+)?[bfru]?[\"'`]?(?=[A-Za-z0-9_+/=.-])"
)
"""A line break inside a token: with a shell's continuation, a program's string that goes on, a diff's or a quote's
mark."""
_PLAIN = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f"}
_MAX_ESCAPES = 3
"""How often an escaped text may have been escaped again."""


class View(NamedTuple):
    """A reading of a text."""

    text: str
    starts: array[int] | None = None
    """Where each character begins in the original; None where it is the original."""
    ends: array[int] | None = None
    """Where it ends there."""

    def find_span(self, start: int, end: int) -> tuple[int, int]:
        """Where in the original the characters from `start` to `end` stand; `end` is above `start`."""
        if self.starts is None or self.ends is None:
            return start, end
        return self.starts[start], self.ends[end - 1]

    def is_break(self, offset: int) -> bool:
        """Whether something was taken out in front of the character at `offset`."""
        if self.starts is None or self.ends is None or not 0 < offset < len(self.text):
            return False
        return self.starts[offset] != self.ends[offset - 1]

    def replace(self, pattern: re.Pattern[str], read: Callable[[str], str]) -> View | None:
        """The text with all matches of a pattern as what they stand for: one character, or none. None where there is
        no match."""
        text, at = self.text, 0
        if pattern.search(text) is None:
            return None
        starts = self.starts if self.starts is not None else _list_places(0, len(text))
        ends = self.ends if self.ends is not None else _list_places(1, len(text) + 1)
        parts: list[str] = []
        new_starts, new_ends = array("q"), array("q")
        for match in pattern.finditer(text):
            start, end = match.span()
            parts.append(text[at:start])
            new_starts += starts[at:start]
            new_ends += ends[at:start]
            if plain := read(match[0]):
                parts.append(plain)
                new_starts.append(starts[start])
                new_ends.append(ends[end - 1])
            at = end
        parts.append(text[at:])
        return View("".join(parts), new_starts + starts[at:], new_ends + ends[at:])


_PLACES = array("q", range(1 << 14))


def _list_places(start: int, stop: int) -> array[int]:
    """The numbers from `start` up to `stop`; cut out of a list, since counting takes long."""
    return _PLACES[start:stop] if stop <= len(_PLACES) else array("q", range(start, stop))


def read_in_other_ways(text: str) -> Iterator[View]:
    """The text itself, and with its escapes undone, as often as it was escaped."""
    view: View | None = View(text)
    yield view
    for _ in range(_MAX_ESCAPES):
        if "\\" not in view.text or (view := view.replace(_ESCAPE, _read_escape)) is None:
            break
        yield view
    if "%" in text and (plain := View(text).replace(_PERCENT, lambda found: chr(int(found[1:], 16)))) is not None:
        yield plain


def join_lines(view: View) -> View | None:
    """The text with tokens joined that stand on several lines; None where there is none."""
    return view.replace(_BREAK, lambda _: "") if "\n" in view.text else None


def _read_escape(found: str) -> str:
    return chr(int(found[2:], 16)) if found[1] in "ux" else _PLAIN.get(found[1], found[1])
