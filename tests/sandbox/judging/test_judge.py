"""Judging code against tests in real processes: every form, every way to fail, and the rules for printed output."""

from __future__ import annotations

import ast
import gzip
import json
import time
import tracemalloc
from pathlib import Path

import pytest

from foretrace.core.problem import Test
from foretrace.sandbox.judging.compare import same_output
from portions import in_portions, take
from sandbox.boxes import LOOP, Judge, outcome


def test_values_say_of_each_test_what_came_and_what_was_wanted(judged: Judge) -> None:
    code = "def f(x):\n    if x == 3: raise ValueError('no three')\n    return x * 2"
    verdict = judged(code, "assert f(1) == 2", "assert f(2) == 5", "assert f(3) == 6", "assert abs(f(.25) - .4) < .2")
    right, wrong, raised, close = verdict.tests
    assert outcome(verdict) == [True, False, False, True] and verdict.integrity == "values" and verdict.ending == "ok"
    assert (right.actual, right.expected, right.error) == ("2", "2", None)
    assert (wrong.actual, wrong.expected) == ("4", "5")
    assert (raised.actual, raised.error) == (None, "ValueError: no three")
    assert (close.actual, close.expected) == ("0.5", "0.4")
    assert all(test.seconds is not None and test.seconds >= 0 for test in verdict.tests)


def test_changes_in_place_are_seen_by_the_tests(judged: Judge) -> None:
    code = """
def f(items, table=None, deep=None):
    items.sort()
    if table: table.pop('a'); table['b'] = [1]
    if deep: deep[0].append(5)
"""
    tests = """
l = [3, 1]
same = l
assert f(l) is None
assert same == [1, 3]
d, inner = {'a': 1}, []
deep = (inner, 1)
f(l, table=d, deep=[inner])
assert d == {'b': [1]} and inner == [5]
"""
    assert outcome(judged(code, tests)) == [True, True, True]
    assert outcome(judged("def f(items, **more):\n    sorted(items)", tests)) == [True, False, False]


def test_unreached_asserts_pass_where_the_test_comes_to_its_end_as_in_python(judged: Judge) -> None:
    tests = "for x in f(3):\n    assert x > 0\nif f(1) == []:\n    assert f(2) == []\nelse:\n    assert f(1) == [1]"
    assert outcome(judged("def f(n): return [1] * n", tests)) == [True, True, True]
    assert outcome(judged("def f(n): return []", tests)) == [True, True, True]
    broken = judged("def f(n): return 5", tests)
    assert outcome(broken) == [False] * 3
    assert broken.tests[0].error == "not reached: TypeError: 'int' object is not iterable"


def test_a_function_that_raises_is_named_and_hides_nothing_of_the_others(judged: Judge) -> None:
    tests = "def test_a():\n    f(1)[0]\n    assert f(1) == 1\ndef test_b():\n    assert f(2) == 2\n"
    methods = "class TestC:\n    def test_c(self):\n        f(1).x\n    def test_d(self):\n        assert f(3) == 3"
    verdict = judged("def f(n): return n", tests + methods)
    assert [t.error for t in verdict.tests] == ["TypeError: in test_a: 'int' object is not subscriptable", None, None]
    assert outcome(judged("def f(n): raise SystemExit", tests + methods)) == [False] * 3


@pytest.mark.parametrize(
    "second",
    [
        "def test_b():\n    for n in (1, 5):\n        m = f(n)\n        assert m == n\n",
        "class TestB:\n    def test_b(self):\n        assert f(1) == 1\n    def teardown_method(self):\n        f(5)\n",
    ],
    ids=["loop", "teardown"],
)
def test_each_function_that_raises_fails_in_spite_of_its_asserts(judged: Judge, second: str) -> None:
    first = "def test_a():\n    m = f(5)\n    assert m == 5\n"
    verdict = judged("def f(n): return {1: 1}[n]", first + second)
    assert outcome(verdict) == [False, False]
    named = [str(test.error).partition(":")[2].split(":")[0] for test in verdict.tests]
    assert sorted(named) == sorted([" in test_a", " in test_b" if "class" not in second else " in TestB.test_b"])


@pytest.mark.parametrize(("test", "said"), [("Equal(f(2), 3)", "got 2, expected 3"), ("In(5, f(2))", "TypeError")])
def test_a_failing_method_of_a_test_case_is_named(judged: Judge, test: str, said: str) -> None:
    case = (
        "import unittest\nclass TestF(unittest.TestCase):\n    def test_a(self):\n        self.assertEqual(f(1), 1)\n"
    )
    (only,) = judged("def f(n): return n", f"{case}    def test_b(self):\n        self.assert{test}").tests
    assert not only.passed and "in TestF.test_b: " in str(only.error) and said in str(only.error)


def test_a_limit_is_said_to_be_that_of_all_tests(judged: Judge) -> None:
    for test in ("assert f(1) == 1", LOOP):
        verdict = judged("def f(n):\n    while True: pass", test, wall_s=0.3)
        assert "longer than 0.3 s, the limit of all tests together" in str(verdict.tests[0].error)


def test_a_function_that_gives_objects_is_judged_in_one_process(judged: Judge) -> None:
    code = "import collections\nP = collections.namedtuple('P', 'a b')\ndef f(x): return P(x, x + 1)"
    tests = "for n in (1, 2):\n    assert f(n).b == n + 1"
    verdict = judged(code, tests)
    assert verdict.passed and {test.form for test in verdict.tests} == {"together"}
    assert not judged(code.replace("x + 1", "x"), tests).passed
    left = judged("import os\ndef f(x): os._exit(0)", tests)
    assert (outcome(left), left.ending, left.flags) == ([False], "exit", ("exited",))


