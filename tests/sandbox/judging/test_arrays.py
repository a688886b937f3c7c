"""Arrays of numpy's between tests and answers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from foretrace.core.problem import Test
from foretrace.sandbox.inside.remote.arrays import make_view
from sandbox.boxes import Box, box_at

numpy = pytest.importorskip("numpy")
RIGHT = """
import numpy as np

def scale(x: np.ndarray) -> np.ndarray:
    std = x.std(axis=0)
    return (x - x.mean(axis=0)) / np.where(std == 0, 1, std)

def double(x): return x * 2

def raise_all(x): x += 1

def same(x): return x

def widen(x): x.shape = (2, -1)

def mark(x): x[1] += 5

def row(x): return x[0]

def parts(n):
    x = np.zeros(n)
    return x, x[::-2]

def objects(xs): return np.array(xs, dtype=object)

def records(rows): return np.array(rows, dtype=[('name', 'U9'), ('at', [('x', 'i4'), ('y', 'f8')])])

def total(x): return x.sum()

def kind_of(x): return x.dtype

def next_day(x): return x + np.timedelta64(1, 'D')

def noise(n): return np.random.rand(n)

def norm(x: np.ndarray, p: np.floating = 2.0) -> np.float64: return np.linalg.norm(x, p)
"""
WRONG = """
def scale(x): return x - x.mean(axis=0)

def double(x): return [*x, *x]

def raise_all(x): return x + 1

def same(x): return x.copy()

def widen(x): x = x.reshape(2, -1)

def mark(x): x = x.copy()

def row(x): return x[0].copy()

