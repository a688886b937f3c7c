"""Judging code against tests in real processes: every form, and every way to fail."""

from __future__ import annotations

import ast
import gzip
import json
from pathlib import Path

import pytest

from foretrace.core.problem import Test
from portions import in_portions, take
from sandbox.judge_fixture import LOOP, Judge, outcome


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
