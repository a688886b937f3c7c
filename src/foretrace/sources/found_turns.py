"""The conversation found in a row, with its turns in one vocabulary: what the finders of `row_turns` return."""

from __future__ import annotations

from typing import Any, NamedTuple

from foretrace.sources.json_values import write_text

Row = dict[str, Any]
Turns = list[tuple[int | None, Row]]
"""Turns with their position in the row's own list; `None` for turns found elsewhere in the row."""


class FoundTurns(NamedTuple):
    """The conversation of a row."""

    turns: Turns
    columns: frozenset[str]
    """Columns that the conversation takes, including ignored ones."""
    form: str
    """What was recognized, in a few words."""
    tools: Any = None
    """Definitions of tools, if they are in a request within the row."""
    rest: Row | None = None
    """What else is in those columns."""


def make_raw_call(name: Any, arguments: Any, call_id: Any = None) -> Row:
    """A call in OpenAI's form."""
    return {"id": call_id, "function": {"name": name, "arguments": arguments}}


def make_result(call_id: Any, value: Any, is_error: bool = False) -> Row:
    """A tool's turn that answers a call."""
    result: Row = {"role": "tool", "content": write_text(value), "tool_call_id": call_id}
    return {**result, "is_error": True} if is_error else result


def make_thought(text: Any) -> Row:
    """A reasoning item of the Responses API, which joins the message that follows."""
    return {"type": "reasoning", "summary": [{"text": str(text or "")}]}
