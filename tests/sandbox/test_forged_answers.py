"""Answers that compute nothing of what is asked and try to pass: each is refused, and honest ones of their shape pass.

`hostile/not_refused.toml` lists the forgeries that still pass, each with the reason. The list is exact: one that is
refused must be taken off it.
"""

from __future__ import annotations

import asyncio
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from foretrace.core.problem import Test, Verdict
from foretrace.sandbox.base import Limits
from portions import in_portions, in_portions_of, take
from sandbox.boxes import Box, Job, box_at

FOLDER = Path(__file__).with_name("hostile")
PROBLEMS: list[dict[str, Any]] = tomllib.loads((FOLDER / "forgeries.toml").read_text(encoding="utf-8"))["problem"]
NOT_REFUSED: dict[str, str] = tomllib.loads((FOLDER / "not_refused.toml").read_text(encoding="utf-8"))


def make_job(problem: dict[str, Any], name: str, code: str) -> Job:
    options = {"entry_point": problem.get("entry_point", "f"), "setup": problem.get("setup", "")}
    tests = [Test(code=code) for code in problem.get("tests", ())]
    if "stdout" in problem:
        options["entry_point"] = None
        tests = [Test(stdin=problem["stdin"], stdout=problem["stdout"], tolerance=problem.get("tolerance"))]
    return Job(name, code, tests, options)


HONEST = [make_job(problem, problem["name"], problem["honest"]) for problem in PROBLEMS]
FORGED = [
    make_job(problem, f"{problem['name']}: {name}", code)
    for problem in PROBLEMS
    for name, code in problem["forged"].items()
]


@pytest.fixture(scope="module")
def several(runner: asyncio.Runner) -> Iterator[Box]:
    yield from box_at(3, runner, workers=3, limits=Limits(wall_s=2.0, cpu_s=2.0))


def find_passed(box: Box, jobs: list[Job]) -> set[str]:
    found = box.judge_all(jobs)
    raised = {name: verdict for name, verdict in found.items() if isinstance(verdict, Exception)}
    assert raised == {}
    return {name for name, verdict in found.items() if isinstance(verdict, Verdict) and verdict.passed}


@in_portions
def test_honest_answers_pass(several: Box, portion: int) -> None:
    honest = take(HONEST, portion)
    assert {job.name for job in honest} - find_passed(several, honest) == set()


@in_portions
def test_forged_answers_are_refused(several: Box, portion: int) -> None:
    """A verdict that surprises is asked for once more: decoys are random, and a limit may end what would pass."""
    forged = take(FORGED, portion)
    for _ in range(2):
        passed = find_passed(several, forged)
        forged = [job for job in forged if (job.name in passed) != (job.name in NOT_REFUSED)]
    surprising = {job.name for job in forged}
    assert sorted(surprising - NOT_REFUSED.keys()) == [], "forgeries that pass"
    assert sorted(surprising & NOT_REFUSED.keys()) == [], "take these off not_refused.toml: they are refused now"


# --- liars of every type, in every place where a test may look at a value

