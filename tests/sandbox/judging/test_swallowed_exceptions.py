"""What a candidate raises or gives back must not be taken for a pass by something between its call and the assert."""

from __future__ import annotations

import pytest

from foretrace.core.problem import Test
from sandbox.boxes import Box


@pytest.mark.parametrize("raised", ["StopIteration", "StopAsyncIteration", "GeneratorExit"])
@pytest.mark.parametrize(
    "test",
    [
        "xs = [1, 2, 3]\nassert all(map(lambda x: f(x) == x * 2, xs))",
        "assert not any(map(f, [1, 2]))",
        "assert list(map(f, [1, 2])) == []",
        "class S:\n    def __getitem__(self, i):\n        return f(i)\nassert all(S())",
        "class S:\n    @property\n    def x(self):\n        return f(1)\nassert getattr(S(), 'x', 5) == 5",
    ],
)
def test_an_exception_that_a_builtin_takes_for_its_own_is_no_pass(box: Box, raised: str, test: str) -> None:
    verdict = box.judge(f"def f(x):\n    raise {raised}", [Test(code=test)], entry_point="f")
    assert verdict.integrity in ("judge", "split")
    assert not verdict.passed


def test_an_exception_that_the_test_asks_for_is_a_pass(box: Box) -> None:
    test = "try:\n    f(1)\nexcept IndexError:\n    caught = True\nelse:\n    caught = False\nassert caught"
    assert box.judge("def f(x):\n    raise IndexError('no')", [Test(code=test)], entry_point="f").passed
    assert not box.judge("def f(x):\n    return 1", [Test(code=test)], entry_point="f").passed


@pytest.mark.parametrize("method", ["equals", "issubset", "startswith", "count"])
def test_an_object_of_the_candidates_is_shown_what_is_expected_among_others_alone(box: Box, method: str) -> None:
    code = (
        "class Box:\n    def __init__(self, x): self.x = x\n"
        "class Liar:\n    def __getattr__(self, name): return lambda *a: (print('LEAK', a), True)[1]\n"
        "def f(b): return Liar()"
    )
    verdict = box.judge(code, [Test(code=f"assert f(Box(3)).{method}([1, 2, 3])")], entry_point="f")
    assert not verdict.passed
    assert (verdict.stdout + verdict.stderr).count("LEAK") == 25


def test_classes_that_tests_instantiate_still_work(box: Box) -> None:
    code = (
        "class Stack:\n"
        "    def __init__(self): self.items = []\n"
        "    def push(self, x): self.items.append(x); return self\n"
        "    def pop(self): return self.items.pop()\n"
        "    def __contains__(self, x): return x in self.items\n"
        "    def __len__(self): return len(self.items)\n"
    )
    test = (
        "s = Stack()\ns.push(1).push(2)\nassert len(s) == 2\nassert 1 in s\nassert s.pop() == 2\nassert s.items == [1]"
    )
    verdict = box.judge(code, [Test(code=test)], entry_point="Stack")
    assert verdict.passed, verdict.tests


def test_closures_take_arguments(box: Box) -> None:
    code = "def adder(n):\n    return lambda x: x + n"
    assert box.judge(code, [Test(code="assert adder(2)(3) == 5")], entry_point="adder").passed


def test_functions_named_test_are_called(box: Box) -> None:
    test = Test(code="def test_one():\n    assert f(1) == 2\n\ndef test_two():\n    assert f(2) == 3\n")
    assert box.judge("def f(x): return x + 1", [test], entry_point="f").passed
    counts = box.judge("def f(x): return 2", [test], entry_point="f").counts
    assert (counts.passed, counts.total) == (1, 2)


def test_no_mark_is_left_on_what_runs_share(box: Box) -> None:
    mark = (
        "import fcntl, os\n"
        "try:\n    fcntl.fcntl(0, fcntl.F_SETFL, os.O_APPEND | os.O_NONBLOCK)\nexcept OSError: pass\n"
        "try:\n    fcntl.flock(0, fcntl.LOCK_EX)\nexcept OSError as error: print(type(error).__name__)\n"
    )
    assert box.run(mark).stdout == "PermissionError\n"
    seen = box.run("import fcntl, os\nprint(fcntl.fcntl(0, fcntl.F_GETFL) & (os.O_APPEND | os.O_NONBLOCK))")
    assert seen.stdout == "0\n"


def test_what_was_printed_before_a_crash_is_kept(box: Box) -> None:
    assert box.run("print('before')\nimport os\nos._exit(3)").stdout == "before\n"
