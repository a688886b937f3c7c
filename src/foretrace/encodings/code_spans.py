"""Find the parts of a text that are quoted as code: Markdown's fences and text between backticks."""

from __future__ import annotations

import re

_FENCE = re.compile(r"^[ \t]*(`{3,}|~{3,})([^`\n]*)$", re.MULTILINE)
_TICKS = re.compile(r"`+|\n[ \t]*\n")


def find_code(text: str) -> list[tuple[int, int]]:
    """The spans of fences and of inline code, in order. An unclosed fence extends to the end of the text; a backtick
    that is not closed in its paragraph quotes nothing."""
    spans: list[tuple[int, int]] = []
    at = 0
    opening: re.Match[str] | None = None
    for mark in _FENCE.finditer(text):
        if opening is None:
            spans += _find_inline(text, at, mark.start())
            opening = mark
        elif mark[1].startswith(opening[1]) and not mark[2].strip():
            spans.append((opening.start(), mark.end()))
            opening, at = None, mark.end()
    return [*spans, (opening.start(), len(text))] if opening else [*spans, *_find_inline(text, at, len(text))]


def _find_inline(text: str, start: int, end: int) -> list[tuple[int, int]]:
    """Runs of backticks with the next run of the same length; a blank line ends the paragraph."""
    spans: list[tuple[int, int]] = []
    paragraph: list[re.Match[str]] = []
    for mark in _TICKS.finditer(text, start, end):
        if mark.group()[0] == "`":
            paragraph.append(mark)
        else:
            spans += _pair(paragraph)
            paragraph = []
    return spans + _pair(paragraph)


def _pair(rows: list[re.Match[str]]) -> list[tuple[int, int]]:
    spans: list[tuple[int, int]] = []
    last = {len(row.group()): number for number, row in enumerate(rows)}
    number = 0
    while number < len(rows):
        row = rows[number]
        size = len(row.group())
        number += 1
        if last[size] >= number:
            while len(rows[number].group()) != size:
                number += 1
            spans.append((row.start(), rows[number].end()))
            number += 1
    return spans
