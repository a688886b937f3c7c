"""Values as text for humans, and what stands for a value that cannot be sent."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from foretrace.sandbox.inside.wire.stdlib_values import is_stdlib_value

_BRACKETS = {list: ("[", "]"), tuple: ("(", ")"), set: ("{", "}"), frozenset: ("frozenset({", "})")}
_PLAIN = frozenset({type(None), bool, float, complex, type(...)})
_LONG_INT = 2000
"""Bits above which an int is shown in base 16, which is cheap."""
_MAX_SORTED = 200
"""Members of a set that are shown in the order of their texts, which does not depend on hashes."""


class OpaqueValue:
    """A value that cannot be compared: equal to nothing, not even to itself."""

    __slots__ = ("text", "type")

    def __init__(self, type: str, text: str = "") -> None:
        self.type, self.text = type, text

    def __eq__(self, other: object) -> bool:
        return False

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return f"<{self.type} object{': ' + self.text if self.text else ''}>"


def find_type_name(value: Any) -> str:
    """Name of the value's type, read past anything that its class overrides."""
    try:
        return str(type.__dict__["__name__"].__get__(type(value)))[:200]
    except Exception:
        return "object"


def show_value(value: Any, limit: int = 500) -> str:
    """`repr` for a human, at most `limit` characters long, the same for equal sets; it reads no more than it shows."""
    pieces: list[str] = []
    length = 0
    for piece in _pieces(value, limit):
        pieces.append(piece)
        length += len(piece)
        if length > limit:
            return "".join(pieces)[: limit - 3] + "..."
    return "".join(pieces)


def _pieces(value: Any, limit: int) -> Iterator[str]:
    kind = type(value)
    if kind is int:
        yield repr(value) if value.bit_length() <= _LONG_INT else hex(value)
    elif kind in (str, bytes, bytearray):
        yield repr(value[: limit + 1])
    elif kind in _PLAIN or kind is OpaqueValue or kind is range or (not value and kind in _BRACKETS):
        yield repr(value)
    elif kind in _BRACKETS:
        begin, end = _BRACKETS[kind]
        yield begin
        for number, item in enumerate(_sorted(value) if kind in (set, frozenset) else value):
            yield ", " if number else ""
            yield from _pieces(item, limit)
        yield ",)" if kind is tuple and len(value) == 1 else end
    elif kind is dict:
        yield "{"
        for number, (key, item) in enumerate(value.items()):
            yield ", " if number else ""
            yield from _pieces(key, limit)
            yield ": "
            yield from _pieces(item, limit)
        yield "}"
    elif is_stdlib_value(value):
        yield repr(value)[: limit + 1]
    else:
        yield f"<{find_type_name(value)} object>"


def _sorted(members: Any) -> list[Any]:
    """The members in an order that does not depend on hashes; of a set that is too large for that, their number."""
    if len(members) == 1:
        return list(members)  # a chain of these, sorted at each level, would take twice as long with each level
    if all(_weigh(member) <= _MAX_SORTED // len(members) for member in members):
        numbers = all(isinstance(member, (int, float)) for member in members)
        return sorted(members, key=None if numbers else show_value)
    return [OpaqueValue("set", f"{len(members)} members")]


def _weigh(value: Any) -> int:
    """How many values are in a member of a set; many where they are nested deeply, since each level sorts anew."""
    if type(value) not in (tuple, frozenset):
        return 1
    return 1 + sum(_MAX_SORTED if type(item) in (tuple, frozenset) else 1 for item in value)
