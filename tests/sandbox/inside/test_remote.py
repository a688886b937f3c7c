"""Objects of one side used from the other: what crosses by value, and what stands for the rest."""

from __future__ import annotations

import copy
import enum
from array import array
from collections import ChainMap, Counter, OrderedDict, UserDict, UserList, defaultdict, deque
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrace.sandbox.inside.remote.codec import MessageDecoder, MessageEncoder
from foretrace.sandbox.inside.remote.peer import Peer
from foretrace.sandbox.inside.remote.shared_containers import SharedContainers

KEYS = st.one_of(st.integers(), st.text(max_size=5), st.booleans(), st.none(), st.tuples(st.integers()))
PLAIN = st.recursive(
    st.one_of(
        *(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(), st.binary()),
        *(st.complex_numbers(allow_nan=False), st.builds(range, st.integers(-9, 9), st.integers(-9, 9))),
    ),
    lambda inner: st.one_of(
        *(st.lists(inner), st.lists(inner).map(tuple), st.dictionaries(KEYS, inner), st.sets(KEYS)),
        *(st.frozensets(KEYS), st.lists(inner).map(deque), st.dictionaries(KEYS, inner).map(OrderedDict)),
        st.lists(KEYS).map(Counter),
    ),
    max_leaves=12,
)


def refuse(*_: Any) -> Any:
    raise AssertionError("a plain value is no reference")


def across(value: Any) -> Any:
    tagged = MessageEncoder(1 << 20, refuse, SharedContainers()).walk(value, 0)
    return MessageDecoder(refuse, SharedContainers()).walk(tagged, 0)


def types_of(value: Any) -> Any:
    if isinstance(value, dict):
        return type(value), [(types_of(k), types_of(v)) for k, v in value.items()]
    if isinstance(value, (list, tuple, deque)):
        return type(value), [types_of(item) for item in value]
    return type(value)


@given(PLAIN)
def test_plain_data_is_copied_with_its_types(value: Any) -> None:
    assert across(value) == value
    assert types_of(across(value)) == types_of(value)


def test_aliases_and_cycles_stay_what_they_are() -> None:
    inner = [1]
    outer: list[Any] = [inner, inner, {"x": inner}]
    outer.append(outer)
    copied = across(outer)
    assert copied[0] is copied[1] is copied[2]["x"] and copied[3] is copied
    bounded = across(deque([1, 2], maxlen=2))
    assert bounded.maxlen == 2 and list(bounded) == [1, 2]
    assert across({"a": 1}.keys()) == {"a"} and list(across({"a": 1}.items())) == [("a", 1)]
    assert list(across(iter([1, 2, 3]))) == [1, 2, 3]


class Wire:
    """The channel of one end: the other end serves what is sent."""

    def __init__(self) -> None:
        self.other: Peer | None = None
        self._answers: list[Any] = []

    def send(self, message: Any) -> None:
        assert self.other is not None
        self._answers.append(self.other.serve(message))

    def receive(self) -> Any:
        return self._answers.pop()


class Here(Peer):
    def perform(self, operation: str, name: Any, args: list[Any], named: dict[str, Any]) -> Any:
        return globals()[name] if operation == "global" else super().perform(operation, name, args, named)


@pytest.fixture
def far() -> Any:
    """Gives what stands for a global of this module, as if it were another process's."""
    wires = Wire(), Wire()
    near, there = Peer(wires[0], 1 << 20), Here(wires[1], 1 << 20)
    wires[0].other, wires[1].other = there, near
    return lambda name: near.request("global", name)


class Vector:
    """A pair."""

    unit = 1

    def __init__(self, x: float, y: float) -> None:
        self.x, self.y = x, y

    def __add__(self, other: Any) -> Any:
        return Vector(self.x + other.x, self.y + other.y) if isinstance(other, Vector) else NotImplemented

    def __rmul__(self, factor: float) -> Vector:
        return Vector(factor * self.x, factor * self.y)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Vector) and (self.x, self.y) == (other.x, other.y)

    def __hash__(self) -> int:
        return hash((self.x, self.y))

    def __iter__(self) -> Iterator[float]:
        return iter((self.x, self.y))

    def __repr__(self) -> str:
        return f"Vector({self.x}, {self.y})"

    def scaled(self, factor: float) -> Vector:
        """Times a factor."""
        return factor * self

    @classmethod
    def zero(cls) -> Vector:
        return cls(0, 0)


