"""When an answer counts as equal: Python's `==` on plain values, and the rules for printed output."""

from __future__ import annotations

import math
import time
import tracemalloc
from unittest import mock

import pytest
from hypothesis import given

from foretrace.sandbox.inside.wire.values import IteratorItems, OpaqueValue, decode, encode
from foretrace.sandbox.judging.compare import Approx, Tolerance, equal, same_output
from sandbox.inside.test_values import VALUES


@given(VALUES, VALUES)
def test_it_is_the_equality_of_python(a: object, b: object) -> None:
    assert equal(a, b) == (a == b)


@given(VALUES)
def test_a_value_equals_its_copy(value: object) -> None:
    assert equal(decode(encode(value, 1 << 20)), value)


EQUAL = [
    *[(True, 1), (1, 1.0), (1, 1 + 0j), ([True], [1.0]), ({1: "a"}, {1.0: "a"}), ({1}, {True}), (-0.0, 0.0)],
    *[({1, 2}, frozenset({2, 1})), ({"a": 1, "b": 2}, {"b": 2, "a": 1}), (range(0), range(5, 5))],
    (b"a", bytearray(b"a")),
]


@pytest.mark.parametrize(("a", "b"), EQUAL)
def test_equal_across_types(a: object, b: object) -> None:
    assert equal(a, b) and equal(b, a)


NAN = math.nan
OPAQUE = OpaqueValue("Thing")


USED = IteratorItems([], "")
UNEQUAL = [
    *[("1", 1), ([1], (1,)), ("a", b"a"), (None, 0), (None, False), (..., None), ([], {}), (range(2), [0, 1])],
    *[(NAN, NAN), ([NAN], [NAN]), ({NAN}, {NAN}), ({NAN: 1}, {NAN: 1}), ({(NAN,)}, {(NAN,)}), ({1: NAN}, {1: NAN})],
    *[(OPAQUE, OPAQUE), ([OPAQUE], [OPAQUE]), ({OPAQUE}, {OPAQUE}), ({1: OPAQUE}, {1: OPAQUE}), ({OPAQUE: 1},) * 2],
    *[(mock.ANY, 5), ([mock.ANY], [5]), ({1: mock.ANY}, {1: 5}), (object, 1), (len, len)],
    *[(0.1 + 0.2, 0.3), (IteratorItems([1], ""), [1]), (complex(NAN, 1), complex(NAN, 1)), (USED, USED)],
]


@pytest.mark.parametrize(("a", "b"), UNEQUAL)
def test_not_equal(a: object, b: object) -> None:
    assert not equal(a, b)
    assert not equal(b, a)


def test_numbers_are_close_only_where_asked() -> None:
    assert equal([0.1 + 0.2], [0.3], Tolerance(1e-9))
    assert not equal([0.1 + 0.2], [0.3], Tolerance(1e-18))
    assert equal({"a": 1e9 + 1}, {"a": 1e9}, Tolerance(relative=1e-8))
    assert equal([0.1 + 0.2, 1], Approx([0.3, 1])) and not equal(0.4, Approx(0.3))
    assert equal({"x": (0.1 + 0.2,)}, Approx({"x": (0.3,)}))
    assert not equal(math.inf, 1.0, Tolerance(1.0, 1.0)) and equal(math.inf, math.inf, Tolerance(1.0))
    assert not equal(1.0, math.inf, Tolerance(1.0, 1.0)) and not equal(NAN, NAN, Tolerance(1.0))
    assert not equal(10**400, 1.5, Tolerance(0.1, 0.1))


def test_the_work_is_bounded() -> None:
    deep: object = 1
    for _ in range(5000):
        deep = [deep]
    assert not equal(deep, deep)
    started = time.process_time()
    assert equal(range(10**30), range(10**30))
    assert not equal(list(range(10**5)), list(range(10**5 - 1)))
    assert time.process_time() - started < 1


@pytest.mark.parametrize(
    ("printed", "expected", "tolerance", "same"),
    [
        ("1\n2\n", "1\n2", None, True),
        ("1 \r\n2\t\n\n\n", "1\n2", None, True),
        ("", "\n", None, True),
        (" 1", "1", None, False),
        ("1  2", "1 2", None, False),
        ("1\n\n2", "1\n2", None, False),
        ("a", "A", None, False),
        ("0.3000001", "0.3", None, False),
        ("x = 0.3000001", "x = 0.3", 1e-6, True),
        ("x =  0.3000001", "x = 0.3", 1e-6, True),
        ("0.31", "0.3", 1e-6, False),
        ("1e3", "1000.0", 1e-6, True),
        ("nan", "nan", 1e-6, True),
        ("nan", "1", 1e9, False),
        ("inf", "1", 1e9, False),
        ("1 2 3", "1 2", 1e-6, False),
        ("1\n2", "1 2", 1e-6, False),
        ("0x10", "16", 1e-6, False),
        ("1_0", "10", 1e-6, False),
        ("9" * 500, "9" * 499 + "8", 1e-6, False),
    ],
)
def test_printed_output(printed: str, expected: str, tolerance: float | None, same: bool) -> None:
    assert same_output(printed, expected, tolerance) is same


def test_a_long_output_is_compared_line_after_line() -> None:
    printed, expected, other = "x 1 \n" * 40_000, "x 1\n" * 40_000, "x 1\n" * 40_000 + "x"
    tracemalloc.start()
    try:
        assert same_output(printed, expected) and not same_output(printed, other)
        assert tracemalloc.get_traced_memory()[1] < 20_000
    finally:
        tracemalloc.stop()
