"""Public tests: what a statement shows is read, what is not sure is left out, and nothing is run."""

from __future__ import annotations

import ast
import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrace.problems.humaneval import WRONG_EXAMPLES
from foretrace.problems.public_tests.extract import extract_public_tests

DEF = 'def f(n):\n    """Do it.\n\n'
READ = {
    # doctest
    ">>> f(1)\n2": ["f(1) == 2"],
    ">>> f('a')\n'b'\n>>> f('')\n''": ["f('a') == 'b'", "f('') == ''"],
    ">>> f(1) == 2": ["f(1) == 2"],
    ">>> f(1) == 2\nTrue": ["f(1) == 2"],
    ">>> f([1,\n...    2])\n[2,\n 1]": ["f([1, 2]) == [2, 1]"],
    ">>> round(f(1), 2) # a remark\n-0.5": ["round(f(1), 2) == -0.5"],
    ">>> f(0)\n\n>>> f(1)\n2": ["f(0) == None", "f(1) == 2"],
    '    >>> f(1)\n    2"""': ["f(1) == 2"],
    '    >>> f(1) == 2"""': ["f(1) == 2"],
    "```\n>>> f(1)\n2\n```": ["f(1) == 2"],
    ">>> f(1) -> 2": ["f(1) == 2"],
    ">>> a = [1]\n>>> f(a)\n>>> a\n[2]": ["a = [1]\nf(a)\nassert a == [2]"],
    ">>> s = f(2)\n>>> s.put(1)\n>>> s.top() == 1\n>>> s.top()\n1": [
        "s = f(2)\ns.put(1)\nassert s.top() == 1\nassert s.top() == 1"
    ],
    # a line
    "f(1) == 2": ["f(1) == 2"],
    "f(1) => 2": ["f(1) == 2"],
    "f(1) ==> 2": ["f(1) == 2"],
    "f(1)==>True": ["f(1) == True"],
    "f(1) -> 2": ["f(1) == 2"],
    "f(1) ➞ 2 ": ["f(1) == 2"],
    "f(1) = 2": ["f(1) == 2"],
    "f(1) # 7": ["f(1) == 7"],
    "f(1)   # returns 2": ["f(1) == 2"],
    "f(1) # => 'Yes' (because it is one)": ["f(1) == 'Yes'"],
    "f(1) returns 2": ["f(1) == 2"],
    "f(1) should return 16.": ["f(1) == 16"],
    "f(1) should be true": ["f(1) == True"],
    "f(1.5, -2) == 2.50": ["f(1.5, -2) == 2.5"],
    "* f(1) -> 2\n2. f(2) -> 3": ["f(1) == 2", "f(2) == 3"],
    "For example: f(1) == 2": ["f(1) == 2"],
    "`f(1)` returns `2`.": ["f(1) == 2"],
    "f([\n  [1, 2],\n  [3]\n], ')') == (1, [2])": ["f([[1, 2], [3]], ')') == (1, [2])"],
    "f(x=1) == {'a': None}": ["f(x=1) == {'a': None}"],
    "f('é') == 'È'": ["f('é') == 'È'"],
    # asserts
    "assert f(1) == 2": ["f(1) == 2"],
    "assert f(1) == 2, 'because'": ["f(1) == 2"],
    "assert f(1) => 2": ["f(1) == 2"],
    "    assert not f(1)\n    assert f(2)": ["not f(1)", "f(2)"],
    "assert abs(f(1) - 0.5) < 1e-6": ["abs(f(1) - 0.5) < 1e-06"],
    "assert f(\n    1,\n) == [\n    2,\n]": ["f(1) == [2]"],
    # by name
    DEF + "For n = 3 the output should be 5.": ["f(3) == 5"],
    DEF + "Example 1:\n    Input: n = 3\n    Output: 5\n    Explanation: so.": ["f(3) == 5"],
    DEF + "Input: [1, 2]\nOutput: [] # none": ["f([1, 2]) == []"],
    "def f(a, b):\n  '''\n  Input: b = 'x', a = 1\n  Output: 2": ["f(1, 'x') == 2"],
    # values that a statement leaves open, or does not
    ('def f(n):\n    """The first n numbers.\n    >>> f(100)\n    [0, 1, 2, ...]\n    >>> f(2)\n    [0, 1]\n    """'): [
        "f(2) == [0, 1]"
    ],
    "f([1, 2, ..., 9]) == 45\nf([1]) == 1": ["f([1]) == 1"],
    (
        "assert abs(f(2) - 1.41) < 0.01  # approximately\nassert sorted(f(4, 1)) == [4, 4]  # any order\n"
        "assert f(9) in (3, 3.0)  # or 3.0"
    ): ["abs(f(2) - 1.41) < 0.01", "sorted(f(4, 1)) == [4, 4]", "f(9) in (3, 3.0)"],
    "def f(n):\n  pass\n\nInput: n = 3\nOutput: 5\nExplanation: think about 3 or 2 of them, in any case 5.": [
        "f(3) == 5"
    ],
    "e.g. f(1) == 2": ["f(1) == 2"],
    "f(4) == 2.0  # about squares": ["f(4) == 2.0"],
    "f(1) == 'in any order'\n>>> f(1)\n'in any order'": ["f(1) == 'in any order'"],
    "Sort numbers, which come in any order.\nf([2, 1]) == [1, 2]": ["f([2, 1]) == [1, 2]"],
    # once each
    "f(1) == 2\nassert f(1)==2\n>>> f( 1 )\n2": ["f(1) == 2"],
}
LEFT_OUT = [
    "f(a) == 2",
    "f(1 + g(2)) == 2",
    "f(*[1]) == 2",
    "g(1) == 2",
    "self.f(1) == 2",
    "xf(1) == 2",
    "f(1) == 2 or so",
    "f(1) == 1 + 1",
    "f(1) -> 19 - 5 - 6 = 8",
    "f(1) == ''a'",
    'f(["a"]) == ""aaa"',
    "f(1) == ('a')",
    "f(1) == f(2)",
    "f(1) == x",
    "f(1) == 2 == f(3)",
    "f(1) != 2",
    "unless f(1) == 2",
    "wrong: f(1) == 2",
    "It is not the case that f(1) == 2",
    "1 + f(1) == 2",
    "-f(1) == 2",
    "if f(1) == 2:",
    "f(1) should\nreturn 2",
    "f(1)\n2",
    "f(n) = f(n - 1) + 1\nf(0) = 3",
    "f(5)  # the first",
    r"f('a\\b') == 'x'",
    "f('`') == '`'",
    "f(1 == 2",
    "f('1) == 2",
    ">>> f(1)\nTraceback (most recent call last):\nValueError",
    ">>> f(1)\n2\nand this is why",
    ">>> f(1) == 2\nFalse",
    ">>> f(1)",
    ">>> f(1)\n>>> f(2)",
    ">>> f([1]) [0, 1]",
    ">>> print(f(1))\n2",
    ">>> f(x)\n2",
    ">>> a = open('x')\n>>> f(a)\n2",
    ">>> import os\n>>> f(1)\n2",
    ">>> a = [1]\n>>> f(a)\nsomething\n>>> a\n[1]",
    ">>> a = ().__class__\n>>> f(a)\n2",
    ">>> a = 1\n>>> a\n1",
    "assert f(1) == g(2)",
    "assert f(1) == 2; import os",
    "assert x == 2",
    "f(1) == 2\nf(1) == 3",
    "assert f.a(1) == 2",
    DEF + "For m = 3 the output should be 5.",
    DEF + "For n = 3 the output should be large",
    "def f(n, m):\n  '''\n  Input: n = 3\n  Output: 5",
    "def f(n, m=1):\n  '''\n  Input: n = 3\n  Output: 5",
    DEF + "Input: n = 3\nSomething else\nOutput: 5",
    "f(" + "[" * 5000 + "]" * 5000 + ") == 2",
    "f(" + "9" * 5000 + ") == 2",
    # statements that call examples approximate, in any order, or one of several
    'def f(x):\n    """Root.\n    >>> f(2.0)\n    1.414  # approximately\n    >>> f(4.0)\n    2.0\n    """\n',
    (
        'def f(x):\n    """ Unique values.\n\n    Examples (order does not matter):\n    >>> f([3, 1, 3])\n'
        '    [3, 1]\n    >>> f([])\n    []\n    """'
    ),
    ">>> f(3)  # doctest: +SKIP\n[1, 2]\n>>> f(2)  # doctest: +ELLIPSIS\n[1]\n>>> f(1)\n[0]",
    "assert [1, 2] == f([2, 1])  # unordered",
    "assert f('aab') == 'a'\nassert f('ab') == 'a'  # or 'b'",
    (
        "def f(nums, target):\n    pass\n\nYou can return the answer in any order.\n\nExample 1:\n"
        "Input: nums = [2,7,11,15], target = 9\nOutput: [0,1]\nExplanation: nums[0] + nums[1] == 9."
    ),
    (
        "def f(s):\n  pass\n\nInput: s = 'tree'\nOutput: 'eert'\n"
        "Explanation: 'e' stands twice. 'eetr' is also a valid answer.\n\nInput: s = 'a'\nOutput: 'a'"
    ),
    "f(3) returns [1, 2] (or [2, 1])\n",
    "f(2) == 4\nf(3) == [1, 2]  # one possible output",
    "f(2) == ~1.41\nf(2) ≈ 1.4\nf(4) == 2.0",
    ">>> s = f()\n>>> s.add(1)\n>>> s.items()  # in any order\n[2, 1]\n>>> s.mean()  # approx.\n1.5",
]


