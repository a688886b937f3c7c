"""Values between two processes: plain data is copied with its own types, all else goes by reference.

Beyond `wire.values` (which gives the meaning of the tags that are not listed here):

    ["a", number]                  a list, dict, set, ... that this request or its answer has already named: aliases and
                                   cycles stay what they are. Numbers count such containers in the order of the walk
    ["od"|"ct"|"dd"|"dq", ...]     OrderedDict, Counter, defaultdict (its factory first), deque (its length limit first)
    ["dk"|"dv"|"di", ...]          the keys, values or items of a dict
    ["it", ...]                    an iterator over a builtin container: the items that are left
    ["N"]                          NotImplemented
    ["sl", start, stop, step]      a slice
    ["pa", text]                   a path
    ["n", module, name]            a class or function of the standard library, which each side has
    ["h", number, class, base]     an object of the sender; `base` is its value as a builtin type that its class extends
    ["C", number, description]     a class of the sender, described the first time it is named
    ["j", number]                  an object or class of the receiver
    ["E", exception]               an exception that is a value
"""

from __future__ import annotations

import types
from collections import Counter, OrderedDict, defaultdict, deque
from typing import Any

from foretrace.sandbox.inside.wire.values import Decoder, Encoder, NotEncodableError

MAX_VALUES = 1 << 22
"""Values in one message."""
_DICTS: dict[type, str] = {dict: "d", OrderedDict: "od", Counter: "ct", defaultdict: "dd"}
_LISTS: dict[type, str] = {list: "l", set: "S", deque: "dq"}
CONTAINERS = (*_DICTS, *_LISTS, bytearray)
"""Types whose objects can change in place: what a call does to one of them is seen by its caller."""
_VIEWS: dict[type, str] = {type({}.keys()): "dk", type({}.values()): "dv", type({}.items()): "di"}
_ITERATORS = frozenset(
    type(iter(kind()))  # type: ignore[call-overload]
    for kind in (list, tuple, str, dict, set, bytes, bytearray, {}.values, {}.items, lambda: range(0))
) | {type(reversed([])), type(iter(range(1 << 70)))}


class MessageEncoder(Encoder):
    """Encodes the values of one message.

    Args:
        limit: bytes that they may have.
        refer: gives the reference to an object that is no plain data.
        containers: those that the message may name by number, as the other side has them.
    """

    def __init__(self, limit: int, refer: Any, containers: list[Any] | None = None) -> None:
        super().__init__(limit)
        self._refer = refer
        self.containers = list(containers or [])
        self._numbers = {id(container): number for number, container in enumerate(self.containers)}

    def walk(self, value: Any, depth: int) -> Any:
        kind = type(value)
        if kind in CONTAINERS:
            number = self._numbers.get(id(value))
            if number is not None:
                self.pay(12)
                return ["a", number]
            self._numbers[id(value)] = len(self.containers)
            self.containers.append(value)
            return self.content(value, depth)
        return super().walk(value, depth)

    def content(self, value: Any, depth: int = 0) -> Any:
        """The container's items, although it may have been named before."""
        kind, walk = type(value), self.walk
        if depth >= self.max_depth:
            raise NotEncodableError("too deep")
        if kind is bytearray:
            return self.flat(value, kind)
        self.pay(6 + 2 * len(value))
        depth += 1
        if kind in _LISTS:
            out: list[Any] = [_LISTS[kind]]
            if kind is deque:
                out.append(value.maxlen)
            for item in list(value):
                out.append(walk(item, depth))
            return out
        out = [_DICTS[kind]]
        if kind is defaultdict:
            out.append(walk(value.default_factory, depth))
        for key, item in list(dict.items(value)):
            out.append(walk(key, depth))
            out.append(walk(item, depth))
        return out

    def container(self, value: Any, kind: type, depth: int) -> Any:
        if kind in (tuple, frozenset):
            return super().container(value, kind, depth)
        return self.other_value(value, kind, depth)

    def other_value(self, value: Any, kind: type, depth: int) -> Any:
        if value is NotImplemented:
            return ["N"]
        if kind is types.TracebackType:
            return None  # it means something on its own side alone
        if kind is slice:
            return ["sl", *(self.walk(part, depth + 1) for part in (value.start, value.stop, value.step))]
        if kind.__name__ == "PosixPath" and kind.__module__.startswith("pathlib"):
            return ["pa", str(value)]
        if kind in _VIEWS:
            return [_VIEWS[kind], *(self.walk(item, depth + 1) for item in value)]
        if kind in _ITERATORS:
            import copy

            return ["it", *(self.walk(item, depth + 1) for item in copy.copy(value))]
        known = self.stdlib_value(value)
        return known if known is not None else self._refer(self, value, depth)


