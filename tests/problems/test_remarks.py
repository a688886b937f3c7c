"""Examples of a statement that calls them approximate, in any order, or one of several: none of them is a test."""

from __future__ import annotations

import pytest

from foretrace.problems.public_tests.extract import extract_public_tests

CASES: dict[str, tuple[str, list[str]]] = {
    "comment approximately": (
        'def f(x):\n    """Root.\n    >>> f(2.0)\n    1.414  # approximately\n    >>> f(4.0)\n    2.0\n    """\n',
        [],
    ),
    "order in a heading": (
        'def f(x):\n    """ Unique values.\n\n    Examples (order does not matter):\n    >>> f([3, 1, 3])\n'
        '    [3, 1]\n    >>> f([])\n    []\n    """',
        [],
    ),
    "literal ellipsis": (
        'def f(n):\n    """The first n numbers.\n    >>> f(100)\n    [0, 1, 2, ...]\n    >>> f(2)\n    [0, 1]\n    """',
        ["f(2) == [0, 1]"],
    ),
    "ellipsis in an argument": ("f([1, 2, ..., 9]) == 45\nf([1]) == 1", ["f([1]) == 1"]),
    "skipped and elided": (
        ">>> f(3)  # doctest: +SKIP\n[1, 2]\n>>> f(2)  # doctest: +ELLIPSIS\n[1]\n>>> f(1)\n[0]",
        [],
    ),
    "assert the other way round": ("assert [1, 2] == f([2, 1])  # unordered", []),
    "an assert that is tolerant already": (
        "assert abs(f(2) - 1.41) < 0.01  # approximately\nassert sorted(f(4, 1)) == [4, 4]  # any order\n"
        "assert f(9) in (3, 3.0)  # or 3.0",
        ["abs(f(2) - 1.41) < 0.01", "sorted(f(4, 1)) == [4, 4]", "f(9) in (3, 3.0)"],
    ),
    "a comment that gives the other": ("assert f('aab') == 'a'\nassert f('ab') == 'a'  # or 'b'", []),
    "return in any order": (
        "def f(nums, target):\n    pass\n\nYou can return the answer in any order.\n\nExample 1:\n"
        "Input: nums = [2,7,11,15], target = 9\nOutput: [0,1]\nExplanation: nums[0] + nums[1] == 9.",
        [],
    ),
    "explained as one of two": (
        "def f(s):\n  pass\n\nInput: s = 'tree'\nOutput: 'eert'\n"
        "Explanation: 'e' stands twice. 'eetr' is also a valid answer.\n\nInput: s = 'a'\nOutput: 'a'",
        [],
    ),
    "explanations with or and about": (
        "def f(n):\n  pass\n\nInput: n = 3\nOutput: 5\nExplanation: think about 3 or 2 of them, in any case 5.",
        ["f(3) == 5"],
    ),
    "or in brackets": ("f(3) returns [1, 2] (or [2, 1])\n", []),
    "one possible output": ("f(2) == 4\nf(3) == [1, 2]  # one possible output", []),
    "e.g. in front is an example": ("e.g. f(1) == 2", ["f(1) == 2"]),
    "with a tilde": ("f(2) == ~1.41\nf(2) ≈ 1.4\nf(4) == 2.0", []),
    "about in another sense": ("f(4) == 2.0  # about squares", ["f(4) == 2.0"]),
    "a session": (
        ">>> s = f()\n>>> s.add(1)\n>>> s.items()  # in any order\n[2, 1]\n>>> s.mean()  # approx.\n1.5",
        [],
    ),
    "words inside a value": ("f(1) == 'in any order'\n>>> f(1)\n'in any order'", ["f(1) == 'in any order'"]),
    "the input may have any order": (
        "Sort numbers, which come in any order.\nf([2, 1]) == [1, 2]",
        ["f([2, 1]) == [1, 2]"],
    ),
}
"""Statements, and the tests that are to be made of them, without `assert`."""


@pytest.mark.parametrize("name", CASES)
def test_only_what_is_surely_the_one_right_value_is_a_test(name: str) -> None:
    statement, tests = CASES[name]
    made = [test.code for test in extract_public_tests(statement, "f")]
    assert made == [code if "\n" in code else f"assert {code}" for code in tests]
