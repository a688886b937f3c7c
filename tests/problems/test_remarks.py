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
    "a heading over all": ("Approximately:\n\nf(2) == 1.41\nf(3) == 1.73\n\nf(4) == 2.0", []),
    "order in a sentence": (
        'def f(x):\n    """Return the unique values in any order.\n\n    >>> f([1, 2, 2])\n    [1, 2]\n    """',
        [],
    ),
    "literal ellipsis": (
        'def f(n):\n    """The first n numbers.\n    >>> f(100)\n    [0, 1, 2, ...]\n    >>> f(2)\n    [0, 1]\n    """',
        ["f(2) == [0, 1]"],
    ),
    "ellipsis in an argument": ("f([1, 2, ..., 9]) == 45\nf([1]) == 1", ["f([1]) == 1"]),
    "ellipsis in a text": (">>> f('ab', 50)\n'ababab...'\n>>> f('a', 2)\n'aa'", ["f('a', 2) == 'aa'"]),
    "a text that ends in dots": ("f('hello world', 5) == 'hello...'", ["f('hello world', 5) == 'hello...'"]),
    "skipped and elided": (
        ">>> f(3)  # doctest: +SKIP\n[1, 2]\n>>> f(2)  # doctest: +ELLIPSIS\n[1]\n>>> f(1)\n[0]",
        [],
    ),
    "assert with a comment": (
        "Write a function to find common elements.\nassert f([1, 2], [2, 1]) == [1, 2]  # order may vary\n"
        "assert f([1], [2]) == []",
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
    "any of them": (
        "def f(nums):\n  pass\n\n"
        "A peak is greater than its neighbors. If there are several, return any of them.\n\n"
        "Input: nums = [1, 2, 1, 3, 1]\nOutput: 1",
        [],
    ),
    "answers within": (
        "def f(x, n):\n  pass\n\nAnswers within 10^-5 of the actual answer will be accepted.\n\n"
        "Input: x = 2.1, n = 3\nOutput: 9.261",
        [],
    ),
    "a scalar beside words of order": (
        "def f(nums):\n  pass\n\nReturn the pairs in any order; here their number.\nInput: nums = [1, 2]\nOutput: 1",
        [],
    ),
    "explanations with or and about": (
        "def f(n):\n  pass\n\nInput: n = 3\nOutput: 5\nExplanation: think about 3 or 2 of them, in any case 5.",
        ["f(3) == 5"],
    ),
    "or on the next line": ("f(3) -> [1, 2]\nor [2, 1]\n\nf(1) -> [1]", []),
    "or in brackets": ("f(3) returns [1, 2] (or [2, 1])\n", []),
    "one possible output": ("f(2) == 4\nf(3) == [1, 2]  # one possible output", []),
    "a heading: one possible output": ("One possible output:\nf(3) => [1, 2]", []),
    "e.g. behind it": ("f(3) => 'abc' (e.g.)\nf(1) => 'a'", []),
    "e.g. in front is an example": ("e.g. f(1) == 2", ["f(1) == 2"]),
    "with a tilde": ("f(2) == ~1.41\nf(2) ≈ 1.4\nf(4) == 2.0", []),
    "about a whole number": ("f(1000) == 31  # about\nf(4) == 2.0", []),
    "about in another sense": ("f(4) == 2.0  # about squares", ["f(4) == 2.0"]),
    "a set has no order": ("f('aba') == {'a', 'b'}  # in any order", []),
    "a sentence above": ("Return the divisors; the order of the elements does not matter.\n\nf(4) == [1, 2, 4]", []),
    "a sentence below": (">>> f(2)\n1.41\n\nThe result is approximate.", []),
    "a session": (
        ">>> s = f()\n>>> s.add(1)\n>>> s.items()  # in any order\n[2, 1]\n>>> s.mean()  # approx.\n1.5",
        [],
    ),
    "words inside a value": ("f(1) == 'in any order'\n>>> f(1)\n'in any order'", ["f(1) == 'in any order'"]),
    "the input may have any order": (
        "Sort numbers, which come in any order.\nf([2, 1]) == [1, 2]",
        ["f([2, 1]) == [1, 2]"],
    ),
    "random": ("f([1, 2])  # => 1 (random)\nf([3])  # => 3", []),
}
"""Statements, and the tests that are to be made of them, without `assert`."""


@pytest.mark.parametrize("name", CASES)
def test_only_what_is_surely_the_one_right_value_is_a_test(name: str) -> None:
    statement, tests = CASES[name]
    made = [test.code for test in extract_public_tests(statement, "f")]
    assert made == [code if "\n" in code else f"assert {code}" for code in tests]
