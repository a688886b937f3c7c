"""The turns of a conversation as one vocabulary, and what a row holds of them: what the finders of `row_turns` give."""

from __future__ import annotations

from typing import Any, NamedTuple

from foretrace.sources.json_values import write_text

Row = dict[str, Any]
Turns = list[tuple[int | None, Row]]
"""Turns with their place in the row's own list; `None` for those that stand elsewhere in the row."""


class FoundTurns(NamedTuple):
    """The conversation of a row."""

    turns: Turns
    columns: frozenset[str]
    """Columns that it takes, and those that are left out."""
    form: str
    """What was seen, in a few words."""
    tools: Any = None
    """Definitions of tools, where they lie in a request within the row."""
    rest: Row | None = None
    """What else those columns hold."""


def make_call(name: Any, arguments: Any, call_id: Any = None) -> Row:
    """A call as OpenAI writes it."""
    return {"id": call_id, "function": {"name": name, "arguments": arguments}}


def make_result(call_id: Any, value: Any, is_error: bool = False) -> Row:
    """The turn of a tool that answers a call."""
    result: Row = {"role": "tool", "content": write_text(value), "tool_call_id": call_id}
    return {**result, "is_error": True} if is_error else result


def make_thought(text: Any) -> Row:
    """An item of the Responses API, which joins the message that follows."""
    return {"type": "reasoning", "summary": [{"text": str(text or "")}]}
