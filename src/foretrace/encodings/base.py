"""What the encodings of calls have in common: find calls in a text, and write one.

To add one, describe it in the file of its shape, and add it to `ENCODINGS` in `table.py`. The tests check that each
satisfies `parse(render(call)) == [call]`, except for the span.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

import msgspec

from foretrace.core.trace import ToolCall


def find_at(
    pattern: re.Pattern[str], read: Callable[[str, re.Match[str]], ToolCall | None], most_failed: int | None = None
) -> Callable[[str], Iterator[ToolCall]]:
    """A `find` of `TextEncoding`: the calls that begin at matches of a pattern, none inside another.

    Args:
        pattern: How a call begins.
        read: Reads the call at a match; `None` if this is text.
        most_failed: A text has no more calls after this many matches that were text.
    """

    def find(text: str) -> Iterator[ToolCall]:
        at = failed = 0
        while failed != most_failed and (match := pattern.search(text, at)):
            call = read(text, match)
            at = match.end()
            if call is None or call.span is None:
                failed += 1
            else:
                yield call
                at = call.span[1]

    return find


class TextEncoding:
    """How calls are written as text, made from two functions.

    Args:
        name: Its name.
        find: Finds the calls of a text, in order, each with its span.
        write: Writes a call that was not read from a text.
        hints: Each call contains one of these texts; a text with none of them is not searched.
        layout: Whether a layout other than that of `write` is recorded as a repair.
    """

    def __init__(
        self,
        name: str,
        find: Callable[[str], Iterable[ToolCall]],
        write: Callable[[ToolCall], str],
        *,
        hints: tuple[str, ...],
        layout: bool = False,
    ) -> None:
        self.name, self.hints = name, hints
        self._find, self._write, self._layout = find, write, layout

    def parse(self, text: str) -> list[ToolCall]:
        """All calls in the text, in order, with spans; an unreadable one has `error` set. If rendering would change the
        text, the original is kept as `raw`."""
        for hint in self.hints:
            if hint in text:
                return [self._keep_raw(call, text) for call in self._find(text)]
        return []

    def render(self, call: ToolCall) -> str:
        """Write the text of a call; for a parsed call, exactly the text of its span."""
        return str(call.extra.get("raw") or "") or self._write(call)

    def _keep_raw(self, call: ToolCall, text: str) -> ToolCall:
        start, end = call.span or (0, 0)
        if call.error is None and self._write(call) == text[start:end]:
            return call
        repairs = call.repairs or (("layout",) if self._layout and call.error is None else ())
        return msgspec.structs.replace(call, repairs=repairs, extra={**call.extra, "raw": text[start:end]})
