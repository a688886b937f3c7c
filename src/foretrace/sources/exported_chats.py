"""Chats that people take home: ChatGPT's and DeepSeek's exports, where messages are the nodes of a tree.

The line that the chat ended on is read; what hangs beside it are answers that were asked for again.
"""

from __future__ import annotations

from foretrace.sources.found_turns import FoundTurns, Row, make_call, make_result
from foretrace.sources.json_values import (
    as_list,
    as_text,
    get_dict,
    get_dicts,
    get_list,
    get_number,
    get_text,
)

_FRAGMENTS = {"REQUEST": "user", "RESPONSE": "assistant", "THINK": "thought"}
_SEARCHES = ("SEARCH", "TOOL_SEARCH")
"""What the service looked up on the web: `queries`, where they are kept, and `results`."""
_THOUGHTS = ("thoughts", "reasoning_recap")
_HIDDEN = ("user_editable_context", "model_editable_context")


def find_exported_chat(row: Row) -> FoundTurns | None:
    """The chat in a row with a `mapping` of nodes; `None` where there is none."""
    mapping = row.get("mapping")
    if not isinstance(mapping, dict) or not all(isinstance(node, dict) for node in mapping.values()):
        return None
    turns: list[Row] = []
    for node in _find_line(row, mapping):
        message = get_dict(node, "message")
        turns += _read_fragments(message) if get_list(message, "fragments") else _read_message(message)
    if not any(turn["role"] == "assistant" for turn in turns):
        return None
    return FoundTurns([*enumerate(turns)], frozenset({"mapping", "current_node"}), "mapping holds a tree of messages")


def _find_line(row: Row, mapping: dict[str, Row]) -> list[Row]:
    """The nodes from the root to the current one; without that, to the last one by the youngest child each time."""
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
    """The text of a message; of a picture, its name."""
    if isinstance(content.get("text"), str):
        return content["text"]
    texts = [
        part if isinstance(part, str) else get_text(part, "text") or f"[{get_text(part, 'content_type') or 'part'}]"
        for part in get_list(content, "parts")
    ]
    return "\n".join(filter(None, texts))


def _read_fragments(message: Row) -> list[Row]:
    """DeepSeek's: what was asked, searched, thought and answered, in one message. What else is in it stays with the
    last of its turns."""
    turns: list[Row] = []
    thought = ""
    others: list[Row] = []
    for number, each in enumerate(get_dicts(message, "fragments")):
        kind, text = get_text(each, "type"), get_text(each, "content")
        role = _FRAGMENTS.get(kind)
        turn: Row = {"role": role or "assistant", "content": text}
        if thought and role != "user":
            turn["reasoning"] = thought
        if role == "thought":
            thought = "\n\n".join(filter(None, (thought, text)))
        elif kind in _SEARCHES:
            own = f"search_{number}"
            call = make_call("search", {"queries": get_list(each, "queries")}, own)
            turns += [{**turn, "tool_calls": [call]}, make_result(own, get_list(each, "results"))]
            thought = ""
        elif role is not None and text:
            turns.append(turn)
            thought = "" if role == "assistant" else thought
        elif role is None:
            others.append(each)
    if thought:
        turns.append({"role": "assistant", "content": "", "reasoning": thought})
    if others and turns:
        turns[-1] = {**turns[-1], "fragments": others}
    return turns
