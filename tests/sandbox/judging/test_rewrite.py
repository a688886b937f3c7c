"""Asserts taken apart: leaves and skeleton together say what the assert says."""

from __future__ import annotations

import ast
import time
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrace.sandbox.judging.rewrite import make_line_up, take_apart
from foretrace.sandbox.judging.verify import evaluate, judge_values

ASSERTS = (
    *("f() == 3", "3 != f()", "f() in (1, 2)", "2 not in [f()]", "1 < f() <= 3", "not f() == 1", "f() is None"),
    *("abs(f() - 2.5) < 1", "round(f(), 1) == 2", "f() + 1 == 3", "f() * 2 == 4", "f() % 2", "-f() == -2", "f()"),
    *("f() == [1, 'a']", "f() == {'a': 1}", "f() == set()", "g(f()) == 'x'", "f()[0] == 1", "f() - g(f()) == 0"),
    *("f() == 2 or f() == 3", "(1 if f() else 0) == 1", "'a' in f()", "f() is not True", "f() == (2 + 1j)"),
)
VALUES = st.sampled_from([0, 1, 2, 3, 2.5, True, None, "a", "x", [1, "a"], {"a": 1}, set(), (1,), 2 + 1j, Decimal(2)])


@given(st.sampled_from(ASSERTS), VALUES, VALUES)
def test_the_skeleton_of_the_leaves_is_the_assert(text: str, value: Any, other: Any) -> None:
    names = {"f": lambda: value, "g": lambda _: other}
    check = take_apart(ast.parse(text, mode="eval").body)
    try:
        expected = bool(eval(text, names))
    except Exception:
        expected = False
    try:
        leaves = [eval(ast.unparse(leaf), names) for leaf in check.leaves]
    except Exception:
        return
    assert judge_values(check, leaves).passed == expected, (text, check)


@pytest.mark.parametrize(
    ("text", "leaves", "constants"),
    [
        ("abs(c.area() - 12.57) < 1e-2", ["c.area()"], [12.57, 0.01]),
        ("f(1) == [1, 2]", ["f(1)"], [[1, 2]]),
        ("pytest.approx(0.5, rel=0.1) == f(x)", ["f(x)"], [0.5, 0.1]),
        ("f(1) == want", ["f(1)", "want"], []),
        ("all(f(x) == 1 for x in y)", ["all((f(x) == 1 for x in y))"], []),
    ],
)
def test_constants_are_no_part_of_the_leaves(text: str, leaves: list[str], constants: list[Any]) -> None:
    check = take_apart(ast.parse(text, mode="eval").body)
    assert ([ast.unparse(leaf) for leaf in check.leaves], check.constants) == (leaves, constants)


@pytest.mark.parametrize(
    ("text", "leaves"),
    [
        ("f() * g() == 1", [10**6000, 10**6000]),
        ("f() % 5 == 'x'", ["%999999999d"]),
        ("f() * 3 == g()", ["x" * 10, 10**9]),
        ("f() * g() == 1", ["x", 10**9]),
        ("f() // g() == 1", [1 << 6 * 10**6, 1 << 3 * 10**6 | 1]),
    ],
)
def test_to_evaluate_a_skeleton_takes_no_time(text: str, leaves: list[Any]) -> None:
    check = take_apart(ast.parse(text, mode="eval").body)
    began = time.process_time()
    assert not judge_values(check, leaves).passed
    assert time.process_time() - began < 0.5


def test_names_that_mean_something_else_are_leaves() -> None:
    node = ast.parse("abs(f()) == 3", mode="eval").body
    assert len(take_apart(node).leaves) == 1 and ast.unparse(take_apart(node).leaves[0]) == "f()"
    assert ast.unparse(take_apart(node, 0, frozenset({"abs"})).leaves[0]) == "abs(f())"
    assert evaluate(take_apart(node), "abs(t0)", [-3]) == 3


@pytest.mark.parametrize("constant", [{True, False}, frozenset({True, False}), {None}], ids=repr)
def test_decoys_of_a_set_are_others_or_there_are_none(constant: Any) -> None:
    rows, place = make_line_up([constant], set()) or ([[constant]], 0)
    assert rows[place] == [constant]
    assert all(row[0] != constant for number, row in enumerate(rows) if number != place)
