"""Values as tagged JSON: builtin types and a few more; all others are opaque, and equal to nothing.

None, bools, strings, finite floats and small ints are plain JSON. Containers are `["l", item, ...]` with a tag from
`_CONTAINERS`, values that are written as text are `["x", type, text]`, and opaque values are `["o", type, why]`.
"""

from __future__ import annotations

import sys
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Iterable
from json.encoder import encode_basestring_ascii as _quoted
from typing import Any

MAX_DEPTH = 200
"""Deepest nesting of containers; deeper values are opaque."""
_MAX_ITEMS = 1 << 22
"""Most nested values that a decoder accepts in one value."""
_MAX_SAME_HASH = 100
"""Most members of one set or dict that may share a hash: more are an attempt to make lookups slow."""
_MAX_NAME = 200
_MAX_TEXT = 2000
"""Most characters in the text of a standard library value."""
_MAX_EXPONENT = 1_000_000
"""Decimals with larger exponents take too long to convert to int."""
_MANY = 32
"""From this many items on, all types are checked first: a list of simple values need not be walked item by item."""
_LOW, _HIGH = -(1 << 53), 1 << 53
"""Ints between these are written as JSON numbers."""
_NUMBERS = (int, float, complex, bool)
_DICTS = frozenset({dict, Counter, OrderedDict, defaultdict})
_TAGS = {list: "l", tuple: "t", set: "S", frozenset: "F"}


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


_TEXTS: dict[str, tuple[Callable[[Any], str], Callable[[str], Any]]] = {
    "int": (hex, lambda text: int(text, 16)),
    "float": (repr, float),
    "complex": (repr, complex),
    "range": (
        lambda value: f"{value.start:x} {value.stop:x} {value.step:x}",
        lambda text: range(*(int(part, 16) for part in text.split())),
    ),
    "str": (
        lambda value: value.encode("utf-8", "surrogatepass").hex(),
        lambda text: bytes.fromhex(text).decode("utf-8", "surrogatepass"),
    ),
    "bytes": (bytes.hex, bytes.fromhex),
    "bytearray": (bytearray.hex, bytearray.fromhex),
    "ellipsis": (lambda value: "", lambda text: ...),
}
"""By name of a builtin type: how to write and read those of its values that JSON cannot represent."""
_LIBRARY = {
    "Decimal": "decimal",
    "Fraction": "fractions",
    "UUID": "uuid",
    **dict.fromkeys(("date", "time", "datetime", "timedelta"), "datetime"),
}
"""Types of the standard library whose values are also written as text, and their modules."""


def _is_of_library(value: Any) -> bool:
    """Whether the value's exact type is in `_LIBRARY`."""
    kind = type(value)
    return getattr(sys.modules.get(_LIBRARY.get(kind.__name__, "")), kind.__name__, None) is kind


def _write_library(value: Any) -> str:
    name = type(value).__name__
    if name == "Decimal" and (value.is_snan() or (value.is_finite() and abs(value.adjusted()) > _MAX_EXPONENT)):
        raise ValueError("a decimal that cannot be compared")
    if type(getattr(value, "tzinfo", None)).__name__ not in ("NoneType", "timezone"):
        raise ValueError("a zone of another kind")
    if name == "timedelta":
        return f"{value.days} {value.seconds} {value.microseconds}"
    text = str(value.isoformat() if hasattr(value, "isoformat") else value)
    if len(text) > _MAX_TEXT:
        raise ValueError("too long")
    return text


def _read_library(name: str, text: str) -> Any:
    kind = getattr(__import__(_LIBRARY[name]), name)
    if len(text) > _MAX_TEXT or (name == "Fraction" and "e" in text.lower()):  # powers take too long
        raise ValueError("too long")
    if name == "timedelta":
        days, seconds, microseconds = map(int, text.split())
        return kind(days, seconds, microseconds)
    value = kind.fromisoformat(text) if hasattr(kind, "fromisoformat") else kind(text)
    _write_library(value)
    return value


class NotEncodableError(Exception):
    """A value has no encoding; says why."""


def encode(value: Any, limit: int) -> Any:
    """JSON of `value`, at most about `limit` bytes long; that of an `OpaqueValue` if it has none. Never raises."""
    try:
        return Encoder(limit).walk(value, 0)
    except Exception as error:
        why = str(error) if type(error) is NotEncodableError else f"it could not be read ({_find_type_name(error)})"
        return ["o", _find_type_name(value), why]