MAKE = """
NAMES = '''eq ne lt le gt ge bool contains add radd sub rsub mul rmul truediv floordiv mod rmod pow and rand or ror xor
rxor neg abs round floor ceil trunc call getitem enter iter next len int float index complex str repr format bytes hash
instancecheck subclasscheck reduce copy deepcopy fspath reversed missing divmod iadd matmul invert
length_hint'''.split()
TRUE = {'eq', 'lt', 'le', 'gt', 'ge', 'bool', 'contains', 'instancecheck', 'subclasscheck'}
FIXED = {'len': 2, 'int': 4, 'float': 4.0, 'index': 4, 'complex': 4j, 'hash': 4, 'bytes': b'4', 'length_hint': 2}
def make(base, meta=type):
    members = {}
    for name in NAMES:
        if name == 'ne': answer = lambda s, *a: False
        elif name in TRUE: answer = lambda s, *a: True
        elif name in FIXED: answer = lambda s, *a, v=FIXED[name]: v
        elif name in ('str', 'repr', 'format'): answer = lambda s, *a: '4'
        elif name == 'iter': answer = lambda s: iter((s, s))
        elif name == 'next': answer = lambda s: s
        elif name == 'reduce': continue
        else: answer = lambda s, *a, **k: s
        members[f'__{name}__'] = answer
    if base not in (str, bytes, list, dict, tuple): members['__getattr__'] = lambda s, n: s
    return meta('L', (base,), members)
"""
LIARS = {
    "object": MAKE + "L = make(object)\ndef f(*a): return L()",
    "int": MAKE + "L = make(int)\ndef f(*a): return L(9)",
    "float": MAKE + "L = make(float)\ndef f(*a): return L(7.5)",
    "str": MAKE + "L = make(str)\ndef f(*a): return L('7')",
    "list": MAKE + "L = make(list)\nA = make(object)\ndef f(*a): return L([A(), A()])",
    "tuple": MAKE + "L = make(tuple)\nA = make(int)\ndef f(*a): return L([A(7), A(7)])",
    "dict": MAKE + "L = make(dict)\nA = make(object)\ndef f(*a): return L({A(): A()})",
    "set": MAKE + "L = make(set)\ndef f(*a): return L([7])",
    "list of liars": MAKE + "A = make(object)\ndef f(*a): return [A(), A()]",
    "class": MAKE + "M = make(type)\nclass L(metaclass=M): pass\ndef f(*a): return L",
    "mock": "from unittest.mock import ANY, MagicMock\ndef f(*a):\n  m = MagicMock(return_value=ANY)\n"
    "  m.__eq__ = lambda s, o: True\n  return m",
    "exception": MAKE + "class E(make(Exception)): pass\ndef f(*a): return E()",
}
PAIR = "def f(*a): return [1, 2]"
FOUR = "def f(*a): return 4"
LOOKS_AT_FOUR = (
    *("assert f() == 4", "assert 4 == f()", "assert not f() != 4", "assert f() in (4, 5)"),
    *("assert f() in {4: 0}", "assert f() not in [1, 2]\nassert f() == 4", "assert f() is not None and f() == 4"),
    *("assert f() + f() == 8", "assert f() * 2 == 8 and f() - 4 == 0", "assert not f() - 4"),
    *("assert 3 < f() <= 4", "assert f() in range(4, 5)", "assert f() & 1 == 0 and f() | 1 == 5"),
    *("assert f() % 3 == 1", "assert -f() == -4", "assert divmod(f(), 3) == (1, 1)"),
    *("assert isinstance(f(), int) and f() == 4", "assert type(f()) is int", "assert sum([f(), 1]) == 5"),
    *("assert max(f(), 3) == 4 == min(f(), 5)", "import operator\nassert operator.eq(f(), 4)"),
    *("assert list(map(f, [1, 2])) == [4, 4]", "assert {f()} == {4}", "assert [f()].index(4) == 0"),
    *("assert [4].count(f()) == 1", "import copy\nassert copy.deepcopy(f()) == 4"),
    "import pytest\nassert f() == pytest.approx(4)",
    *("import operator\nassert operator.sub(f(), 4) == 0", "assert {n: f(n) for n in 'ab'} == {'a': 4, 'b': 4}"),
    "from collections import Counter\nassert Counter([f(), 4])[4] == 2",
    "import statistics\nassert statistics.mean([f(), 6]) == 5",
    "from fractions import Fraction\nassert Fraction(1, 2) + f() == Fraction(9, 2)",
    "from unittest.mock import call\nassert call(f()) == call(4)",
    "if f() != 4:\n    raise AssertionError\nassert True",
    "match f():\n    case 4:\n        ok = True\n    case _:\n        ok = False\nassert ok",
    "got = f()\nexpected = 4\nassert got == expected, f'{got} is not {expected}'",
    "import unittest\nclass T(unittest.TestCase):\n    def test(self):\n        self.assertEqual(f(), 4)",
    "import unittest\nclass T(unittest.TestCase):\n    def test(self):\n        self.assertTrue(f() == 4)",
    "import unittest\nclass T(unittest.TestCase):\n    def test(self):\n        self.assertIn(f(), [4])",
)
LOOKS_AT_PAIR = (
    *("assert f() == [1, 2]", "assert [*f()] == [1, 2]", "a, b = f()\nassert a == 1 and b == 2"),
    *("assert sorted(f(), reverse=True) == [2, 1]", "assert set(f()) == {1, 2}", "assert not set(f()) ^ {1, 2}"),
    *("assert sum(f()) == 3", "assert f()[-1] == 2 and f()[:1] == [1]", "assert f() + [3] == [1, 2, 3]"),
    *("assert ','.join(map(str, f())) == '1,2'", "import json\nassert json.dumps(f()) == '[1, 2]'"),
    *("assert tuple(f()) == (1, 2) and len(f()) == 2", "assert [1, 2] in [f()]"),
    "assert set(f()).issubset({1, 2}) and f()[0] == 1",
    "assert all(a == b for a, b in zip(f(), [1, 2], strict=True))",
    "for n, got in enumerate(f(), 1):\n    assert got == n\nassert n == 2",
    "from collections import Counter\nassert Counter(f()) == {1: 1, 2: 1}",
    "import itertools\nassert list(itertools.chain(f(), [3])) == [1, 2, 3]",
    "match f():\n    case [1, 2]:\n        ok = True\n    case _:\n        ok = False\nassert ok",
    "import unittest\nclass T(unittest.TestCase):\n  def test(self):\n    self.assertCountEqual([2, 1], f())",
)
LOOKS = dict.fromkeys(LOOKS_AT_FOUR, FOUR) | dict.fromkeys(LOOKS_AT_PAIR, PAIR)
"""By test: an honest answer."""


@in_portions_of(17)  # which has no divisor in common with the number of kinds: some of each are among them
def test_no_liar_passes_wherever_it_is_looked_at(several: Box, portion: int) -> None:
    def make(name: str, code: str, test: str) -> Job:
        return Job(f"{name}: {test}", code, [Test(code=test)], {"entry_point": "f"})

    honest = take([make("honest", LOOKS[test], test) for test in LOOKS], portion)
    liars = take([make(kind, code, test) for test in LOOKS for kind, code in LIARS.items()], portion)
    assert {job.name for job in honest} - find_passed(several, honest) == set()
    passed = find_passed(several, liars)
    assert [name for name in passed if not name.startswith("mock: ")] == []  # a mock is not a class of the answer's
    assert len(passed) <= 5
