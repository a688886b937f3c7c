"""Bad input to the judge, one test each: a verdict or one clear error, and a sandbox that serves on."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Any

import msgspec
import pytest

from foretrace.core.problem import Test, Verdict
from foretrace.sandbox.base import Limits
from sandbox.boxes import Box, marked, own_descriptors, own_zombies
from sandbox.judge_fixture import Judge
from timing import AT_ONCE_S

PATIENT = Limits(wall_s=8.0, cpu_s=2.0)
"""For what comes to its end, on a machine that is busy."""
QUICK = Limits(wall_s=0.2, cpu_s=1.0)
HANGING = Limits(wall_s=0.05, cpu_s=1.0)
"""For what never ends, and does nothing else that is looked at."""
ADD = "def add(a, b):\n    return a + b\n"
ASSERTS = (Test(code="assert add(1, 2) == 3"), Test(code="assert add(0, 0) == 0"))
CHECK = (
    Test(code="def check(candidate):\n    x = candidate(1, 2)\n    assert x == 3\n    assert candidate(0, 0) < 1\n"),
)
THREAD = "import threading, time\ndef start(work): threading.Thread(target=work, daemon=True).start()\n"
PROGRAM = (Test(stdin="1 2\n", stdout="3\n"), Test(stdin="0 0\n", stdout="0\n"))
PRINTS = "a, b = map(int, input().split())\nprint(a + b)"


@pytest.fixture
def box(jailed: Box) -> Box:
    """A sandbox at one level: what is asked here is the same at all of them."""
    return jailed


def judge(box: Box, code: str, tests: Any, **more: Any) -> Verdict:
    given = {"entry_point": "add", "limits": PATIENT, **more}
    if tests is PROGRAM:
        given["entry_point"] = None
    verdict: Verdict = box.do(box.sandbox.judge(code, tests, **given))
    assert msgspec.json.decode(msgspec.json.encode(verdict), type=Verdict) == verdict
    assert verdict.isolation.level == box.level
    return verdict


@pytest.mark.parametrize(
    ("tests", "code"), [(ASSERTS, ADD), (CHECK, ADD), (PROGRAM, PRINTS)], ids=["asserts", "check", "io"]
)
def test_bad_code_fails_all_tests_and_no_more(box: Box, tests: Any, code: str) -> None:
    good = judge(box, code, tests)
    assert good.passed and good.ending == "ok", good
    bad = {
        "syntax": "def add(a, b:\n",
        "surrogate message": "raise ValueError('\\ud800')",
        "not callable": "add = 5",
        "raises": "1/0",
        "hangs": "while True: pass",
        "sleeps": "import time; time.sleep(60)",
        "raises late": "def add(a, b): raise ValueError('\\ud800')\nprint(add(1, 2))",
        "hangs late": "def add(a, b):\n  while True: pass\nif __name__ == '__main__': add(1, 2)",
        "returns surrogates": "def add(a, b): return '\\ud800'\nprint('x')",
        "returns anything": "def add(a, b): return object()\nprint('x')",
    }
    for name, text in bad.items():
        limits = HANGING if name in ("hangs", "sleeps", "hangs late") else QUICK
        verdict = judge(box, text, tests, limits=limits)
        assert not verdict.passed, (name, verdict)
        assert verdict.counts.total == good.counts.total, (name, verdict)
        said = verdict.error or verdict.ending != "ok" or any(t.error or t.actual is not None for t in verdict.tests)
        assert said, name
    assert judge(box, code, tests).passed


@pytest.mark.slow
def test_a_hung_test_is_ended(request: pytest.FixtureRequest, runner: asyncio.Runner) -> None:
    """At every level that is to be had, all at one time: each waits for seconds."""
    loops = "def check(candidate):\n    while True: candidate(1, 2)\n    assert False"
    sleeps = "def check(candidate):\n    import time; time.sleep(60)\n    assert candidate(1, 2) == 3"

    async def end(box: Box) -> None:
        verdict = await box.sandbox.judge(ADD, (Test(code=loops),), entry_point="add", limits=QUICK)
        assert not verdict.passed and verdict.seconds < AT_ONCE_S
        assert not (await box.sandbox.judge(ADD, (Test(code=sleeps),), entry_point="add", limits=QUICK)).passed
        assert (await box.sandbox.judge(ADD, CHECK, entry_point="add", limits=PATIENT)).passed

    async def end_all(boxes: list[Box]) -> None:
        await asyncio.gather(*map(end, boxes))

    boxes: list[Box] = []
    for name in ("jailed", "unjailed"):
        with contextlib.suppress(pytest.skip.Exception):
            boxes.append(request.getfixturevalue(name))
    assert boxes
    runner.run(end_all(boxes))


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


def test_many_verdicts_leave_nothing(box: Box) -> None:
    async def many() -> list[Verdict]:
        return await asyncio.gather(
            *(box.sandbox.judge(ADD, (ASSERTS, CHECK)[i % 2], entry_point="add", limits=PATIENT) for i in range(20))
        )

    assert all(v.passed for v in box.do(many()))
    counts = own_descriptors(), len(own_zombies()), len(marked())
    for _ in range(3):
        assert all(v.passed for v in box.do(many()))
    assert (own_descriptors(), len(own_zombies()), len(marked())) == counts
