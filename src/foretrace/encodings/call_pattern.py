"""Calls matched by a user's regular expression, for a text form that no encoding knows."""

from __future__ import annotations

import re
from collections.abc import Iterator

from foretrace.core.errors import Setting, UsageError
from foretrace.core.trace import ToolCall
from foretrace.encodings.base import TextEncoding
from foretrace.encodings.json_arguments import encode_json

SETTING = "call_pattern"


class CallPattern(TextEncoding):
    """Reads calls with a pattern: the group `tool` is the tool's name, and every other named group an argument.

    Args:
        pattern: A regular expression; `^` and `$` match at lines, and `.` matches line breaks too.
    """

    def __init__(self, pattern: str) -> None:
        # A pattern can be used to read, but not to write.
        super().__init__("call_pattern", self._find_matches, lambda call: "", hints=("",))
        try:
            self._pattern = re.compile(pattern, re.MULTILINE | re.DOTALL)
        except re.error as error:
            raise UsageError(Setting(SETTING, pattern), f" is not a regular expression: {error}") from None
        if "tool" not in self._pattern.groupindex:
            raise UsageError(
                Setting(SETTING, pattern),
                ": it must name the group that holds the tool's name (?P<tool>...); other named groups are arguments",
            )

    def _find_matches(self, text: str) -> Iterator[ToolCall]:
        for match in self._pattern.finditer(text):
            groups = match.groupdict()
            name = (groups.pop("tool") or "").strip()
            if name and match.end() > match.start():
                given = {key: value for key, value in groups.items() if value is not None}
                yield ToolCall(name=name, arguments=encode_json(given), span=match.span())