class MessageDecoder(Decoder):
    """Decodes the values of one message: the counterpart of `MessageEncoder`.

    Args:
        resolve: makes something of a reference (the tags n, h, C, j and E).
    """

    def __init__(self, resolve: Any, containers: list[Any] | None = None, limit: int = MAX_VALUES) -> None:
        super().__init__(limit)
        self._resolve = resolve
        self.containers = list(containers or [])

    def walk(self, tagged: Any, depth: int) -> Any:
        if type(tagged) is list and tagged:
            tag = tagged[0]
            if tag in _EMPTY:
                self.left -= 1
                if depth > self.max_depth:
                    raise ValueError("too deep")
                made = self._make(tag, tagged, depth)
                self.containers.append(made)
                self.fill(made, tagged, depth)
                return made
            if tag == "a":
                return self.containers[self._number(tagged)]
            if tag in ("h", "C", "j", "n", "E"):
                self.left -= 1
                return self._resolve(self, tagged, depth)
            if tag in _SPECIAL:
                return _SPECIAL[tag](self.walk_all(tagged[1:], depth + 1))
        return super().walk(tagged, depth)

    def _make(self, tag: str, tagged: list[Any], depth: int) -> Any:
        if tag == "dq":
            return deque(maxlen=tagged[1])
        if tag == "dd":
            return defaultdict(self.walk(tagged[1], depth + 1))
        return _EMPTY[tag]()

    def fill(self, made: Any, tagged: list[Any], depth: int = 0) -> None:
        """Give a container the items of an encoded one of its kind."""
        if type(made) is bytearray:
            made[:] = bytes.fromhex(tagged[1])
            return
        made.clear()
        rest = tagged[2:] if tagged[0] in ("dq", "dd") else tagged[1:]
        items = self.walk_all(rest, depth + 1)
        if isinstance(made, dict):
            if len(items) % 2:
                raise ValueError("a key without a value")
            for number in range(0, len(items), 2):
                made[items[number]] = items[number + 1]
        elif type(made) is set:
            made.update(items)
        else:
            made.extend(items)

    def _number(self, tagged: list[Any]) -> int:
        number = tagged[1]
        if type(number) is not int or not 0 <= number < len(self.containers):
            raise ValueError("a number of no container")
        return number


_EMPTY: dict[Any, Any] = {
    "l": list,
    "S": set,
    "d": dict,
    "ba": bytearray,
    "od": OrderedDict,
    "ct": Counter,
    "dd": defaultdict,
    "dq": deque,
}
_SPECIAL: dict[Any, Any] = {
    "N": lambda items: NotImplemented,
    "dk": lambda items: dict.fromkeys(items).keys(),
    "dv": lambda items: dict(enumerate(items)).values(),
    "di": lambda items: dict(items).items(),
    "it": iter,
    "sl": lambda items: slice(*items),
    "pa": lambda items: _make_path(*items),
}


def _make_path(text: str) -> Any:
    from pathlib import Path

    return Path(text)


def snapshot(containers: list[Any]) -> list[Any]:
    """What the containers hold now, for `find_changes`."""
    return [
        list(c.items()) if isinstance(c, dict) else bytes(c) if type(c) is bytearray else list(c) for c in containers
    ]


def find_changes(containers: list[Any], before: list[Any]) -> list[int]:
    """Numbers of the containers that hold something else than they did."""
    changed: list[int] = []
    for number, (container, old) in enumerate(zip(containers, before, strict=False)):
        if type(container) is bytearray:
            same = bytes(container) == old
        elif len(container) != len(old):
            same = False
        elif isinstance(container, dict):
            same = all(
                key is old_key and value is old_value
                for (key, value), (old_key, old_value) in zip(dict.items(container), old, strict=True)
            )
        else:
            same = all(a is b for a, b in zip(container, old, strict=True))
        if not same:
            changed.append(number)
    return changed