def codes(text: str) -> list[str]:
    return [test.code for test in extract_public_tests(text, "f")]


@pytest.mark.parametrize("text", READ)
def test_what_is_read(text: str) -> None:
    wanted = [code if "\n" in code else f"assert {code}" for code in READ[text]]
    assert codes(text) == wanted
    assert codes(f"Some words first.\n\n{text}\n\nAnd some behind.") == wanted
    assert codes(text.replace("\n", "\r\n")) == wanted


@pytest.mark.parametrize("text", LEFT_OUT)
def test_what_is_left_out(text: str) -> None:
    assert codes(text) == []


def test_a_sure_example_beside_one_that_is_not() -> None:
    assert codes("f(1) == 2\nf(a) == 3\n>>> f(3)\n4\n>>> f(5)\nfive\n") == ["assert f(1) == 2", "assert f(3) == 4"]


def test_order_is_that_of_the_text() -> None:
    assert codes("f(3) == 1\n>>> f(2)\n1\n\nassert f(1) == 1\n") == [f"assert f({n}) == 1" for n in (3, 2, 1)]


def test_a_program_shows_nothing() -> None:
    assert extract_public_tests("f(1) == 2", None) == () == extract_public_tests("f(1) == 2", "no name")


PIECES = """f( ) 1 ' [ ] == = -> # >>> ... assert 2 , . Input: Output: def x f(1) True \\ ` For n = f(n): \"\"\" """
pieces = st.sampled_from([*PIECES.split(), *" \n\t\f\x00\ud800", " == ", ">>> ", "... ", "For n = ", "def f(n):"])


