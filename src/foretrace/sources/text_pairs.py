"""Conversations that are texts without roles: question and answer in turn (UltraChat's `data`), or pairs of them (what
Gradio keeps as the history of a chat, and the `history` beside the last instruction and output in LLaMA-Factory)."""

from __future__ import annotations

import re
from typing import Any

from foretrace.sources.found_turns import FoundTurns, Row
from foretrace.sources.json_values import decode_json

_PAIRS = ("chatbot", "chat_history", "conversation", "conversations", "history", "messages")
_ASKED = ("instruction", "prompt", "query")
_SAID = ("output", "response")
_OF_ULTRACHAT = frozenset({"id", "data"})
_WORD = re.compile(r"[!-~]{0,60}")
"""What tags and numbers are, and no chat consists of."""


def find_text_turns(row: Row) -> FoundTurns | None:
    """The texts of a row as turns; `None` where there are none. Pairs by themselves may be anything, such as moves of a
    game: they count under a name that says that they are a chat."""
    texts = decode_json(row.get("data"))
    if row.keys() == _OF_ULTRACHAT and _are_texts(texts) and len(texts) > 1 and not all(map(_WORD.fullmatch, texts)):
        turns = [{"role": "assistant" if n % 2 else "user", "content": text} for n, text in enumerate(texts)]
        return FoundTurns([*enumerate(turns)], frozenset({"data"}), "data holds texts in turn")
    for column in _PAIRS:
        pairs = decode_json(row.get(column))
        if not isinstance(pairs, list) or not all(_is_pair(pair) for pair in pairs):
            continue
        last = _find_last(row) if column == "history" else []
        if (pairs and column not in ("history", "messages")) or last:
            said = [turn for pair in pairs for turn in _make_turns(pair[0], pair[1])]
            used = frozenset({column, *(name for name, _ in last)})
            turns = [*said, *(turn for _, turn in last if turn)]
            return FoundTurns([*enumerate(turns)], used, f"{column} holds pairs of question and answer")
    return None


def _find_last(row: Row) -> list[tuple[str, Row]]:
    """The last question and its answer, each with its column."""
    asked = next((name for name in _ASKED if isinstance(row.get(name), str) and row[name]), None)
    said = next((name for name in _SAID if isinstance(row.get(name), str) and row[name]), None)
    if asked is None or said is None:
        return []
    more = row.get("input")
    text = f"{row[asked]}\n{more}" if isinstance(more, str) and more and asked == "instruction" else row[asked]
    used = [("input", {})] if text != row[asked] else []
    found = [(asked, {"role": "user", "content": text}), (said, {"role": "assistant", "content": row[said]})]
    return [*found, *used]


def _make_turns(asked: Any, said: Any) -> list[Row]:
    return [
        {"role": role, "content": text} for role, text in (("user", asked), ("assistant", said)) if text is not None
    ]


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(text, str) for text in value)


def _is_pair(value: Any) -> bool:
    """Whether a value is a question with its answer; one of them may be missing, of a greeting or of the last one."""
    if not isinstance(value, list) or len(value) != 2 or value == [None, None]:
        return False
    return all(isinstance(text, (str, type(None))) for text in value)
