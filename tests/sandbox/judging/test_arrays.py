"""Arrays of numpy's between tests and answers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from foretrace.core.problem import Test
from sandbox.boxes import Box, box_at

pytest.importorskip("numpy")
RIGHT = """
import numpy as np

def scale(x: np.ndarray) -> np.ndarray:
    std = x.std(axis=0)
    return (x - x.mean(axis=0)) / np.where(std == 0, 1, std)

def double(x): return x * 2

def raise_all(x): x += 1

def same(x): return x
"""
WRONG = """
def scale(x): return x - x.mean(axis=0)

def double(x): return [*x, *x]

def raise_all(x): return x + 1

def same(x): return x.copy()
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