@given(st.lists(pieces, max_size=40).map("".join))
def test_any_text_gives_tests_that_call_the_function(text: str) -> None:
    for code in codes(text):
        body = ast.parse(code).body
        calls = [n for n in ast.walk(ast.Module(body, [])) if isinstance(n, ast.Name) and n.id == "f"]
        assert calls and any(isinstance(node, ast.Assert) for node in body)


@pytest.fixture(scope="module")
def human_eval(shared: Path) -> list[dict[str, Any]]:
    with gzip.open(shared / "data" / "problems" / "HumanEval.jsonl.gz") as file:
        return [json.loads(line) for line in file]


def test_human_eval_solutions_pass_what_their_prompts_show(human_eval: list[dict[str, Any]]) -> None:
    counts: list[int] = []
    wrong: dict[str, set[str]] = {}
    for row in human_eval:
        shown = extract_public_tests(row["prompt"], row["entry_point"])
        space: dict[str, Any] = {}
        exec(row["prompt"] + row["canonical_solution"], space)
        for test in shown:
            try:
                exec(test.code, dict(space))
            except AssertionError:
                wrong.setdefault(row["task_id"], set()).add(test.code)
        counts.append(len(shown) - len(wrong.get(row["task_id"], ())))
    assert wrong == WRONG_EXAMPLES
    assert (sum(map(bool, counts)), sum(counts)) == (150, 429)