class Encoder:
    """One walk over a value, which counts bytes before it creates them."""

    def __init__(self, limit: int) -> None:
        self.left = limit
        self._path: set[int] = set()

    def pay(self, cost: int) -> None:
        self.left -= cost
        if self.left < 0:
            raise NotEncodableError("too large")

    def walk(self, value: Any, depth: int) -> Any:
        kind = type(value)
        if value is None or kind is bool:
            self.pay(6)
            return value
        if kind is str:
            return self._walk_text(value)
        if kind in _NUMBERS or kind in (bytes, bytearray, range) or value is Ellipsis:
            return self._walk_scalar(value, kind)
        if depth >= MAX_DEPTH:
            raise NotEncodableError("too deep")
        if id(value) in self._path:
            raise NotEncodableError("it contains itself")
        if kind in _TAGS or kind in _DICTS:
            self.pay(6)
            self._path.add(id(value))
            try:
                return self._walk_container(value, kind, depth + 1)
            finally:
                self._path.discard(id(value))
        return self.other_value(value, kind, depth)

    def _walk_text(self, value: str) -> Any:
        self.pay(len(value) + 3)
        quoted = _quoted(value)
        self.pay(len(quoted) - len(value))
        # Two lone surrogates in a row would be read back as one character.
        if "\\ud" in quoted and any("\ud800" <= char <= "\udfff" for char in value):
            return self.written("str", _TEXTS["str"][0](value))
        return value

    def _walk_scalar(self, value: Any, kind: type) -> Any:
        if kind is int and _LOW < value < _HIGH:
            self.pay(value.bit_length() // 3 + 2)
            return value
        if kind is float and value - value == 0:
            self.pay(32)
            return value
        length = value.bit_length() // 4 if kind is int else 2 * len(value) if kind in (bytes, bytearray) else 0
        if length > self.left:
            raise NotEncodableError("too large")
        return self.written(kind.__name__, _TEXTS[kind.__name__][0](value))

    def written(self, name: str, text: str) -> list[str]:
        self.pay(len(text) + len(name) + 11)
        return ["x", name, text]

    def _walk_container(self, value: Any, kind: type, depth: int) -> Any:
        # Loops: a comprehension would be another frame for each level of a value, and its recursion is limited.
        walk = self.walk
        if kind in _DICTS:
            self.pay(2 * len(value))
            out: list[Any] = ["d"]
            for pair in dict.items(value):
                for part in pair:
                    out.append(walk(part, depth))
            return out
        self.pay(len(value))
        out = [_TAGS[kind]]
        if len(value) >= _MANY and set(map(type, value)) == {int} and min(value) > _LOW and max(value) < _HIGH:
            self.pay(len(value) * len(str(max(max(value), -min(value)))))
            return [*out, *value]
        for item in value:
            out.append(walk(item, depth))
        return out

    def other_value(self, value: Any, kind: type, depth: int) -> Any:
        if kind.__base__ is tuple and hasattr(kind, "_fields"):  # a named tuple equals a tuple
            return self.walk(tuple(tuple.__iter__(value)), depth)
        if (known := self.library_value(value)) is not None:
            return known
        name = _find_type_name(value)
        self.pay(len(_quoted(name)) + 40)
        return ["o", name, ""]

    def library_value(self, value: Any) -> Any:
        """The encoding of a numpy number or of a value such as a Decimal; None for everything else."""
        kind = type(value)
        generic = getattr(sys.modules.get("numpy"), "generic", None)
        if type(generic) is type and issubclass(kind, generic) and kind.__module__ == "numpy":
            item = value.item()
            if type(item) in _NUMBERS or type(item) in (str, bytes):
                return self.walk(item, 0)
        return self.written(kind.__name__, _write_library(value)) if _is_of_library(value) else None


def decode(tagged: Any) -> Any:
    """A new value from the result of `encode`; ValueError for anything else. The input need not be trusted."""
    return Decoder().decode(tagged)


_AS_THEY_ARE = {int, str, bool, type(None)}


class Decoder:
    """One walk over an encoded value; limits the number of values and the depth."""

    def __init__(self) -> None:
        self.left = _MAX_ITEMS
        self.is_plain = True
        """Whether nothing in the value is opaque."""

    def decode(self, tagged: Any) -> Any:
        try:
            return self.walk(tagged, 0)
        except RecursionError:
            raise ValueError("too deep") from None

    def walk(self, tagged: Any, depth: int) -> Any:
        self.left -= 1
        if self.left < 0 or depth > MAX_DEPTH + 1:
            raise ValueError("too many values, or too deep")
        kind = type(tagged)
        if kind in _AS_THEY_ARE:
            return tagged
        if kind is float:
            if tagged - tagged != 0:
                raise ValueError("JSON has no such number")
            return tagged
        if kind is not list or not tagged or type(tagged[0]) is not str:
            raise ValueError("no value")
        make = _CONTAINERS.get(tagged[0])
        if make is not None:  # one stack frame per level, to stay below Python's recursion limit
            items: list[Any] = tagged[1:]
            if len(items) >= _MANY and set(map(type, items)) <= _AS_THEY_ARE:
                self.left -= len(items)
                if self.left < 0:
                    raise ValueError("too many values")
                return make(items)
            for place, item in enumerate(items):
                items[place] = self.walk(item, depth + 1)
            return make(items)
        tag, *rest = tagged
        if tag not in ("x", "o"):
            return self.read_other(tag, rest)
        if list(map(type, rest)) != [str, str]:
            raise ValueError("parts that do not fit")
        if tag == "x":
            return _read_text(*rest)
        self.is_plain = False
        return OpaqueValue(rest[0][:_MAX_NAME], rest[1][:_MAX_NAME])

    def read_other(self, tag: str, rest: list[Any]) -> Any:
        raise ValueError("no known kind of value")


def _read_text(name: str, text: str) -> Any:
    try:
        if name in _LIBRARY:
            return _read_library(name, text)
        return _TEXTS[name][1](text)
    except (ArithmeticError, LookupError, TypeError) as error:
        raise ValueError(str(error)) from None


def _make_dict(items: list[Any]) -> dict[Any, Any]:
    if len(items) % 2:
        raise ValueError("a key without a value")
    return dict(zip(_hashable(items[::2]), items[1::2], strict=True))


def _hashable(items: list[Any]) -> list[Any]:
    """The items, if making a set of them does not take too long."""
    seen: dict[int, int] = {}
    for item in items:
        try:
            code = hash(item)
        except TypeError:
            raise ValueError("a member that cannot be hashed") from None
        seen[code] = count = seen.get(code, 0) + 1
        if count > _MAX_SAME_HASH:
            raise ValueError("too many members of one hash")
    return items


_CONTAINERS: dict[str, Callable[[list[Any]], Any]] = {
    "l": lambda items: items,
    "t": tuple,
    "S": lambda items: set(_hashable(items)),
    "F": lambda items: frozenset(_hashable(items)),
    "d": _make_dict,
}
_BRACKETS = {list: ("[", "]"), tuple: ("(", ")"), set: ("{", "}"), frozenset: ("frozenset({", "})")}
_SHOWN_WHOLE = frozenset({type(None), bool, float, complex, type(...), range, OpaqueValue})
_LONG_INT = 2000
"""Bits above which an int is shown in base 16, which is fast."""
_MAX_SORTED = 200
"""Largest set whose members are shown sorted by their texts, so that the order does not depend on hashes."""


def _find_type_name(value: Any) -> str:
    """Name of the value's type, even if its class overrides attribute access."""
    try:
        return str(type.__dict__["__name__"].__get__(type(value)))[:_MAX_NAME]
    except Exception:
        return "object"


def show_value(value: Any, limit: int = 500) -> str:
    """`repr` for humans, at most `limit` characters long; equal sets give the same text."""
    text = _show(value, limit)
    return text if len(text) <= limit else text[: limit - 3] + "..."


def _show(value: Any, limit: int) -> str:
    """The text of a value; may be incomplete if it is longer than `limit`."""
    kind = type(value)
    if kind is int:
        return repr(value) if value.bit_length() <= _LONG_INT else hex(value)
    if kind in (str, bytes, bytearray):
        return repr(value[: limit + 1])
    if kind in _SHOWN_WHOLE or (not value and kind in _BRACKETS):
        return repr(value)
    if kind is dict:
        return f"{{{_join((f'{_show(key, limit)}: {_show(item, limit)}' for key, item in value.items()), limit)}}}"
    if kind in _BRACKETS:
        begin, end = _BRACKETS[kind]
        is_set = kind in (set, frozenset)
        numbers = is_set and all(isinstance(member, (int, float)) for member in value)
        shown: Any = (_show(item, limit) for item in (sorted(value) if numbers else value))
        if is_set and not numbers:
            shown = sorted(shown) if len(value) <= _MAX_SORTED else [f"<{len(value)} members>"]
        return begin + _join(shown, limit) + (",)" if kind is tuple and len(value) == 1 else end)
    return repr(value)[: limit + 1] if _is_of_library(value) else f"<{_find_type_name(value)} object>"


def _join(texts: Iterable[str], limit: int) -> str:
    joined: list[str] = []
    length = 0
    for text in texts:
        joined.append(text)
        length += len(text) + 2
        if length > limit + 2:
            break
    return ", ".join(joined)
