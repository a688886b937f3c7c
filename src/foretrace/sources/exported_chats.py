"""Chats that people export: ChatGPT's export, where messages are the nodes of a tree.

Only the branch that the chat ended on is read; other branches are answers that were regenerated.
"""

from __future__ import annotations

from foretrace.sources.found_turns import FoundTurns, Row, make_call
from foretrace.sources.json_values import (
    as_list,
    as_text,
    get_dict,
    get_dicts,
    get_list,
    get_number,
    get_text,
)

_THOUGHTS = ("thoughts", "reasoning_recap")
_HIDDEN = ("user_editable_context", "model_editable_context")


def find_exported_chat(row: Row) -> FoundTurns | None:
    """The chat in a row with a `mapping` of nodes; `None` if there is none."""
    mapping = row.get("mapping")
    if not isinstance(mapping, dict) or not all(isinstance(node, dict) for node in mapping.values()):
        return None
    turns: list[Row] = []
    for node in _find_line(row, mapping):
        turns += _read_message(get_dict(node, "message"))
    if not any(turn["role"] == "assistant" for turn in turns):
        return None
    return FoundTurns([*enumerate(turns)], frozenset({"mapping", "current_node"}), "mapping holds a tree of messages")


def _find_line(row: Row, mapping: dict[str, Row]) -> list[Row]:
    """The nodes from the root to the current node; if that is not known, along the last child of each node."""
    line: list[Row] = []
    own = as_text(row.get("current_node"))
    own = own if own in mapping else _find_last(mapping)
    seen: set[str] = set()
    while own in mapping and own not in seen:
        seen.add(own)
        line.append(mapping[own])
        own = as_text(mapping[own].get("parent"))
    return line[::-1]


def _find_last(mapping: dict[str, Row]) -> str:
    own = next((name for name, node in mapping.items() if as_text(node.get("parent")) not in mapping), "")
    seen: set[str] = set()
    while own in mapping and own not in seen:
        seen.add(own)
        children = as_list(mapping[own].get("children"))
        own = next((child for child in reversed(children) if isinstance(child, str) and child in mapping), own)
    return own


def _read_message(message: Row) -> list[Row]:
    role = get_text(get_dict(message, "author"), "role")
    content = get_dict(message, "content")
    kind = get_text(content, "content_type")
    if role not in ("user", "assistant", "tool", "system") or kind in _HIDDEN:
        return []
    stamp = get_number(message, "create_time")
    turn: Row = {"role": role, **({} if stamp is None else {"create_time": stamp, "timestamp": stamp})}
    if kind in _THOUGHTS:
        thoughts = [get_text(each, "content", "summary") for each in get_dicts(content, "thoughts")]
        text = "\n\n".join(filter(None, thoughts))
        return [{**turn, "content": "", "reasoning": text}] if text and role == "assistant" else []
    text = _read_text(content)
    recipient = get_text(message, "recipient")
    if role == "assistant" and recipient not in ("", "all"):
        call = make_call(recipient, {"input": text}, get_text(message, "id"))
        return [{**turn, "content": "", "tool_calls": [call]}]
    return [{**turn, "content": text}] if text.strip() or role == "tool" else []


def _read_text(content: Row) -> str:
    """The text of a message; a part without text is shown as its type in brackets."""
    if isinstance(content.get("text"), str):
        return content["text"]
    texts = [
        part if isinstance(part, str) else get_text(part, "text") or f"[{get_text(part, 'content_type') or 'part'}]"
        for part in get_list(content, "parts")
    ]
    return "\n".join(filter(None, texts))
