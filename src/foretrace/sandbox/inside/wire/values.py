"""Values on the wire: builtin types and a few more as tagged JSON; all else is opaque, and equal to nothing.

None, bools, strings, finite floats and small ints are JSON as they are. Containers are `["l", item, ...]` with a tag of
`_CONTAINERS`; values of `_KINDS` are `["x", kind, text]`; what has no encoding is `["o", type, why]`.
"""

from __future__ import annotations

import sys
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Iterable
from json.encoder import encode_basestring_ascii as _quoted
from typing import Any, NamedTuple

MAX_DEPTH = 200
"""Containers within one another; what is deeper is opaque."""
_MAX_ITEMS = 1 << 22
"""Values in one value that a decoder takes."""
_MAX_SAME_HASH = 100
"""Members of one set or dict that may share a hash: more are made to be slow."""
_MAX_NAME = 200
_MAX_TEXT = 2000
"""Characters in which a value of the standard library may be written."""
_MAX_EXPONENT = 1_000_000
"""Above this, to make an int of a decimal takes for ever."""
_MANY = 32
"""Items from which on a look at all of their types is worth it: those of a long list are not walked one by one."""
_LOW, _HIGH = -(1 << 53), 1 << 53
"""Between these an int is a number of JSON."""
_NUMBERS = frozenset({int, float, complex, bool})
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


class _Kind(NamedTuple):
    """A type whose values are written as text."""

    module: str
    write: Callable[[Any], str]
    read: Callable[[str], Any]


def _write_decimal(value: Any) -> str:
    if value.is_snan() or (value.is_finite() and abs(value.adjusted()) > _MAX_EXPONENT):
        raise ValueError("a decimal that cannot be compared")
    return str(value)


def _read_decimal(text: str) -> Any:
    from decimal import Decimal

    value = Decimal(text)
    _write_decimal(value)
    return value


def _read_fraction(text: str) -> Any:
    from fractions import Fraction

    above, _, below = text.partition("/")
    return Fraction(int(above, 16), int(below, 16))


def _write_moment(value: Any) -> str:
    if value.tzinfo is not None and type(value.tzinfo).__name__ != "timezone":
        raise ValueError("a zone of another kind")
    return str(value.isoformat())


def _read_moment(name: str) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        import datetime

        return getattr(datetime, name).fromisoformat(text)

    return read


def _read_delta(text: str) -> Any:
    from datetime import timedelta

    days, seconds, microseconds = map(int, text.split())
    return timedelta(days, seconds, microseconds)


def _read_uuid(text: str) -> Any:
    from uuid import UUID

    return UUID(hex=text)


_KINDS = {
    "int": _Kind("builtins", hex, lambda text: int(text, 16)),
    "float": _Kind("builtins", repr, float),
    "complex": _Kind("builtins", repr, complex),
    "range": _Kind(
        "builtins",
        lambda value: f"{value.start:x} {value.stop:x} {value.step:x}",
        lambda text: range(*(int(part, 16) for part in text.split())),
    ),
    "str": _Kind(
        "builtins",
        lambda value: value.encode("utf-8", "surrogatepass").hex(),
        lambda text: bytes.fromhex(text).decode("utf-8", "surrogatepass"),
    ),
    "bytes": _Kind("builtins", bytes.hex, bytes.fromhex),
    "bytearray": _Kind("builtins", bytearray.hex, bytearray.fromhex),
    "ellipsis": _Kind("builtins", lambda value: "", lambda text: ...),
    "Decimal": _Kind("decimal", _write_decimal, _read_decimal),
    "Fraction": _Kind("fractions", lambda value: f"{value.numerator:x}/{value.denominator:x}", _read_fraction),
    "date": _Kind("datetime", lambda value: str(value.isoformat()), _read_moment("date")),
    "time": _Kind("datetime", _write_moment, _read_moment("time")),
    "datetime": _Kind("datetime", _write_moment, _read_moment("datetime")),
    "timedelta": _Kind("datetime", lambda v: f"{v.days} {v.seconds} {v.microseconds}", _read_delta),
    "UUID": _Kind("uuid", lambda value: str(value.hex), _read_uuid),
}
"""By the type's name. Of builtins these are the values that JSON has no way to write."""


