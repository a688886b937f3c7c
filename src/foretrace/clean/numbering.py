"""Number the secrets of a trace, so that each has its own placeholder."""

from __future__ import annotations

import functools
import itertools
from collections import defaultdict

from foretrace.core.placeholders import PLACEHOLDER, USER_NAME, USER_PLACEHOLDER, make_placeholder


class Numbering:
    """Numbers the secrets of a trace within their type, in order of appearance.

    A text that already has the form of a placeholder counts as a secret too: it stays as it is if no other secret has
    it yet, so that no two secrets share a placeholder.
    """

    def __init__(self) -> None:
        self._given: dict[tuple[str, str], str] = {}
        self._taken: set[str] = set()
        self._numbers: dict[str, itertools.count[int]] = defaultdict(functools.partial(itertools.count, 1))

    def replace(self, type: str, value: str) -> str:
        """The placeholder of a secret."""
        mark = self._given.get((type, value))
        if mark is None:
            is_own = is_placeholder(value) and value not in self._taken
            marks = (make_placeholder(type, number) for number in self._numbers[type])
            mark = value if is_own else next(mark for mark in marks if mark not in self._taken)
            self._given[type, value] = mark
            self._taken.add(mark)
        return mark


def is_placeholder(text: str) -> bool:
    """Whether a text is the placeholder of a secret."""
    return PLACEHOLDER.fullmatch(text) is not None or USER_PLACEHOLDER.fullmatch(text) is not None


def list_placeholders(text: str) -> list[tuple[int, int, str, str]]:
    """Start, end, type and text of each placeholder in a text."""
    found = [(m.start(), m.end(), m["type"], m[0]) for m in PLACEHOLDER.finditer(text)] if "<SECRET:" in text else []
    if "redacted-user-" in text:
        found += [(m.start(), m.end(), USER_NAME, m[0]) for m in USER_PLACEHOLDER.finditer(text)]
    return found
