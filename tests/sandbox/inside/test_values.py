"""Values on the wire: what goes over comes back equal, nothing else is a value, and hostile bytes are refused."""

from __future__ import annotations

import json
import math
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from enum import IntEnum
from typing import Any
from unittest import mock

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from foretrace.sandbox.inside.values import MAX_DEPTH, OpaqueValue, decode, encode, show_value
from foretrace.sandbox.inside.wire import FrameReader, pack_frame

LIMIT = 512 * 1024
TEXTS = st.text(st.characters(), max_size=8)  # lone surrogates too
HASHABLE = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.integers().map(lambda n: n**99),
        st.floats(allow_nan=False),
        st.complex_numbers(allow_nan=False),
        TEXTS,
        st.binary(max_size=8),
        st.just(...),
        st.builds(range, st.integers(), st.integers(), st.integers(min_value=1)),
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=4).map(tuple), st.frozensets(inner, max_size=4)),
    max_leaves=8,
)
VALUES = st.recursive(
    st.one_of(HASHABLE, st.binary(max_size=8).map(bytearray)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.sets(HASHABLE, max_size=4),
        st.dictionaries(HASHABLE, inner, max_size=4),
    ),
    max_leaves=16,
)
JSON = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(),
        st.sampled_from(
            ["x", "int", "float", "complex", "range", "str", "bytes", "l", "t", "S", "F", "d", "o", "nan", "0x1", "ff"]
        ),
    ),
    lambda inner: st.lists(inner, max_size=5),
    max_leaves=20,
)


def over_the_wire(value: object, limit: int = LIMIT) -> object:
    frames = FrameReader()
    frames.feed(pack_frame([encode(value, limit)]))
    return decode(frames.take()[0])


def types_of(value: object) -> object:
    if isinstance(value, (list, tuple)):
        return (type(value), [types_of(item) for item in value])
    if isinstance(value, dict):
        return (dict, [(types_of(key), types_of(item)) for key, item in value.items()])
    return type(value)


@given(VALUES)
@example({frozenset({False, range(0, 1317317, 369), (), None}), frozenset({(False,), (), None, ...})})
def test_what_goes_over_comes_back_equal_and_of_the_same_types(value: object) -> None:
    back = over_the_wire(value)
    assert back == value
    assert types_of(back) == types_of(value)
    assert show_value(back) == show_value(value)
    assert len(show_value(value)) <= 500


@given(VALUES, st.integers(0, 300))
def test_what_is_encoded_is_never_longer_than_its_limit(value: object, limit: int) -> None:
    tagged = encode(value, limit)
    opaque = type(tagged) is list and tagged[0] == "o"
    assert opaque or len(json.dumps(tagged, separators=(",", ":"))) <= limit


@given(JSON)
def test_hostile_bytes_are_a_value_or_a_value_error(tagged: object) -> None:
    try:
        value = decode(tagged)
    except ValueError:
        return
    assert len(show_value(value)) <= 500
    assert json.dumps(encode(value, LIMIT))


def test_special_numbers() -> None:
    assert math.isnan(over_the_wire(math.nan))
    assert math.copysign(1, over_the_wire(-0.0)) == -1
    assert over_the_wire([math.inf, -math.inf]) == [math.inf, -math.inf]
    assert over_the_wire(10**5000) == 10**5000
    assert show_value(10**5000).startswith("0x")
    assert over_the_wire("\ud83d\ude00") == "\ud83d\ude00", "two lone surrogates are not one character"


class Always(int):
    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = int.__hash__


class Raises:
    def __eq__(self, other: object) -> bool:
        raise SystemExit

    def __repr__(self) -> str:
        raise SystemExit

    __hash__ = __len__ = __iter__ = __str__ = __bool__ = __repr__  # type: ignore[assignment]


class Color(IntEnum):
    RED = 1


@pytest.mark.parametrize(
    "value",
    [
        Always(3),
        Raises(),
        mock.ANY,
        Color.RED,
        type("Text", (str,), {})("x"),
        type("Items", (list,), {})([1]),
        lambda: 1,
        int,
        deque([1]),
        object(),
        (x for x in (1, 2)),
    ],
    ids=[f"{number}" for number in range(11)],
)
def test_all_else_is_opaque_and_equal_to_nothing(value: object) -> None:
    back = over_the_wire(value)
    assert type(back) is OpaqueValue
    assert back.type == type(value).__name__
    assert back != back
    inside = over_the_wire([value, 1])
    assert type(inside[0]) is OpaqueValue and inside[1] == 1


