"""The contract of a text encoding of calls, and how the arguments of a call are read.

To add an encoding, drop a file in this folder with a `PLUGIN` that has `parse` and `render`.
Law, tested for every encoding: `parse(render(call)) == [call]` but for the span.
"""

from __future__ import annotations

import json
from typing import Any, Protocol

import msgspec

from foretrace.core.trace import ToolCall


class Encoding(Protocol):
    """How calls are written as text."""

    name: str

    def parse(self, text: str) -> list[ToolCall]:
        """All calls in the text, in order, with spans; an unreadable call has `error` set."""
        ...

    def render(self, call: ToolCall) -> str:
        """The text of a call; for a parsed call exactly what its span covers."""
        ...


class Arguments(msgspec.Struct, frozen=True):
    """What became of the text of a call's arguments."""

    text: str
    """JSON text of an object: the input verbatim when it was well formed, else the repaired JSON."""
    repairs: tuple[str, ...] = ()
    error: str | None = None


def dumps(value: Any) -> str:
    """JSON text with keys in the given order and text as it is, the form in which parsed arguments are kept."""
    return json.dumps(value, ensure_ascii=False)


def read_arguments(text: str) -> Arguments:
    """Read JSON arguments: as JSON, then allowing raw control characters, then by repair; each repair is recorded.

    A text cut off in the middle is never repaired: the result would be a call that nobody made.
    """
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return _repaired(text)
    if isinstance(value, dict):
        return Arguments(text)
    return Arguments(dumps({"input": value}), ("wrapped",))


def _repaired(text: str) -> Arguments:
    try:
        value: Any = json.loads(text, strict=False)
        kind = "control_characters"
    except (ValueError, RecursionError):
        if not text.rstrip().endswith("}"):
            return Arguments(dumps({}), error="arguments are cut off" if text.strip() else "no arguments")
        import json_repair

        try:
            value, kind = json_repair.loads(text), "json_repair"
        except (ValueError, RecursionError) as error:
            return Arguments(dumps({}), error=f"arguments are not JSON: {error}")
    if not isinstance(value, dict):
        return Arguments(dumps({}), error="arguments are not a JSON object")
    return Arguments(dumps(value), (kind,))
