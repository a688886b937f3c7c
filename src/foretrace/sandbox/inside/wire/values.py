"""Values on the wire: builtin types and a few more as tagged JSON; all else is opaque, and equal to nothing."""

from __future__ import annotations

import sys
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable
from json.encoder import encode_basestring_ascii as _quoted
from typing import Any

from foretrace.sandbox.inside.wire.show import OpaqueValue, find_type_name, show_value
from foretrace.sandbox.inside.wire.stdlib_values import decode_stdlib_value, encode_stdlib_value, is_stdlib_value

__all__ = ["MAX_DEPTH", "OpaqueValue", "decode", "encode", "find_type_name", "show_value"]
MAX_DEPTH = 200
"""Containers within one another; what is deeper is opaque."""
_MAX_ITEMS = 1 << 22
"""Values in one value that `decode` takes by default."""
_MAX_SAME_HASH = 100
"""Members of one set or dict that may share a hash: more are made to be slow."""
_MAX_TEXT = 200
_MANY = 32
"""Items from which on a look at all of their types is worth it: those of a long list are not walked one by one."""
_LOW, _HIGH = -(1 << 53), 1 << 53
"""Between these an int is a number of JSON."""
_NUMBERS = frozenset({int, float, complex, bool})
_DICTS = frozenset({dict, Counter, OrderedDict, defaultdict})
_TAGS = {list: "l", tuple: "t", set: "S", frozenset: "F"}


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
            return self.flat(value, kind)
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
            code = value.encode("utf-8", "surrogatepass").hex()
            self.pay(len(code))
            return ["s", code]
        return value

    def flat(self, value: Any, kind: type) -> Any:
        if kind is int:
            self.pay(value.bit_length() // 3 + 2)
            return value if -(1 << 53) < value < 1 << 53 else ["i", hex(value)]
        self.pay(32)
        if kind is float:
            if value - value == 0:
                return value
            return ["f", "nan" if value != value else "inf" if value > 0 else "-inf"]
        if kind is complex:
            return ["c", self.flat(value.real, float), self.flat(value.imag, float)]
        if kind is range:
            return ["r", self.flat(value.start, int), self.flat(value.stop, int), self.flat(value.step, int)]
        if value is Ellipsis:
            return ["e"]
        self.pay(2 * len(value))
        return ["b" if kind is bytes else "ba", value.hex()]

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
        known = self.stdlib_value(value)
        if known is not None:
            return known
        name = find_type_name(value)
        self.pay(len(_quoted(name)) + 40)
        return ["o", name, ""]

    def stdlib_value(self, value: Any) -> Any:
        """The encoding of a number of numpy's, or of a value such as a Decimal; None for all else."""
        kind = type(value)
        generic = getattr(sys.modules.get("numpy"), "generic", None)
        if type(generic) is type and issubclass(kind, generic) and kind.__module__ == "numpy":
            item = value.item()
            if type(item) in _NUMBERS or type(item) in (str, bytes):
                return self.walk(item, 0)
        if is_stdlib_value(value):
            spelling = encode_stdlib_value(value)
            self.pay(len(spelling[1]) + 20)
            return ["x", *spelling]
        return None


def decode(tagged: Any, limit: int = _MAX_ITEMS) -> Any:
    """A fresh value from what `encode` gave, whoever made it.

    Args:
        limit: how many values may be in it, itself counted.

    Raises:
        ValueError: `encode` cannot have given this.
    """
    try:
        return Decoder(limit).walk(tagged, 0)
    except RecursionError:
        raise ValueError("too deep") from None


_AS_THEY_ARE = {int, str, bool, type(None)}


class Decoder:
    """One walk over what an encoder gave; it takes only so many values, and only so deep."""

    max_depth = MAX_DEPTH + 1

    def __init__(self, limit: int = _MAX_ITEMS) -> None:
        self.left = limit

    def walk(self, tagged: Any, depth: int) -> Any:
        self.left -= 1
        if self.left < 0 or depth > self.max_depth:
            raise ValueError("too many values, or too deep")
        kind = type(tagged)
        if tagged is None or kind in (bool, int, str):
            return tagged
        if kind is float:
            if tagged - tagged != 0:
                raise ValueError("a number that is none")
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
        reader = _READERS.get(tagged[0])
        if reader is None:
            return self.read_other(tagged[0], tagged[1:])
        return reader(self, tagged[1:], depth + 1)

    def read_other(self, tag: str, rest: list[Any]) -> Any:
        """A value of another kind."""
        raise ValueError("no known kind of value")

    def walk_all(self, items: list[Any], depth: int) -> list[Any]:
        return [self.walk(item, depth) for item in items]


def _read_int(_: Decoder, rest: list[Any], depth: int) -> int:
    (text,) = _check_types(rest, str)
    return int(text, 16)


def _read_float(_: Decoder, rest: list[Any], depth: int) -> float:
    (text,) = _check_types(rest, str)
    if text not in ("nan", "inf", "-inf"):
        raise ValueError("no float")
    return float(text)


def _read_complex(decoder: Decoder, rest: list[Any], depth: int) -> complex:
    real, imaginary = _check_types(decoder.walk_all(rest, depth), float, float)
    return complex(real, imaginary)


def _read_range(decoder: Decoder, rest: list[Any], depth: int) -> range:
    return range(*_check_types(decoder.walk_all(rest, depth), int, int, int))


def _read_text(_: Decoder, rest: list[Any], depth: int) -> str:
    (code,) = _check_types(rest, str)
    return bytes.fromhex(code).decode("utf-8", "surrogatepass")


def _read_bytes(_: Decoder, rest: list[Any], depth: int) -> bytes:
    (code,) = _check_types(rest, str)
    return bytes.fromhex(code)


def _read_ellipsis(_: Decoder, rest: list[Any], depth: int) -> Any:
    _check_types(rest)
    return ...


def _make_dict(items: list[Any]) -> dict[Any, Any]:
    if len(items) % 2:
        raise ValueError("a key without a value")
    return dict(zip(_hashable(items[::2]), items[1::2], strict=True))


def _read_stdlib_value(_: Decoder, rest: list[Any], depth: int) -> Any:
    name, text = _check_types(rest, str, str)
    return decode_stdlib_value(name, text)


def _read_opaque(_: Decoder, rest: list[Any], depth: int) -> OpaqueValue:
    name, text = _check_types(rest, str, str)
    return OpaqueValue(name[:_MAX_TEXT], text[:_MAX_TEXT])


def _check_types(items: list[Any], *kinds: type) -> list[Any]:
    if [type(item) for item in items] != list(kinds):
        raise ValueError("parts that do not fit")
    return items


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
_READERS: dict[str, Any] = {
    "i": _read_int,
    "f": _read_float,
    "c": _read_complex,
    "r": _read_range,
    "s": _read_text,
    "b": _read_bytes,
    "ba": lambda decoder, rest, depth: bytearray(_read_bytes(decoder, rest, depth)),
    "e": _read_ellipsis,
    "x": _read_stdlib_value,
    "o": _read_opaque,
}