class Stack(list[Any]):
    def push(self, item: Any) -> None:
        self.append(item)


class Colour(enum.IntEnum):
    RED = 1
    BLUE = 2


class OwnError(ValueError):
    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


def fail(code: int) -> None:
    raise OwnError("no", code)


def count(limit: int) -> Iterator[int]:
    yield from range(limit)


def extend(items: list[int], by: Any) -> list[int]:
    items.append(by(len(items)))
    return items


def test_a_class_of_the_other_side_is_a_class_here(far: Any) -> None:
    kind = far("Vector")
    v = kind(1, 2)
    assert kind.__name__ == "Vector" and type(v) is kind and isinstance(v, kind) and kind is not Vector
    assert v + kind(1, 1) == kind(2, 3) and 2 * v == kind(2, 4) and v != kind(0, 0)
    assert list(v) == [1, 2] and repr(v) == "Vector(1, 2)" and v.scaled(3).y == 6 and kind.unit == 1
    assert len({v, kind(1, 2)}) == 1 and kind.zero() == kind(0, 0) and v.__doc__ == "A pair."
    assert kind.scaled.__doc__ == "Times a factor." and kind.scaled.__qualname__ == "Vector.scaled"
    whole, kind.scaled = kind.scaled, lambda self, factor: "mine"
    assert v.scaled(2) == "mine"
    kind.scaled = whole
    assert v.scaled(2) == kind(2, 4)
    v.x = 9
    assert v.x == 9 and copy.copy(v) is not v and copy.copy(v) == v
    for wrong in (lambda: v + 1, lambda: len(v), lambda: v[0], lambda: v < v):
        with pytest.raises(TypeError):
            wrong()
    with pytest.raises(AttributeError, match="nothing"):
        _ = v.nothing


def test_a_class_here_can_extend_it(far: Any) -> None:
    base = far("Vector")

    class Named(base):
        def __init__(self, name: str) -> None:
            super().__init__(3, 4)
            self.name = name

        def scaled(self, factor: float) -> Any:
            return super().scaled(factor + 1)

    made = Named("a")
    assert (made.x, made.name, isinstance(made, base)) == (3, "a", True)
    assert made.scaled(1) == base(6, 8)


def test_builtin_subclasses_keep_their_value_on_both_sides(far: Any) -> None:
    stack = far("Stack")([1])
    stack.push(2)
    stack.append(3)
    stack.push(4)
    assert stack == [1, 2, 3, 4] and isinstance(stack, list) and len(stack) == 4 and stack.pop() == 4
    colour = far("Colour")
    assert colour.RED == 1 and colour(2) is colour.BLUE and [c.name for c in colour] == ["RED", "BLUE"]
    assert isinstance(colour.RED, int) and colour["BLUE"].value == 2 and len(colour) == 2


def test_functions_generators_and_exceptions(far: Any) -> None:
    items = [1]
    assert far("extend")(items, lambda size: size * 10) is items and items == [1, 10]
    assert list(far("count")(2500)) == list(range(2500))
    numbers = far("count")(3)
    assert next(numbers) == 0 and next(numbers, None) == 1 and list(numbers) == [2]
    with pytest.raises(ValueError, match="no") as caught:
        far("fail")(7)
    assert type(caught.value) is far("OwnError") and caught.value.code == 7 and caught.value.args == ("no",)


def test_a_factory_comes_along(far: Any) -> None:
    def group(words: list[str]) -> Any:
        return far("grouped")(words)

    found = group(["a", "bb", "cc"])
    assert isinstance(found, defaultdict) and found[2] == ["bb", "cc"] and found[9] == []


def grouped(words: list[str]) -> dict[int, list[str]]:
    found: dict[int, list[str]] = defaultdict(list)
    for word in words:
        found[len(word)].append(word)
    return found


STORE: dict[str, Any] = {"items": [], "by_name": {"a": [1]}}


def keep(value: Any) -> Any:
    STORE["items"].append(value)
    return value


def give(name: str) -> Any:
    return STORE[name]


def change(value: Any) -> None:
    value.append(len(value))


def fail_with(value: Any) -> None:
    raise ValueError([value], object.__subclasses__)  # the second cannot be sent