def _is_of_library(value: Any) -> bool:
    """Whether the value is of a type of `_KINDS` that is not builtin, exactly."""
    kind = type(value)
    found = _KINDS.get(kind.__name__)
    return found is not None and getattr(sys.modules.get(found.module), kind.__name__, None) is kind


class NotEncodableError(Exception):
    """Why a value has no encoding."""


def encode(value: Any, limit: int) -> Any:
    """JSON of `value`, at most about `limit` bytes long; that of an `OpaqueValue` where there is none. Never raises."""
    try:
        return Encoder(limit).walk(value, 0)
    except NotEncodableError as why:
        return ["o", find_type_name(value), str(why)]
    except Exception as error:
        return ["o", find_type_name(value), f"it could not be read ({find_type_name(error)})"]


class Encoder:
    """One walk over a value, which counts bytes before it makes them."""

    max_depth = MAX_DEPTH

    def __init__(self, limit: int) -> None:
        self.left = limit
        self.path: set[int] = set()

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
            return self.text(value)
        if kind in _NUMBERS or kind in (bytes, bytearray, range) or value is Ellipsis:
            return self.scalar(value, kind)
        if depth >= self.max_depth:
            raise NotEncodableError("too deep")
        if id(value) in self.path:
            raise NotEncodableError("it contains itself")
        if kind in _TAGS or kind in _DICTS:
            self.pay(6)
            self.path.add(id(value))
            try:
                return self.container(value, kind, depth + 1)
            finally:
                self.path.discard(id(value))
        return self.other_value(value, kind, depth)

    def text(self, value: str) -> Any:
        self.pay(len(value) + 3)
        quoted = _quoted(value)
        self.pay(len(quoted) - len(value))
        # Two lone surrogates in a row would be read back as one character.
        if "\\ud" in quoted and any("\ud800" <= char <= "\udfff" for char in value):
            return self.written("str", value)
        return value

    def scalar(self, value: Any, kind: type) -> Any:
        if kind is int and _LOW < value < _HIGH:
            self.pay(value.bit_length() // 3 + 2)
            return value
        if kind is float and value - value == 0:
            self.pay(32)
            return value
        length = value.bit_length() // 4 if kind is int else 2 * len(value) if kind in (bytes, bytearray) else 0
        if length > self.left:
            raise NotEncodableError("too large")
        return self.written(kind.__name__, value)

    def written(self, name: str, value: Any) -> list[str]:
        """A value of a kind that is written as text."""
        kind = _KINDS[name]
        text = kind.write(value)
        if kind.module != "builtins" and len(text) > _MAX_TEXT:
            raise ValueError("too long")
        self.pay(len(text) + len(name) + 11)
        return ["x", name, text]

    def container(self, value: Any, kind: type, depth: int) -> Any:
        walk = self.walk
        if kind in _TAGS:
            self.pay(len(value))
            out: list[Any] = [_TAGS[kind]]
            if len(value) >= _MANY and set(map(type, value)) == {int} and min(value) > _LOW and max(value) < _HIGH:
                self.pay(len(value) * len(str(max(max(value), -min(value)))))
                return [*out, *value]
            for item in value:
                out.append(walk(item, depth))
            return out
        self.pay(2 * len(value))
        out = ["d"]
        for key, item in dict.items(value):
            out.append(walk(key, depth))
            out.append(walk(item, depth))
        return out

    def other_value(self, value: Any, kind: type, depth: int) -> Any:
        if kind.__base__ is tuple and hasattr(kind, "_fields"):  # a named tuple is equal to a tuple
            return self.walk(tuple(tuple.__iter__(value)), depth)
        known = self.library_value(value)
        if known is not None:
            return known
        name = find_type_name(value)
        self.pay(len(_quoted(name)) + 40)
        return ["o", name, ""]

    def library_value(self, value: Any) -> Any:
        """The encoding of a number of numpy's, or of a value such as a Decimal; None for all else."""
        kind = type(value)
        generic = getattr(sys.modules.get("numpy"), "generic", None)
        if type(generic) is type and issubclass(kind, generic) and kind.__module__ == "numpy":
            item = value.item()
            if type(item) in _NUMBERS or type(item) in (str, bytes):
                return self.walk(item, 0)
        return self.written(kind.__name__, value) if _is_of_library(value) else None


def decode(tagged: Any) -> Any:
    """A fresh value from what `encode` gave, whoever made it.

    Raises:
        ValueError: `encode` cannot have given this.
    """
    return Decoder().decode(tagged)


_AS_THEY_ARE = {int, str, bool, type(None)}


class Decoder:
    """One walk over what an encoder gave; it takes only so many values, and only so deep."""

    max_depth = MAX_DEPTH + 1

    def __init__(self) -> None:
        self.left = _MAX_ITEMS
        self.is_plain = True
        """Whether nothing in the value is opaque."""

    def decode(self, tagged: Any) -> Any:
        """The value; a ValueError where there is none."""
        try:
            return self.walk(tagged, 0)
        except RecursionError:
            raise ValueError("too deep") from None

    def walk(self, tagged: Any, depth: int) -> Any:
        self.left -= 1
        if self.left < 0 or depth > self.max_depth:
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
        if make is not None:  # one frame a level: what is as deep as may be must not meet Python's own limit
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
            return _read_kind(*rest)
        self.is_plain = False
        return OpaqueValue(rest[0][:_MAX_NAME], rest[1][:_MAX_NAME])

    def read_other(self, tag: str, rest: list[Any]) -> Any:
        """A value of another kind."""
        raise ValueError("no known kind of value")


def _read_kind(name: str, text: str) -> Any:
    kind = _KINDS.get(name)
    if kind is None or (kind.module != "builtins" and len(text) > _MAX_TEXT):
        raise ValueError("no known kind of value")
    try:
        return kind.read(text)
    except (ArithmeticError, TypeError) as error:
        raise ValueError(str(error)) from None


def _make_dict(items: list[Any]) -> dict[Any, Any]:
    if len(items) % 2:
        raise ValueError("a key without a value")
    return dict(zip(_hashable(items[::2]), items[1::2], strict=True))


def _hashable(items: list[Any]) -> list[Any]:
    """The items, if they can be the members of a set at a fair price."""
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
"""Bits above which an int is shown in base 16, which is cheap."""
_MAX_SORTED = 200
"""Members of a set that are shown in the order of their texts, which does not depend on hashes."""


def find_type_name(value: Any) -> str:
    """Name of the value's type, read past anything that its class overrides."""
    try:
        return str(type.__dict__["__name__"].__get__(type(value)))[:_MAX_NAME]
    except Exception:
        return "object"


def show_value(value: Any, limit: int = 500) -> str:
    """`repr` for a human, at most `limit` characters long, the same for equal sets."""
    text = _show(value, limit)
    return text if len(text) <= limit else text[: limit - 3] + "..."


def _show(value: Any, limit: int) -> str:
    """The text of a value; of a longer one than `limit` not all of it is there."""
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
    return repr(value)[: limit + 1] if _is_of_library(value) else f"<{find_type_name(value)} object>"


def _join(texts: Iterable[str], limit: int) -> str:
    """The texts with commas, up to the one with which they are longer than `limit`."""
    joined: list[str] = []
    length = 0
    for text in texts:
        joined.append(text)
        length += len(text) + 2
        if length > limit + 2:
            break
    return ", ".join(joined)
