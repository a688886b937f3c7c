"""Compare a program's output with the expected output."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator

_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|[-+]?(?:inf|infinity|nan)", re.IGNORECASE)
_LINE_END = re.compile(r"\r\n|\n|\r")
_MAX_TOKEN_CHARS = 400
"""Longest token that may be read as a number, characters."""


def same_output(printed: str, expected: str, tolerance: float | None = None) -> bool:
    """Whether a program printed the expected output.

    All line ends are the same (`\\n`, `\\r\\n`, `\\r`). Blanks at the end of a line and blank lines at the end of the
    output are ignored. With a tolerance, the words of each line are compared one by one, and two numbers are equal if
    they differ by at most `tolerance`, or by that share of the expected one.
    """
    if printed == expected:
        return True
    for ours, theirs in itertools.zip_longest(_lines(printed), _lines(expected), fillvalue=""):
        if ours == theirs:
            continue
        a, b = ours.split(), theirs.split()
        if tolerance is None or len(a) != len(b) or not all(map(_same_token, a, b, itertools.repeat(tolerance))):
            return False
    return True


def _lines(text: str) -> Iterator[str]:
    """The lines without blanks at their ends, one at a time, so that a long output is not copied."""
    at = 0
    while at <= len(text):
        end = _LINE_END.search(text, at)
        yield text[at : end.start() if end else len(text)].rstrip()
        at = end.end() if end else len(text) + 1


def _same_token(ours: str, theirs: str, tolerance: float) -> bool:
    if ours == theirs:
        return True
    if max(len(ours), len(theirs)) > _MAX_TOKEN_CHARS or not (_NUMBER.fullmatch(ours) and _NUMBER.fullmatch(theirs)):
        return False
    actual, expected = float(ours), float(theirs)
    difference = abs(actual - expected)
    near = difference <= max(tolerance, tolerance * abs(expected)) and math.isfinite(difference)
    return actual == expected or near  # infinity and NaN are only near to what they equal