def test_programs(judged: Judge) -> None:
    code = "a = input()\nif a == '3': raise SystemExit(1)\nif a == '4': raise SystemExit(0)\nprint(int(a) / 3)"
    cases = [
        Test(stdin=a, stdout=b, tolerance=1e-3) for a, b in (("1", "0.333"), ("2", "1"), ("3", ""), ("4", ""), ("", ""))
    ]
    verdict = judged(code, *cases)
    assert verdict.integrity == "values"
    assert outcome(verdict) == [True, False, False, True, False]
    assert verdict.tests[1].actual == "'0.6666666666666666\\n'" and verdict.tests[1].expected == "'1'"
    assert verdict.tests[2].error == "the program left with exit code 1"
    assert verdict.tests[4].error is not None and verdict.tests[4].error.startswith("EOFError")


@pytest.mark.parametrize(
    ("code", "ending", "kind"),
    [
        ("def f(:", "error", "SyntaxError"),
        ("x = 1 / 0", "error", "ZeroDivisionError"),
        ("def g(): pass", "error", "NameError"),
        ("", "error", "NameError"),
        ("\0", "error", None),
        ("'\ud800'", "error", None),
        ("import sys; sys.exit(0)", "exit", "SystemExit"),
        ("import os; os._exit(0)", "exit", "Exit"),
        ("raise KeyboardInterrupt", "error", "KeyboardInterrupt"),
        ("class E(Exception):\n  def __str__(self): raise E\nraise E", "error", "E"),
        ("raise MemoryError", "memory", "MemoryError"),
        ("while True: pass", "timeout", "Timeout"),
        ("import os, signal; os.kill(os.getpid(), 11)", "killed", "Killed"),
        ("f = 1\n" + "# " + "x" * (1 << 20), "error", "SourceTooLarge"),
        ("(" * 5000 + ")" * 5000, "error", None),
    ],
)
@pytest.mark.parametrize("test", ["assert f(1) == 1", LOOP], ids=["values", "calls"])
def test_code_that_cannot_be_loaded(judged: Judge, code: str, ending: str, kind: str | None, test: str) -> None:
    verdict = judged(code, test, test, wall_s=0.4)
    assert outcome(verdict) == [False, False]
    assert verdict.ending == ending, verdict
    assert verdict.error is not None and kind in (None, verdict.error.kind)
    assert all(t.error for t in verdict.tests)


FATAL = {
    "hang": ("while True: pass", "timeout"),
    "exit": ("import os; os._exit(0)", "exit"),
    "crash": ("import os; os.kill(os.getpid(), 9)", "killed"),
}


@pytest.mark.parametrize("kind", FATAL)
def test_a_fatal_call_leaves_the_tests_before_it_passed(judged: Judge, kind: str) -> None:
    what, ending = FATAL[kind]
    code = f"def f(x):\n    if x == 2:\n        {what}\n    return x"
    verdict = judged(code, *(f"assert f({n}) == {n}" for n in range(5)), wall_s=0.4)
    assert outcome(verdict) == [True, True, False, False, False]
    assert verdict.ending == ending and verdict.tests[2].error
    called = judged(code, "x = 1\n" + "\n".join(f"assert f({n} * x) == {n}" for n in range(5)), wall_s=0.4)
    assert called.integrity == "calls" and outcome(called) == [True, True, False, False, False]
    swallowed = "try:\n    f(2)\nexcept BaseException:\n    pass\nassert f(1) == 1"
    assert outcome(judged(code, swallowed, wall_s=0.4)) == [False]


def test_large_tests_are_compiled_once_and_not_in_the_time_of_each_answer(judged: Judge) -> None:
    data = [[*range(n, n + 20)] for n in range(12_500)]
    verdict = judged("def f(n): return n", f"data = {data}\nfor n in (1, 2):\n    assert f(n) == data[n][0]")
    assert verdict.passed and verdict.integrity == "calls"


@in_portions
def test_humaneval(portion: int, judged: Judge, shared: Path) -> None:
    with gzip.open(shared / "data/problems/HumanEval.jsonl.gz") as file:
        rows = [json.loads(line) for line in file]
    for row in take(rows, portion):
        where = {"entry_point": row["entry_point"], "prompt": row["prompt"]}
        whole = row["prompt"] + row["canonical_solution"]
        right = judged(whole, row["test"], **where)
        tree = ast.parse(whole)
        alone = next(node for node in tree.body if getattr(node, "name", "") == row["entry_point"])
        bare = judged(ast.unparse(alone), row["test"], **where)
        assert bare.passed, (row["task_id"], bare)
        assert right.passed and right.integrity in ("values", "calls", "together"), (row["task_id"], right)
        empty = judged(row["prompt"] + "    return None\n", row["test"], **where)
        assert not empty.passed and len(empty.tests) == len(right.tests), row["task_id"]


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


@pytest.mark.parametrize(
    ("printed", "expected", "tolerance", "same"),
    [
        ("1\n2\n", "1\n2", None, True),
        ("1 \r\n2\t\n\n\n", "1\n2", None, True),
        ("", "\n", None, True),
        ("1", "1\n2", None, False),
        ("1\n2", "1", None, False),
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