def parts(n): return np.zeros(n), np.zeros(n // 2)

def objects(xs): return np.array([str(x) for x in xs])

def records(rows): return np.array(rows, dtype=[('name', 'U2'), ('at', [('x', 'i4'), ('y', 'f8')])])

def total(x): return x.sum().item()

def kind_of(x): return np.float32

def next_day(x): return x + np.timedelta64(2, 'D')

def noise(n): return np.random.default_rng(7).random(n)

def norm(x, p=2): return 5.0
"""
SETUP = "import numpy as np"
TESTS = {
    "values": """
x = np.array([[1.0, 2.0], [5.0, 8.0]])
out = scale(x)
assert isinstance(out, np.ndarray) and out.dtype == np.float64 and out.shape == (2, 2)
np.testing.assert_allclose(out.mean(axis=0), [0, 0], atol=1e-12)
assert np.allclose(out, (x - x.mean(0)) / x.std(0))
""",
    "types and shapes": """
x = np.arange(6).reshape(2, 3)
assert double(x.T).tolist() == [[0, 6], [2, 8], [4, 10]]
assert double(np.array([True, False])).tolist() == [2, 0]
assert double(np.zeros((0, 3))).shape == (0, 3) and double(np.array(3)) == 6
assert double(np.array(['a', 'b'], dtype=object)).tolist() == ['aa', 'bb']
assert same(np.array(['a', 'bc'])).dtype == np.dtype('U2')
assert same(np.array('ab', dtype='>U2')) == 'ab' and same(np.zeros((2, 0), dtype='U3')).shape == (2, 0)
assert same(np.array(['2024-01-01'], dtype='M8[D]'))[0] == np.datetime64('2024-01-01')
""",
    "changes in place": """
x = np.array([1.0, 2.0])
raise_all(x)
raise_all(x[:1])
assert x.tolist() == [3.0, 3.0] and same(x) is x
x[0] = 9
assert same(x)[0] == 9
many = np.zeros(20000)
raise_all(many)
assert many.sum() == 20000
""",
    "shapes in place": """
x, y = np.arange(6), np.arange(8).reshape(4, 2)
widen(x)
widen(y)
assert x.tolist() == [[0, 1, 2], [3, 4, 5]] and y.shape == (2, 4)
""",
    "views": """
x = np.zeros((3, 4), order='F')
mark(x)
mark(x[:, 1])
mark(x[:, ::-1].T)
assert x.tolist() == [[0, 0, 5, 0], [5, 10, 10, 5], [0, 0, 5, 0]]
first = row(x)
first[3] = 7
assert x[0, 3] == 7 and np.shares_memory(first, x) and first.base is x
x[0, 0] = 9
assert first[0] == 9 and same(first) is first
whole, part = parts(6)
part[0] = 4
assert whole.tolist() == [0, 0, 0, 0, 0, 4] and total(whole) == 4
""",
    "arrays of objects": """
x = objects(['a', None, [1]])
assert x.dtype == object and x[1] is None and list(x) == ['a', None, [1]]
assert (x == np.array(['a', None, [1]], dtype=object)).all() and same(x) is x
y = np.array([1, 'b'], dtype=object)
y[0] = 2
assert same(y) is y and same(y)[0] == 2
""",
    "records": """
x = records([('ann', (1, 2.5)), ('bob', (3, 4.5))])
assert x.dtype.names == ('name', 'at') and x['at']['y'].tolist() == [2.5, 4.5] and x[1]['name'] == 'bob'
assert x[0].tolist() == ('ann', (1, 2.5)) and same(x[1])['at']['x'] == 3
""",
    "single values": """
x = total(np.array([1, 2]))
assert isinstance(x, np.integer) and type(x) is np.int64 and x == 3 and x.dtype == 'int64'
assert type(total(np.array([1.5], dtype=np.float32))) is np.float32 and isinstance(total(np.ones(2)), float)
assert isinstance(total(np.ones(2)), np.floating) and type(same(np.float32(1.5))) is np.float32
assert kind_of(np.int8(3)) == np.int8 and same(np.str_('')) == '' and same(np.bool_(True))
""",
    "types": """
assert kind_of(np.ones(2)) == np.float64 and kind_of(np.ones(2)) == 'float64' and np.dtype(float) == kind_of(np.ones(1))
assert np.issubdtype(kind_of(np.ones(2)), np.floating) and {kind_of(np.ones(2)): 1}[np.dtype('f8')] == 1
assert same(np.float32) is np.float32 and same(np.dtype('i4,f8')) == np.dtype('i4,f8')
assert same(np.dtype(object)) == object
""",
    "dates": """
x = next_day(np.datetime64('2024-02-28'))
assert isinstance(x, np.datetime64) and x == np.datetime64('2024-02-29') and x.dtype == np.dtype('M8[D]')
assert x > np.datetime64('2024-01-01') and x - np.datetime64('2024-02-01') == np.timedelta64(28, 'D')
assert next_day(np.array(['2024-12-31'], dtype='M8[D]')).astype(str).tolist() == ['2025-01-01']
""",
    "random numbers": """
np.random.seed(7)
drawn = noise(3)
np.random.seed(7)
again = noise(3)
assert np.array_equal(drawn, again) and not np.array_equal(again, noise(3))
assert np.array_equal(drawn, np.random.rand(3))
""",
    "annotations": """
import inspect, typing
def call(x: np.ndarray, p: np.floating) -> float:
    return norm(x, p)
assert call(np.array([3.0, 4.0]), np.float64(2)) == 5
assert norm.__annotations__ == {'x': np.ndarray, 'p': np.floating, 'return': np.float64}
assert typing.get_type_hints(norm)['return'] is np.float64
assert inspect.signature(norm).parameters['x'].annotation is np.ndarray
""",
}


@pytest.fixture(scope="module")
def calculator(runner: asyncio.Runner) -> Iterator[Box]:
    yield from box_at(3, runner, preload="numpy")


@pytest.mark.parametrize("name", TESTS)
def test_arrays_are_values(calculator: Box, name: str) -> None:
    verdict = calculator.judge(RIGHT, [Test(code=TESTS[name])], setup=SETUP)
    assert verdict.passed, verdict
    assert not calculator.judge(WRONG, [Test(code=TESTS[name])], setup=SETUP).passed


LIARS = [
    "class A(np.ndarray):\n  __eq__ = lambda s, o: np.array([True])\ndef double(x): return np.zeros(3).view(A)",
    "class A:\n  def __array__(s, *a, **k): return np.array([2, 4])\n  __eq__ = lambda s, o: A()\n"
    "  all = lambda s: True\n"
    "def double(x): return A()",
]


def test_no_truth_value_of_numpys_is_believed_more_than_pythons(calculator: Box) -> None:
    liars = ["lambda s, *a: np.True_", "lambda s, *a: True"]
    for liar in liars:
        code = f"import numpy as np\nclass A:\n  equals = matches = __eq__ = {liar}\ndef double(x): return A()"
        for test in ("double(1).equals(2)", "double(1) == 2", "double(1) == np.int64(2)"):
            assert not calculator.judge(code, [Test(code=f"assert {test}")], setup=SETUP).passed, (liar, test)
    code = "import numpy as np\nclass P:\n  def __init__(s, x): s.x = np.array([x])\n"
    code += "  def __eq__(s, o): return isinstance(o, P) and (s.x == o.x).all()\n"
    code += "  def equals(s, o): return (s.x == o).all()\n"
    test = "assert P(1) == P(1) and P(1) != P(2) and P(np.int64(3)).equals(3) and not P(3).equals(4)"
    assert calculator.judge(code, [Test(code=test)], setup=SETUP).passed


def test_memory_that_a_test_has_views_of_is_left_as_it_is(calculator: Box) -> None:
    code = "def grow(x): x.resize(9, refcheck=False)"
    tests = [Test(code="x = np.arange(4)\nview = x[1:]\ngrow(x)\nassert view.tolist() == [1, 2, 3] and x.size == 4")]
    assert calculator.judge(code, tests, setup=SETUP).passed


@pytest.mark.parametrize("liar", LIARS, ids=["a subclass", "a pretended array"])
def test_an_array_of_the_answers_own_class_is_not_believed(calculator: Box, liar: str) -> None:
    tests = [Test(code="assert (double(np.array([1, 3])) == np.array([2, 6])).all()")]
    assert calculator.judge("import numpy as np\ndef double(x): return x * 2\n", tests, setup=SETUP).passed
    assert not calculator.judge(f"import numpy as np\n{liar}\n", tests, setup=SETUP).passed


HOOKS = [
    "class A:\n  def __array_function__(s, *a): return True\ndef double(x): return A()",
    "class A:\n  def __array_ufunc__(s, *a, **k): return np.array([True])\n"
    "  __array_priority__ = 99\ndef double(x): return A()",
    "class A(np.ndarray):\n  def __array_function__(s, *a): return True\n  def __array_ufunc__(s, *a, **k): return"
    " np.array([True])\ndef double(x): return np.zeros(2).view(A)",
]


@pytest.mark.parametrize("liar", HOOKS, ids=["functions", "operators", "a subclass"])
def test_no_class_answers_for_the_functions_of_numpy(calculator: Box, liar: str) -> None:
    asked = "double(np.array([1, 3]))"
    checks = (
        f"np.array_equal({asked}, [2, 6])",
        f"np.allclose([2, 6], {asked})",
        f"(np.array([2, 6]) == {asked}).all()",
    )
    for check in checks:
        tests = [Test(code=f"assert {check}")]
        assert calculator.judge("import numpy as np\ndef double(x): return x * 2\n", tests, setup=SETUP).passed
        assert not calculator.judge(f"import numpy as np\n{liar}\n", tests, setup=SETUP).passed, check


NO_ITEMS = [
    "def double(x): return np.frombuffer(b'\\xff\\xff\\xff\\x00' * 4, dtype='<U2')",
    "def double(x): return np.frombuffer(b'\\x00\\xff\\xff\\xff' * 4, dtype='>U2')",
    "def double(x): return np.frombuffer(b'\\x02\\x03', dtype='?')",
]


@pytest.mark.parametrize("liar", NO_ITEMS, ids=["text", "text of the other order", "truth values"])
def test_an_array_of_what_no_item_can_be_is_refused(calculator: Box, liar: str) -> None:
    tests = [Test(code="x = double(np.array(['a', 'b']))\nassert x.shape == (2,) and x[0]")]
    assert calculator.judge("import numpy as np\ndef double(x): return x\n", tests, setup=SETUP).passed
    assert not calculator.judge(f"import numpy as np\n{liar}\n", tests, setup=SETUP).passed


def test_an_array_is_not_told_with_a_view_that_the_tests_give_of_it(calculator: Box) -> None:
    test = "table = np.array([[1, 2], [3, 6]])\nassert (double(table[:, 0]) == table[:, 1]).all()"
    tests = [Test(code=test)]
    assert calculator.judge("def double(x): return x * 2\n", tests, setup=SETUP).passed
    assert not calculator.judge("def double(x): return x.base[:, 1]\n", tests, setup=SETUP).passed


@pytest.mark.parametrize(
    "described",
    [
        ["<i8", [2, 2], [1 << 62, 1 << 62], 0],  # which numpy takes for a view: its sum is nothing
        ["<i8", [1 << 22], [((1 << 64) // ((1 << 22) - 1)) & ~7], 0],
        ["<i8", [2], [-8], 0],
        ["<i8", [1], [8], 57],
        ["|S64", [1 << 22], [0], 0],
        ["|b1", [8], [1], 0],
        ["<U1", [2], [4], 0],
    ],
)
def test_no_view_goes_beyond_its_array(described: list[Any]) -> None:
    with pytest.raises(ValueError, match="view"):
        make_view(["nv", *described, True, None], numpy.full(64, 255, dtype="u1"))
