"""Check whether a text matches a pattern, with the RE2 library: in time proportional to the text."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

_PATTERN_BYTES = 16 << 20
"""Memory for the cached states of a pattern. It rarely uses a tenth of this."""


@functools.cache
def compile_pattern(pattern: str) -> Callable[[bytes], bool]:
    """A function that says whether a UTF-8 text contains the pattern. Compiled once per process, since the states
    cached for one text make the next one faster."""
    search = _compile(pattern).search
    return lambda data: search(data) is not None


def find_starts(pattern: str, text: str) -> Iterator[int]:
    """Where the matches of a pattern begin in a text, in characters."""
    data = encode_text(text)
    place = at = 0
    for match in _compile(pattern).finditer(data):
        place += len(data[at : match.start()].decode())
        at = match.start()
        yield place


@functools.cache
def _compile(pattern: str) -> Any:
    import re2

    options = re2.Options()
    options.max_mem = _PATTERN_BYTES
    options.never_capture = True
    return re2.compile(pattern, options)


def encode_text(text: str) -> bytes:
    """A text in UTF-8; lone surrogates become question marks."""
    return text.encode("utf-8", "replace")