class Bag(list[Any]):
    pass


@pytest.mark.parametrize("make", [list, deque, bytearray, Bag, lambda: array("i")])
def test_a_container_is_one_on_both_sides_as_long_as_both_hold_it(far: Any, make: Any) -> None:
    STORE["items"] = []
    mine = make()
    assert far("keep")(mine) is mine
    mine.append(1)
    theirs = far("give")("items")
    assert theirs[0] is mine and list(STORE["items"][0]) == [1]
    STORE["items"][0].append(2)
    far("len_of")("x")
    assert list(mine) == [1, 2]
    theirs.append("new")
    far("len_of")("x")
    assert STORE["items"][1] == "new"


def test_a_namespace_is_one_on_both_sides(far: Any) -> None:
    STORE["items"] = []
    mine = SimpleNamespace(n=1)
    assert far("keep")(mine) is mine
    mine.more = [2]
    theirs = far("give")("items")
    assert theirs[0] is mine and STORE["items"][0] == mine
    del STORE["items"][0].n
    far("len_of")("x")
    assert mine == SimpleNamespace(more=[2])


@pytest.mark.parametrize("make", [lambda: ChainMap({"a": 1}, {}), lambda: UserDict(a=1), lambda: UserList("ab")])
def test_what_is_made_of_a_container_is_made_of_the_same_one(far: Any, make: Any) -> None:
    STORE["items"] = []
    mine = make()
    again = far("keep")(mine)
    assert type(again) is type(mine) and again == mine
    (held,), (known,) = vars(again).values(), vars(mine).values()
    assert held is known


def len_of(value: Any) -> int:
    return len(value)


def test_what_one_side_drops_comes_again_as_a_new_one(far: Any) -> None:
    first = far("give")("by_name")
    assert first["a"] is far("give")("by_name")["a"]
    first["a"].append(2)
    del first
    for _ in range(3):
        assert far("give")("by_name") == {"a": [1, 2]}
        assert far("len_of")([1, 2]) == 2


def test_an_iterator_is_moved_on_by_no_more_than_was_used_up() -> None:
    decoder = MessageDecoder(refuse, SharedContainers())
    assert list(decoder.walk(["it", False, ["r", 0, 9, 1], -3], 0)) == [7, 8]
    with pytest.raises(ValueError, match="too many items"):
        decoder.walk(["it", False, ["r", 0, 1 << 50, 1], -1], 0)


def test_what_cannot_be_sent_leaves_no_traces(far: Any) -> None:
    mine: list[Any] = []
    with pytest.raises(ValueError, match="object"):
        far("fail_with")(mine)
    with pytest.raises(TypeError, match="cannot be passed on"):
        far("keep")([mine, ["x" * (1 << 21)]])
    far("change")(mine)
    far("change")(mine)
    assert mine == [0, 1]


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3), st.integers(0, 3)), max_size=30))
def test_changes_on_either_side_are_seen_on_the_other(steps: list[tuple[int, int, int]]) -> None:
    """As if both sides were one process: the same operations on the same containers."""
    wires = Wire(), Wire()
    near, there = Peer(wires[0], 1 << 20), Here(wires[1], 1 << 20)
    wires[0].other, wires[1].other = there, near
    held: list[Any] = [[], {}, [[]], {"k": []}]
    model = copy.deepcopy(held)
    STORE["items"] = []
    far_keep, far_change = near.request("global", "keep"), near.request("global", "change_any")
    for kind, at, number in steps:
        if kind == 0:
            _change(held[at], number), _change(model[at], number)
        elif kind == 1:
            far_change(held[at], number), _change(model[at], number)
        elif kind == 2:
            assert far_keep(held[at]) is held[at]
        elif STORE["items"]:
            kept = STORE["items"][number % len(STORE["items"])]
            (same,) = [
                n
                for n, value in enumerate(held)
                if value is near.request("global", "STORE")["items"][number % len(STORE["items"])]
            ]
            _change(kept, number), _change(model[same], number)
            near.request("global", "len_of")("")
        assert held == model


def change_any(value: Any, number: int) -> None:
    _change(value, number)


def _change(value: Any, number: int) -> None:
    if isinstance(value, dict):
        value[number] = [number]
    elif number == 3:
        value.clear()
    else:
        value.append(number if number else [number])
