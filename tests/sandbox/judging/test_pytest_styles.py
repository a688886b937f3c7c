"""Tests as people write them for pytest, in a sandbox that has none: what pytest itself says is the oracle."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from foretrace.core.errors import ProblemError
from sandbox.boxes import Judge

TESTS = """import pytest
seen = []
@pytest.fixture
def stack():
    made = Stack()
    made.push(1)
    yield made
    seen.append(len(made))
@pytest.fixture
def count():
    return 3
@pytest.fixture(scope='module')
def shared():
    return Stack()
@pytest.fixture(autouse=True)
def noted():
    seen.append('begin')
@pytest.fixture
def filled(stack, count):
    for n in range(count):
        stack.push(n)
    return stack
def test_pop(stack):
    assert stack.pop() == 1 and len(stack) == 0
def test_many(filled, count):
    assert len(filled) == count + 1
@pytest.mark.parametrize('n', [pytest.param(1, id='one'), 4])
@pytest.mark.slow
def test_push(stack, n):
    stack.push(n)
    assert stack.pop() == n
@pytest.mark.timeout(5)
class TestShared:
    @pytest.fixture
    def own(self):
        return 7
    def setup_method(self):
        self.base = 1
    def test_own(self, own, shared):
        shared.push(own + self.base)
    @pytest.mark.parametrize('n', [1, 2])
    def test_more(self, shared, n):
        assert shared.pop() == 8
        shared.push(8)
def test_folder(tmp_path):
    (tmp_path / 'a.txt').write_text('hi')
    assert load(tmp_path / 'a.txt') == ['h', 'i']
def test_printed(capsys):
    Stack().show()
    assert capsys.readouterr().out == '[]\\n' and capsys.readouterr().out == ''
def test_patched(monkeypatch):
    monkeypatch.setenv('KIND', 'deep')
    monkeypatch.setattr('time.time', lambda: 5.0)
    monkeypatch.setattr(Stack, 'limit', 1)
    assert describe() == ('deep', 5.0, 1)
def test_unpatched():
    assert describe()[0] == 'flat' and describe()[1] > 5 and describe()[2] == 9
def test_seen():
    assert seen.count('begin') > 7 and 0 in seen and 4 in seen
"""
RIGHT = """import os, time
class Stack:
    limit = 9
    def __init__(self):
        self.items = []
    def push(self, item):
        self.items.append(item)
    def pop(self):
        return self.items.pop()
    def __len__(self):
        return len(self.items)
    def show(self):
        print(self.items)
def load(path):
    return list(path.read_text())
def describe():
    return os.environ.get('KIND', 'flat'), time.time(), Stack.limit
"""
MUTANTS = {
    "another order": ("append(item)", "insert(0, item)"),
    "another line end": ("print(self.items)", "print(self.items, end='')"),
    "no environment": ("os.environ.get('KIND', 'flat')", "'flat'"),
    "no clock": ("time.time()", "6.0"),
    "no limit": ("Stack.limit", "9"),
}


def passes_with_pytest(code: str, folder: Path, tests: str = TESTS) -> bool:
    file = folder / "test_case.py"
    file.write_text(code + tests, encoding="utf-8")
    flags = ["-q", "-p", "no:cacheprovider", "-W", "ignore", "-c", str(folder / "none.ini")]
    (folder / "none.ini").write_text("[pytest]\n", encoding="utf-8")
    done = subprocess.run([sys.executable, "-m", "pytest", *flags, str(file)], capture_output=True, cwd=folder)
    return done.returncode == 0


def test_fixtures_cases_and_marks_are_those_of_pytest(judged: Judge) -> None:
    verdict = judged(RIGHT, TESTS, entry_point="Stack")
    assert verdict.passed, verdict


@pytest.mark.parametrize("name", MUTANTS)
def test_what_fails_with_pytest_fails(judged: Judge, name: str) -> None:
    assert not judged(RIGHT.replace(*MUTANTS[name]), TESTS, entry_point="Stack").passed


@pytest.mark.slow
def test_so_says_pytest(tmp_path: Path) -> None:
    assert passes_with_pytest(RIGHT, tmp_path)
    assert [name for name in MUTANTS if passes_with_pytest(RIGHT.replace(*MUTANTS[name]), tmp_path)] == []


LEFT_OUT = """import pytest
@pytest.mark.skip(reason='later')
def test_skip():
    assert f(1) == 3
