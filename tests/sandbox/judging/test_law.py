"""The law of judging: for an answer that does not lie, the verdict is plain Python's."""

from __future__ import annotations

import warnings
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from sandbox.boxes import Judge

EXPRESSIONS = (
    *("x", "x + 1", "x * 2", "[x]", "[x, x]", "(x, 'a')", "{x: [x]}", "{x}", "str(x)", "x / 2", "x % 3 == 0"),
    *("None", "range(x)", "iter([x, x + 1])", "(y for y in (x, x * 2))", "Pair(x, 1)", "[Pair(x, x)]", "P(x, 2)"),
    *("lambda y: x + y", "Color(x % 2)", "Decimal(x)", "bytes([x])", "frozenset({x})", "deque([x], maxlen=1)"),
    *("OrderedDict(a=x)", "Text('ab' * x)", "Many([x, 1])", "{'k': Pair(x, 0)}", "1 // (x - 2)", "[1, 2, 3][x]"),
    *("raise_(x)", "map(str, [x])"),
)
CODE = """
from collections import OrderedDict, deque, namedtuple
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum

@dataclass(order=True)
class Pair:
    a: int
    b: int
    def total(self): return self.a + self.b

P = namedtuple("P", "left right")
class Color(Enum):
    RED, BLUE = 0, 1
class Text(str):
    def twice(self): return self + self
class Many(list):
    def largest(self): return max(self)
class OwnError(KeyError): pass
def raise_(x):
    raise OwnError(x, "own")
def f(x):
    return {}
"""
TESTS = (
    *("assert f({}) == {}", "r = f({})\nassert r == {}", "assert not f({}) != {}", "assert f({}) in [{}]"),
    *("assert [f({})] == [{}]", "assert len(f({})) == len({})", "assert list(f({})) == list({})"),
    *("assert str(f({})) == str({})", "assert type(f({})).__name__ == type({}).__name__"),
    *("assert f({}).total() == {}.total()", "assert sorted([f({}), {}]) and True"),
    *("assert bool(f({})) == bool({})", "assert hash(f({})) == hash({})", "assert f({})(5) == ({})(5)"),
    "assert isinstance(f({}), type({}))",
    "try:\n    r = f({})\nexcept OwnError as error:\n    assert error.args[0] == {}",
    "try:\n    f({})\n    g = {}\nexcept (ZeroDivisionError, IndexError):\n    assert True\nelse:\n    assert g == g",
    *("for item in f({}):\n    assert item in list({})", "a, b = f({})\nassert (a, b) == tuple({})"),
    *("assert f({}).left == {}.left and f(1)._fields", "assert '%s' % (f({}),) == '%s' % ({},)"),
    *("import copy\nassert copy.deepcopy(f({})) == {}", "assert f({}).twice() == {}.twice()"),
    *("assert f({}).largest() == {}.largest()", "assert {{f({}): 1}}[{}] == 1"),
    *("assert f({}) is not None and {} is not None", "assert next(f({})) == next(iter({}))"),
)


def passes(code: str, test: str) -> bool:
    """Whether plain Python lets the test pass, with everything in one namespace."""
    world: dict[str, Any] = {"__name__": "solution"}
    exec(compile(code, "solution.py", "exec", dont_inherit=True), world)
    try:
        with warnings.catch_warnings(action="ignore"):
            exec(compile(test, "test.py", "exec", dont_inherit=True), world)
    except Exception:
        return False
    return True


@given(st.sampled_from(EXPRESSIONS), st.sampled_from(EXPRESSIONS), st.sampled_from(TESTS), st.integers(0, 3))
def test_the_verdict_is_that_of_plain_python(judged: Judge, given_: str, wanted: str, test: str, x: int) -> None:
    code = CODE.replace("{}", given_)
    text = test.format(x, f"({wanted.replace('x', str(x))})" if "lambda" not in wanted else "f(1)")
    assert judged(code, text).passed == passes(code, text), (given_, text)