def test_what_is_too_large_too_deep_or_cyclic_is_opaque_and_says_so() -> None:
    deep: list[object] = []
    for _ in range(MAX_DEPTH + 1):
        deep = [deep]
    cyclic: list[object] = []
    cyclic += [[cyclic], [cyclic]]
    for value, why in (
        (deep, "too deep"),
        (cyclic, "it contains itself"),
        ("x" * 99, "too large"),
        (10**99, "too large"),
    ):
        assert over_the_wire(value, 40 if why == "too large" else LIMIT).text == why
    wide: list[object] = []
    for _ in range(60):
        wide = [wide, wide]  # 2**60 items, 60 objects
    assert over_the_wire(wide).text == "too large"
    assert over_the_wire(range(10**30)) == range(10**30)


@pytest.mark.parametrize(
    "tagged",
    [
        *({}, [], ["x"], ["x", "int", 5], ["x", "int", "zz"], ["x", "complex", "1,2"], ["x", "range", "1 2 0"]),
        *(["x", "bytes", "0"], ["x", "str", "ff"], ["i", "0x1"], float("nan"), float("inf"), ["d", 1]),
        *(["d", ["l"], 1], ["S", ["l"]], ["o", "name"], ["x", "Decimal", "sNaN"], ["x", "Decimal", "1e999999999"]),
        *(["x", "Decimal", "1" * 5000], ["x", "Fraction", "1/0"], ["x", "Fraction", "x/y"]),
        *(["x", "date", "2020-13-01"], ["x", "timedelta", "1 2"], ["x", "timedelta", "99999999999999 0 0"]),
        *(["x", "Path", "/"], ["x", "datetime", "2024-01-01T00:00:00 x UTC"], ["x", "Decimal"], ["x", "Decimal", 1]),
        ["S", *(["x", "int", hex(n * (2**61 - 1))] for n in range(200))],
    ],
    ids=repr,
)
def test_what_cannot_have_been_encoded_is_refused(tagged: object) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - all kinds of it
        decode(tagged)


def test_numpy_scalars_are_plain_numbers_and_arrays_are_not() -> None:
    import numpy as np

    assert over_the_wire([np.float64(0.5), np.int32(3), np.bool_(True)]) == [0.5, 3, True]
    assert type(over_the_wire(np.float64(0.5))) is float
    assert type(over_the_wire(np.array([1]))) is OpaqueValue


def test_values_are_shown_alike_in_few_characters() -> None:
    assert show_value({3, 1, 2}) == "{1, 2, 3}"
    chain: frozenset[object] = frozenset()
    for _ in range(60):  # which must not take twice as long with each level
        chain = frozenset({chain})
    assert show_value(chain).startswith("frozenset({frozenset({")
    assert show_value(frozenset({"b", "a"})) == "frozenset({'a', 'b'})"
    assert show_value((1,)) == "(1,)" and show_value(()) == "()" and show_value(set()) == "set()"
    assert show_value({"a": [1, None, ..., 2.5, b"x"]}) == "{'a': [1, None, Ellipsis, 2.5, b'x']}"
    assert show_value(range(3)) == "range(0, 3)" and show_value(range(0, 9, 2)) == "range(0, 9, 2)"
    assert show_value(OpaqueValue("Stack")) == "<Stack object>"
    assert len(show_value("x" * 10**6)) == 500 and show_value([0] * 10**6).endswith("...")
    assert show_value({frozenset({n}) for n in range(5000)}) == "{<5000 members>}"


def test_a_deep_value_is_read_far_down_in_a_recursion() -> None:
    deep: Any = 1
    for _ in range(MAX_DEPTH - 10):
        deep = [deep]

    def recurse(frames: int) -> Any:
        return encode(deep, LIMIT) if frames == 0 else recurse(frames - 1)

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(recurse, 450).result()[0] == "l"