@pytest.mark.skipif(True, reason='never')
def test_skipif():
    assert f(1) == 3
@pytest.mark.xfail
def test_xfail():
    assert f(1) == 3
@pytest.mark.skipif(False, reason='always')
@pytest.mark.parametrize('n, m', [(1, 2), pytest.param(1, 5, marks=pytest.mark.xfail), pytest.param(2, 3)])
def test_cases(n, m):
    assert f(n) == m
"""
CLASSES = """import pytest
begun = []
def setup_function(function):
    begun.append(1)
def test_begun(capfd):
    print(f(8))
    assert begun and capfd.readouterr().out == '9\\n'
class Base:
    def test_inherited(self):
        assert f(1) == 2
class TestAll(Base):
    @classmethod
    def setup_class(cls):
        cls.one = 1
    @pytest.mark.parametrize('n', [3, 4])
    def test_hook(self, n):
        assert f(n) == n + self.one
    class TestWithin:
        @staticmethod
        def test_static():
            assert f(5) == 6
if __name__ == '__main__':
    raise SystemExit(pytest.main([__file__]))
"""


@pytest.mark.parametrize("wrong_for", [2, 1, 5, 4, 8])
def test_what_is_left_out_counts_for_nothing_and_all_else_is_run(judged: Judge, wrong_for: int) -> None:
    for tests, asked in ((LEFT_OUT, (1, 2)), (CLASSES, (1, 3, 4, 5, 8))):
        assert judged("def f(x):\n    return x + 1", tests).passed
        wrong = f"def f(x):\n    return x + 1 + (x == {wrong_for})"
        assert judged(wrong, tests).passed is (wrong_for not in asked)


def test_a_test_that_asks_for_what_is_not_known_fails_and_says_so(judged: Judge) -> None:
    verdict = judged("def f(x):\n    return x + 1", "def test_f(mocker, made=1):\n    assert f(1) == 2")
    assert "asks for 'mocker', which is not a known fixture" in str(verdict.tests[0].error)


@pytest.mark.parametrize(
    ("test", "unknown"),
    [
        ("with pytest.warns(UserWarning):\n    f(1)", "pytest.warns"),
        ("@pytest.fixture(params=[1, 2])\ndef made():\n    return f(1)", r"pytest.fixture\(params\)"),
        ("from pytest import raises, deprecated_call\nassert f(1) == 2", "pytest.deprecated_call"),
        ("@pytest.mark.usefixtures('made')\ndef test_f():\n    assert f(1) == 2", "pytest.mark.usefixtures"),
    ],
)
def test_what_is_not_known_of_pytest_cannot_be_judged(judged: Judge, test: str, unknown: str) -> None:
    with pytest.raises(ProblemError, match=f"test 0 uses {unknown}, which cannot be judged here"):
        judged("def f(x):\n    return x + 1", f"import pytest\n{test}\nassert f(1) == 2")


@pytest.mark.parametrize(
    "run",
    [
        "unittest.main()",
        "unittest.main(argv=['x'], exit=False)",
        "import sys\nsys.exit(unittest.main())",
        "from unittest import main\nmain()",
        "import sys\nran = unittest.TextTestRunner().run(unittest.defaultTestLoader.loadTestsFromTestCase(T))\n"
        "sys.exit(not ran.wasSuccessful())",
    ],
)
def test_what_a_test_case_says_is_told(judged: Judge, run: str) -> None:
    test = (
        f"import unittest\nclass T(unittest.TestCase):\n    def test(self):\n        self.assertEqual(f(1), 2)\n{run}"
    )
    assert judged("def f(x):\n    return x + 1", test).passed
    (only,) = judged("def f(x):\n    return x", test).tests
    assert not only.passed and (only.actual, only.expected) == ("1", "2")
    assert "SystemExit" in str(judged("def f(x):\n    raise SystemExit(0)", test).tests[0].error)
