"""The contract of a text encoding of calls.

To add one, write a module in this folder whose `PLUGIN` has the members of `Encoding`, and name it in `BUILT_IN` of
`core/plugins.py`. The tests hold every encoding to this law: `parse(render(call)) == [call]` but for the span.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from foretrace.core.trace import ToolCall


class Encoding(Protocol):
    """How calls are written as text."""

    name: str

    def parse(self, text: str) -> list[ToolCall]:
        """Find all calls in the text, in order, with spans; an unreadable call has `error` set."""
        ...

    def render(self, call: ToolCall) -> str:
        """Write the text of a call; for a parsed call exactly what its span covers."""
        ...


def attach_span(encoding: Encoding, call: ToolCall, text: str, span: tuple[int, int]) -> ToolCall:
    """Add the span in the text to a call; where rendering would not give that text back, `extra` keeps it as `raw`."""
    raw = text[span[0] : span[1]]
    extra = call.extra if call.error is None and encoding.render(call) == raw else {**call.extra, "raw": raw}
    return msgspec.structs.replace(call, span=span, extra=extra)
