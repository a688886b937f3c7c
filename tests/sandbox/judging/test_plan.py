"""Which form tests get, decided from their text alone."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path

import pytest

from foretrace.core.errors import ProblemError
from foretrace.core.problem import Integrity, Test
from foretrace.sandbox.inside.values import decode
from foretrace.sandbox.judging.plan import JudgePlan, make_judge_plan


def of(*codes: str, entry_point: str | None = "f", setup: str = "", form: Integrity | None = None) -> JudgePlan:
    return make_judge_plan([Test(code=code) for code in codes], entry_point=entry_point, setup=setup, form=form)


VALUES = [
    "assert f(1) == 2",
    "assert 2 == f(1), 'message' + str(f(1))",
    "assert candidate([1, -2], key={'a': (None, True)}) is None",
    "assert not f({1, 2})",
    "assert f(b'x')",
    "assert f(1) != 3",
    "assert f(3) in (1, 2)",
    "assert abs(f(1.5) - 0.5) < 1e-6",
    "assert abs(0.5 - candidate(1.5)) <= 1e-6",
    "assert round(f(1), 2) == 0.33",
    "assert 1 < f(3) <= 5",
    "assert f(1) == f(2) + 1",
    "import pytest\nassert f(1) == pytest.approx(0.5)",
    "import math\nassert math.isclose(f(2), 0.5, rel_tol=1e-9)",
    "META = {'a': 1}\ndef check(g):\n    '''Doc.'''\n    assert g(1) == 1\n    assert True, 'ok'\ncheck(f)",
]
CALLS = [
    "assert f('a' * 100) != 3 and not f([1] * 3)",
    "assert f(*[1, 2], key=10**20)",
    "from math import isclose as near\nassert near(f(1), 0.5)",
    "assert f(1)[0] == f(2)[1:] and f('a').upper() == 'A'",
    "assert (f(1) if f(2) else 3) == 3",
    "for i in range(3):\n    assert f(i) == i",
    "l = [3, 1]\nf(l)\nassert l == [1, 3]",
    "assert f(f(1)) == 1",
    "assert f(1) == 10**100000",
    "try:\n    f(-1)\n    assert False\nexcept ValueError:\n    pass",
    "assert f(1) is 5",
    "assert f(**{'a': 1}) == 1",
    "def same(a, b):\n    assert a == b\nsame(f(1), 2)",
    "assert f(lambda x: x) == 1",
    "if f(1) != 2:\n    raise AssertionError",
    "import unittest\nclass TestF(unittest.TestCase):\n    def test(self):\n        self.assertEqual(f(1), 2)",
    "import random\nassert f(random.randint(0, 9)) == 2",
]
TOGETHER = [
    "s = Stack()\ns.push(1)\nassert s.pop() == 1",
    "class Node:\n    pass\nassert f(Node()) == 1",
    "assert f.__name__ == 'f'",
    "with open('x') as file:\n    assert f(file.read()) == 1",
    "x = f(1)\nassert f(x) is x",
    "from unittest import mock\nwith mock.patch('time.time'):\n    assert f(1) == 1",
    "import random\nrandom.seed(1)\nassert f(1) == 2",
    "import os\nassert f(os.getcwd()) == 1",
    "def test(capsys):\n    f(1)\n    assert capsys.readouterr().out == ''",
    "try:\n    f(1)\nexcept Own:\n    assert True\nassert f(1) is None",
    "import asyncio\nassert asyncio.run(f(1)) == 1",
    "@f\ndef g():\n    pass\nassert g() is None",
]


@pytest.mark.parametrize(
    ("form", "code"),
    [(form, code) for form, codes in (("values", VALUES), ("calls", CALLS), ("together", TOGETHER)) for code in codes],
)
def test_each_test_gets_the_strongest_form_that_works(form: Integrity, code: str) -> None:
    assert of(code).form == form


def test_one_form_for_all_and_it_can_be_weakened() -> None:
    assert of(VALUES[0], CALLS[0]).form == "calls" and of(VALUES[0], TOGETHER[0]).form == "together"
    assert of(VALUES[0], form="calls").form == "calls"
    assert of(VALUES[0], form="together").form == "together"
    refused: list[tuple[str, Integrity]] = [(CALLS[0], "values"), (TOGETHER[0], "calls"), (TOGETHER[0], "values")]
    for code, form in refused:
        with pytest.raises(ProblemError, match=f"in the form {form}"):
            of(code, form=form)


def test_the_prompt_gives_all_but_the_entry_point() -> None:
    prompt = (
        "import math\nfrom typing import List\n\nK = 3\ndef helper(x):\n    return x\n\ndef f(x):\n    '''Do it.'''\n"
    )
    made = make_judge_plan([Test(code=VALUES[0])], entry_point="f", prompt=prompt)
    assert made.helpers == "import math\nfrom typing import List\nK = 3\ndef helper(x):\n    return x"
    assert made.asked["preamble"] == "import math\nfrom typing import List" + "\nK = 3\ndef helper(x):\n    return x"
    assert make_judge_plan([Test(code=VALUES[0])], entry_point="f", prompt="Write f, please:").asked["preamble"] == ""


def test_calls_hold_arguments_and_nothing_of_what_is_expected() -> None:
    made = of("assert f([1], key='k') == 'secret'", "assert f(2) == 'secret'")
    assert [(name, [decode(a) for a in args], named) for name, args, named in made.calls] == [
        ("f", [[1]], {"key": "k"}),
        ("f", [2], {}),
    ]
    assert "secret" not in json.dumps(made.calls)


def test_names_say_number_and_line() -> None:
    assert of("assert f(1) == 2", "assert f(2)").names == ("0", "1")
    assert of("assert f(1); assert f(2)\nassert True\nassert f(3)").names == ("0:1", "0:1.2", "0:3")
    assert of("assert f(1)", "def check(candidate):\n    assert candidate(1)").names == ("0", "1:2")
    assert of("if 1:\n  for i in []:\n    assert f(i)\nelse:\n  assert f(0)").names == ("0:3", "0:5")


@pytest.mark.parametrize(
    ("tests", "message"),
    [
        ([], "no tests"),
        ([Test(code="assert f(1)"), Test(code="assert f(")], "test 1 cannot be parsed"),
        ([Test(code="assert f('\0')")], "test 0 cannot be parsed"),
        ([Test(code="x = '\ud800'\nassert f(1)")], "test 0 cannot be parsed"),
        ([Test(code="return 1\nassert f(1)")], "test 0 cannot be parsed"),
        ([Test(code="assert f(" + "(" * 500 + "1" + ")" * 500 + ")")], "test 0 cannot be parsed"),
        ([Test(code="assert f(" + "-" * 100_000 + "1)")], "test 0 cannot be parsed"),
        ([Test(code="assert f(1)"), Test(code="f(1)")], "test 1 has no assert"),
        ([Test()], "test 0 has no assert"),
        ([Test(code="assert True")], "test 0 has no assert"),
        ([Test(code="assert 1 + 1 == 2")], "test 0 does not call the code"),
        ([Test(code="assert f(1)"), Test(stdin="1", stdout="1")], "test 0 mixes"),
        ([Test(stdin="1", stdout="1", code="assert f(1)")], "test 0 mixes"),
        ([Test(stdin="1")], "test 0 has an input and no stdout"),
        ([Test(code="assert f(1) # " + "x" * (1 << 21))], "more than"),
    ],
)
def test_unusable_tests_are_one_clear_error(tests: list[Test], message: str) -> None:
    with pytest.raises(ProblemError, match=message) as caught:
        make_judge_plan(tests, entry_point="f")
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 500


def test_humaneval_is_compared_as_values_but_for_a_few(shared: Path) -> None:
    with gzip.open(shared / "data/problems/HumanEval.jsonl.gz") as file:
        rows = [json.loads(line) for line in file]
    forms = Counter(of(row["test"], entry_point=row["entry_point"], setup=row["prompt"]).form for row in rows)
    assert forms["values"] >= 147 and forms.total() == 164 and forms["together"] <= 1
