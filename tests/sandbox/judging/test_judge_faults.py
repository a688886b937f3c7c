"""Bad input to the judge, one test each: a verdict or one clear error, and a sandbox that serves on."""

from __future__ import annotations

import asyncio
import time

import pytest

from foretrace.core.problem import Test, Verdict
from foretrace.sandbox.base import Limits
from sandbox.boxes import Box, marked, own_descriptors, own_zombies
from sandbox.judge_fixture import Judge

ADD = "def add(a, b):\n    return a + b\n"
ASSERTS = (Test(code="assert add(1, 2) == 3"), Test(code="assert add(0, 0) == 0"))
CHECK = (
    Test(code="def check(candidate):\n    x = candidate(1, 2)\n    assert x == 3\n    assert candidate(0, 0) < 1\n"),
)
THREAD = "import threading, time\ndef start(work): threading.Thread(target=work, daemon=True).start()\n"


@pytest.mark.parametrize(
    ("code", "test"),
    [
        ("def f(q): pass", "f(q)\nassert q.get() == 1"),
        (THREAD + "def f(q): start(lambda: time.sleep(60))", "f(q)\nassert q.get() == 1"),
        (THREAD + "def f(q): start(q.get)", "f(q)\nf(q)\nassert q.get() == 1"),
        ("def f(q): return q.get()", "assert f(q) == 1"),
    ],
)
def test_who_waits_for_ever_waits_no_longer_than_the_code_may_take(judged: Judge, code: str, test: str) -> None:
    began = time.monotonic()
    assert not judged(code, f"import queue\nq = queue.Queue()\n{test}", wall_s=0.5).passed
    assert time.monotonic() - began < 0.5 * 5 + 1  # it was more than that and three seconds


@pytest.mark.parametrize("end", ["import os; os._exit(0)", "while True: pass", "import ctypes; ctypes.string_at(0)"])
@pytest.mark.parametrize(
    "test",
    [
        "def check(candidate):\n    for n in (1, 2):\n        assert candidate(n) == n",
        "import pytest\n@pytest.mark.parametrize('n', [1, 2])\ndef test_f(n):\n    assert f(n) == n",
        "def check(candidate):\n  for n in (1, 2):\n    try: assert candidate(n) == n\n    except BaseException: pass",
    ],
    ids=["loop", "parametrize", "caught"],
)
def test_who_is_right_once_and_ends_the_process_has_not_passed(judged: Judge, test: str, end: str) -> None:
    assert judged("def f(n): return n", test).integrity == "calls"
    verdict = judged(f"def f(n):\n    if n == 1: return n\n    {end}", test, wall_s=0.5)
    assert verdict.integrity == "calls" and not verdict.passed


@pytest.mark.parametrize(
    "code",
    ["def f(a):\n    a.sort()\n    return a", "def f(a): return (n for n in sorted(a))"],
    ids=["sorts", "yields"],
)
def test_who_catches_that_objects_are_needed_is_judged_together(judged: Judge, code: str) -> None:
    """unittest catches whatever a test raises."""
    test = "import unittest\nclass TestF(unittest.TestCase):\n    def test(self):\n        {}(list(f([2, 1])), [1, 2])"
    verdict = judged(code, test.format("self.assertEqual"))
    assert verdict.passed and verdict.integrity == "together"
    assert not judged(code, test.format("self.assertNotEqual")).passed


def test_assert_sequence_equal_does_not_compare_types(judged: Judge) -> None:
    body = "self.assertSequenceEqual(f(2), (0, 1))"
    test = f"import unittest\nclass T(unittest.TestCase):\n  def test(self):\n    {body}"
    assert judged("def f(n): return list(range(n))", test).passed
    assert not judged("def f(n): return list(range(n + 1))", test).passed


def test_many_verdicts_leave_nothing(jailed: Box) -> None:
    async def many() -> list[Verdict]:
        return await asyncio.gather(
            *(
                jailed.sandbox.judge(ADD, (ASSERTS, CHECK)[i % 2], entry_point="add", limits=Limits(wall_s=8))
                for i in range(20)
            )
        )

    assert all(v.passed for v in jailed.do(many()))
    counts = own_descriptors(), len(own_zombies()), len(marked())
    for _ in range(3):
        assert all(v.passed for v in jailed.do(many()))
    assert (own_descriptors(), len(own_zombies()), len(marked())) == counts
