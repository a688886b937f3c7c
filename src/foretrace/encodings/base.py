"""The contract of a text encoding of calls.

To add an encoding, write a module here with a `PLUGIN` that has `parse` and `render`, and name it in `core/plugins.py`.
The tests hold every encoding to this law: `parse(render(call)) == [call]` but for the span.
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
