"""Keep what is in a record but not in its message: it goes to `extra`, under its own name.

Readers take what they know out of a record and pass the record to `Conversation.use`. When the conversation is
finished, each value of a record is looked up in the messages made from it. Values that are not there are kept in the
`extra` of the first of these messages, or of the trace if the record did not become a message. So a reader does not
need a list of the fields that it reads, and a field that it does not know is not lost.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import msgspec

from foretrace.core.trace import Message
from foretrace.sources.account import Account
from foretrace.sources.conversation import Conversation, read_time
from foretrace.sources.json_values import decode_json
from foretrace.sources.own_fields import FIELD

_MAX_TEXT = 4096
"""Characters. Longer texts in session records (files before an edit, pictures) are not kept, only counted under the
name of their field."""
_MAX_CIPHER = 256
"""The same limit for texts without spaces: signatures, encrypted thoughts."""
_MAX_DEPTH = 32
_MIN_COPY = 20
"""Texts of at least this many characters are not kept again if they are elsewhere in the trace. Shorter ones are words,
whose meaning depends on where they are."""
_JOINED = frozenset({"text", "content", "value", "thinking", "thought", "message"})
"""Keys of texts that are joined or cut when a row is read, and so may be short."""
_ROW_LABELS = frozenset({
    "type", "role", "from", "object", "kind", "part_kind", "block_type", "message_type", "lc", "index",
})  # fmt: skip
"""Keys in rows that only say what kind of object it is; whoever reads the object uses them."""
_LABELS = frozenset({"type", "role", "kind", "from"})
_KNOWN_LABELS = frozenset({
    "text", "input_text", "output_text", "summary_text", "reasoning_text", "thinking", "reasoning", "message", "user",
    "assistant", "system", "session", "response_item", "event_msg",
    "session_meta", "turn_context", "developer", "tool", "gemini", "model", "human", "gpt", "tool_use", "tool_result",
    "function", "function_call", "function_call_output", "toolCall", "toolResult", "image", "base64",
})  # fmt: skip
"""Values of such keys for things that a message represents in its own fields."""


class _Said(msgspec.Struct):
    """What a message contains, or whatever was made of a value."""

    texts: list[str] = msgspec.field(default_factory=list[str])
    """Texts in which others may be contained."""
    words: set[str] = msgspec.field(default_factory=set[str])
    numbers: set[tuple[str, float]] = msgspec.field(default_factory=set[tuple[str, float]])
    started: str | None = None

    def add(self, value: Any, name: str = "") -> None:
        """Add all leaves of a value, including those of JSON texts."""
        if isinstance(value, str):
            self.words.add(value.strip())
            if value[:1] in ("{", "["):
                self.add(decode_json(value), name)
        elif isinstance(value, dict):
            for key, item in value.items():
                self.add(item, key)
        elif isinstance(value, (list, tuple)):
            for item in value:
                self.add(item, name)
        elif value is not None:
            self.numbers.add((_spell(name), value))


def find_rest(value: Any, made: Any) -> Any:
    """The part of a row's value that is missing in what was made of it, nested as in the value; `None` if all is there.

    Texts are found anywhere, long ones also within others; numbers are found under the same key.
    """
    said = _Said()
    said.add(made)
    said.texts.extend(said.words)
    return _Search([said], _ROW_LABELS).find(value)


def keep_leftovers(talk: Conversation, messages: Sequence[Message], facts: Any, extra: dict[str, Any]) -> None:
    """Keep what the records of a conversation contain beyond its messages.

    Args:
        messages: The final messages; each gets the leftovers of its records in its `extra`.
        facts: What the trace says about the session as a whole.
        extra: The trace's `extra`, for leftovers of records that did not become messages.
    """
    known = _Said()
    known.add((msgspec.to_builtins(facts), [message.content for message in messages if message.role == "system"]))
    search = _Search([], account=talk.account)
    texts = (text.strip() for m in messages for text in (m.content, m.reasoning) if text)
    search.copies.update(text for text in texts if len(text) >= _MIN_COPY)
    describe = functools.cache(lambda index: _describe(messages[index]))
    calls: defaultdict[str, list[int]] = defaultdict(list)
    for index, message in enumerate(messages):
        for call_id in (*message.tool_call_ids, *(call.id for call in message.tool_calls)):
            calls[call_id].insert(0, index)
    envelope: dict[str, Any] = {}  # the last value of each field: an unchanged one is not kept again
    for used in talk.used:
        places = [index for index in used.places or calls.get(used.call, ()) if index < len(messages)]
        search.now = [*map(describe, places), known]
        rest: dict[str, Any] = {}
        for name, value in used.record.items():
            is_plain = bool(used.inside) and isinstance(value, (str, bool)) and name != FIELD
            if name == used.inside or (is_plain and envelope.get(name) == value):
                continue
            if is_plain:
                envelope[name] = value
            left = value if name == FIELD else search.find(value, name)
            if left is not None:
                rest[name] = left
        target = messages[places[0]].extra if places else extra
        _merge(target, rest)
        body = search.find(used.record.get(used.inside), used.inside) if used.inside else None
        _merge(target, body if isinstance(body, dict) else {used.inside: body} if body is not None else {})


class _Search:
    def __init__(self, now: list[_Said], labels: frozenset[str] = frozenset(), account: Account | None = None) -> None:
        self.now = now
        self.copies: set[str] = set()
        self._labels = labels
        """Keys that are skipped."""
        self._account = account

    def find(self, value: Any, name: str = "", depth: int = 0) -> Any:
        """The missing part, nested as in the value; `None` if nothing is missing."""
        if isinstance(value, str):
            return self._find_text(value, name, depth) if value else None
        if value is None or not isinstance(value, (dict, list)):
            return None if value is None or self._has_number(value, name) else value
        if depth >= _MAX_DEPTH:
            if self._account is None:
                return value
            self._account.note(f"values nested too deep to keep: {name[:40]}")
            return None
        if isinstance(value, list):
            found = [self.find(item, name, depth + 1) for item in value]
            known = [left for left in found if left is not None]
            return (known if self._account else found) if known else None
        fields: dict[str, Any] = {}
        for key, item in value.items():
            if item is None or item == "" or key in self._labels:
                continue
            if key == FIELD:  # from a foretrace export; it is read as a whole
                fields[key] = item
                continue
            left = self._find_text(item, key, depth) if type(item) is str else self.find(item, key, depth + 1)
            if left is not None:
                fields[key] = left
        return fields or None

    def _find_text(self, text: str, name: str, depth: int) -> Any:
        bare = text.strip()
        for said in self.now:
            if bare in said.words:
                return None
        if name in _LABELS and text in _KNOWN_LABELS:
            return None
        size = len(text)
        if (size >= _MIN_COPY or (self._labels and name in _JOINED)) and self._has_text(bare):
            return None
        if text[0] in "{[" and isinstance(value := decode_json(text), (dict, list)):
            return self.find(value, name, depth + 1)
        if self._account is None:
            return text
        if size > _MAX_TEXT or (size > _MAX_CIPHER and " " not in text and "\n" not in text):
            self._account.note(f"long texts, left out: {name[:40]}")
            return None
        if size >= _MIN_COPY:
            self.copies.add(bare)
        return text

    def _has_text(self, text: str) -> bool:
        if text in self.copies:
            return True
        if _MIN_COPY <= len(text) < 40 and text[4] == "-" and text[:4].isdigit():
            return self._has_stamp(text)
        rest = text
        for said in self.now:
            for whole in said.texts:
                if rest in whole:
                    return True
                if self._account and whole in rest:  # the program's part of it, or the person's
                    rest = rest.replace(whole, "").strip()
        return not rest

    def _has_number(self, value: Any, name: str) -> bool:
        key = (_spell(name), value)
        for said in self.now:
            if key in said.numbers:
                return True
        return value > 1e9 and self._has_stamp(value)

    def _has_stamp(self, value: Any) -> bool:
        stamp = read_time(value)
        return stamp is not None and any(said.started and read_time(said.started) == stamp for said in self.now)


def _describe(message: Message) -> _Said:
    texts = [text for text in (message.prefix, message.content, message.reasoning) if text]
    said = _Said(texts, {*map(str.strip, texts), *message.tool_call_ids}, started=message.started)
    for text in texts:
        if text[0] in "{[":
            said.add(text)
    for call in message.tool_calls:
        said.words.update((call.id, call.name, call.arguments))
        said.add((decode_json(call.arguments), call.extra))
    for part in message.parts:
        said.add((part.type, part.media_type, part.ref))
    if message.extra:
        said.add(message.extra)
    if message.is_error is not None:
        said.numbers.add(("iserror", message.is_error))
    return said


@functools.lru_cache(maxsize=4096)
def _spell(name: str) -> str:
    """A name in the same spelling for `exit_code` and `exitCode`."""
    return name.replace("_", "").lower()


def _merge(target: dict[str, Any], more: dict[str, Any]) -> None:
    """Add fields to others; values that differ from existing ones go to a list `more`."""
    for name, value in more.items():
        own = target.setdefault(name, value)
        if own is value or own == value:
            continue
        if isinstance(own, dict) and isinstance(value, dict):
            _merge(own, value)
        elif isinstance(own, list) and isinstance(value, list):
            own.extend(item for item in value if item not in own)
        else:
            others = target.setdefault("more", [])
            if isinstance(others, list) and {name: value} not in others[-1:]:
                others.append({name: value})
