"""What a candidate raises or gives back must not be taken for a pass by something between its call and the assert."""

from __future__ import annotations

from foretrace.core.problem import Test
from sandbox.boxes import Box


def test_an_exception_that_the_test_asks_for_is_a_pass(box: Box) -> None:
    test = "try:\n    f(1)\nexcept IndexError:\n    caught = True\nelse:\n    caught = False\nassert caught"
    assert box.judge("def f(x):\n    raise IndexError('no')", [Test(code=test)], entry_point="f").passed
    assert not box.judge("def f(x):\n    return 1", [Test(code=test)], entry_point="f").passed


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
