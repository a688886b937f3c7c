"""The first half of the built-in problems: lists, texts and numbers."""

from __future__ import annotations

from typing import NamedTuple


class Item(NamedTuple):
    """One problem as it is written down here."""

    id: str
    prompt: str
    """Signature and docstring; for a program, the task in words."""
    solution: str
    """What follows the prompt; for a program, the whole of it."""
    hidden: tuple[str, ...]
    """Asserts; for a program, inputs and outputs in turn."""
    public: tuple[str, ...] = ()
    """Inputs and outputs of a program; those of a function are read from its docstring."""


LISTS_AND_TEXTS = (
    Item(
        "two_sum",
        '''def two_sum(numbers, target):
    """Find two numbers at different places of a list that add up to the target.

    Return their indices (i, j) as a tuple with i < j. If several pairs do, return the one with the smallest j, and
    among those the one with the smallest i. If there is none, return None.

    >>> two_sum([2, 7, 11, 15], 9)
    (0, 1)
    >>> two_sum([1, 2, 3], 7) == None
    True
    >>> two_sum([1, 4, 5, 8], 12)
    (1, 3)
    """
''',
        """    first = {}
    for j, number in enumerate(numbers):
        if target - number in first:
            return (first[target - number], j)
        first.setdefault(number, j)
    return None
""",
        (
            "assert two_sum([3, 3], 6) == (0, 1)",
            "assert two_sum([3, 2, 4], 6) == (1, 2)",
            "assert two_sum([5], 10) == None",
            "assert two_sum([], 0) == None",
            "assert two_sum([-3, 4, 1, 2, -1], -4) == (0, 4)",
            "assert two_sum([0, 5, 0], 0) == (0, 2)",
            "assert two_sum([1, 1, 9], 10) == (0, 2)",
            "assert two_sum([1, 9, 4, 6], 10) == (0, 1)",
            "assert two_sum([1, 4, 6, 9], 10) == (1, 2)",
            "assert two_sum([-7, 7], 0) == (0, 1)",
        ),
    ),
    Item(
        "is_palindrome",
        '''def is_palindrome(text):
    """Say whether a text reads the same in both directions, when only its letters and digits count and upper and
    lower case are the same. A text without letters and digits does.

    >>> is_palindrome("level")
    True
    >>> is_palindrome("Was it a car or a cat I saw?")
    True
    >>> is_palindrome("python")
    False
    """
''',
        """    kept = [char for char in text.lower() if char.isalnum()]
    return kept == kept[::-1]
""",
        (
            "assert is_palindrome('') == True",
            "assert is_palindrome('.,!? ;') == True",
            "assert is_palindrome('0P') == False",
            "assert is_palindrome('1a2') == False",
            "assert is_palindrome('12 3-21') == True",
            "assert is_palindrome('No_on') == True",
            "assert is_palindrome('Aa') == True",
            "assert is_palindrome('ab') == False",
            "assert is_palindrome('a.') == True",
            "assert is_palindrome('1231') == False",
            'assert is_palindrome("Don\'t nod\\t\\n") == True',
        ),
    ),
    Item(
        "max_subarray",
        '''def max_subarray(numbers):
    """Return the largest sum of a run of neighbours in a list of integers. A run has at least one number; for an empty
    list return 0.

    >>> max_subarray([1, -3, 4, -1, 2, -5])
    5
    >>> max_subarray([2, 3])
    5
    """
''',
        """    if not numbers:
        return 0
    best = here = numbers[0]
    for number in numbers[1:]:
        here = max(number, here + number)
        best = max(best, here)
    return best
""",
        (
            "assert max_subarray([-8, -3, -6, -2, -5, -4]) == -2",
            "assert max_subarray([-1]) == -1",
            "assert max_subarray([]) == 0",
            "assert max_subarray([0, -1, 0]) == 0",
            "assert max_subarray([-2, 0, -1]) == 0",
            "assert max_subarray([5, -2, 4, -10, 6]) == 7",
            "assert max_subarray([-5, 4, -1, 4, -5]) == 7",
            "assert max_subarray([3, -2, -2, 5]) == 5",
            "assert max_subarray([-1, 8]) == 8",
            "assert max_subarray([1, 1, 1, 1, -9, 2, 2, 2, -1, 2, -9, 3]) == 7",
        ),
    ),
    Item(
        "valid_parentheses",
        '''def valid_parentheses(text):
    """Say whether every bracket of a text is closed by one of its kind, in the right order. The brackets are (), []
    and {}; other characters do not count.

    >>> valid_parentheses("f(a[1])")
    True
    >>> valid_parentheses("(]")
    False
    >>> valid_parentheses("((1)")
    False
    """
''',
        """    opening = {")": "(", "]": "[", "}": "{"}
    waiting = []
    for char in text:
        if char in "([{":
            waiting.append(char)
        elif char in opening and (not waiting or waiting.pop() != opening[char]):
            return False
    return not waiting
""",
        (
            "assert valid_parentheses('') == True",
            "assert valid_parentheses('no brackets, at all!') == True",
            "assert valid_parentheses('([)]') == False",
            "assert valid_parentheses(')(') == False",
            "assert valid_parentheses(']') == False",
            "assert valid_parentheses('{[()()]}') == True",
            "assert valid_parentheses('()]') == False",
            "assert valid_parentheses('{') == False",
            "assert valid_parentheses('a < b > c') == True",
            "assert valid_parentheses('((((((((((([{}])))))))))))') == True",
        ),
    ),
    Item(
        "merge_sorted_lists",
        '''def merge_sorted_lists(left, right):
    """Return one ascending list with all the numbers of two ascending lists. What stands in both, or twice in one, is
    kept as often as it stands there.

    >>> merge_sorted_lists([1, 4], [2, 3])
    [1, 2, 3, 4]
    >>> merge_sorted_lists([5], [1, 2])
    [1, 2, 5]
    """
''',
        """    merged = []
    i = j = 0
    while i < len(left) and j < len(right):
        if left[i] <= right[j]:
            merged.append(left[i])
            i += 1
        else:
            merged.append(right[j])
            j += 1
    return merged + left[i:] + right[j:]
""",
        (
            "assert merge_sorted_lists([], []) == []",
            "assert merge_sorted_lists([], [1, 2]) == [1, 2]",
            "assert merge_sorted_lists([-2, 0], []) == [-2, 0]",
            "assert merge_sorted_lists([1, 1, 2], [1, 2]) == [1, 1, 1, 2, 2]",
            "assert merge_sorted_lists([-10, -3, 8], [-5, -3]) == [-10, -5, -3, -3, 8]",
            "assert merge_sorted_lists([7], [7]) == [7, 7]",
            "assert merge_sorted_lists([1, 2], [8, 9, 9]) == [1, 2, 8, 9, 9]",
            "assert merge_sorted_lists([1, 10, 11], [2]) == [1, 2, 10, 11]",
        ),
    ),
    Item(
        "climbing_stairs",
        '''def climbing_stairs(n):
    """Return in how many ways a staircase of n steps can be climbed when each stride takes one step or two.

    The order of the strides counts. n is never negative; there is one way to climb no step at all. n may be as large
    as 90.

    >>> climbing_stairs(3)
    3
    >>> climbing_stairs(1)
    1
    """
''',
        """    ways, following = 1, 1
    for _ in range(n):
        ways, following = following, ways + following
    return ways
""",
        (
            "assert climbing_stairs(0) == 1",
            "assert climbing_stairs(2) == 2",
            "assert climbing_stairs(4) == 5",
            "assert climbing_stairs(5) == 8",
            "assert climbing_stairs(10) == 89",
            "assert climbing_stairs(45) == 1836311903",
            "assert climbing_stairs(90) == 4660046610375530309",
        ),
    ),
    Item(
        "binary_search",
        '''def binary_search(items, target):
    """Return the index of the first place where the target stands in an ascending list, or -1 if it stands nowhere.

    >>> binary_search([1, 3, 5, 7], 5)
    2
    >>> binary_search([1, 3, 5, 7], 4)
    -1
    """
''',
        """    low, high = 0, len(items)
    while low < high:
        middle = (low + high) // 2
        if items[middle] < target:
            low = middle + 1
        else:
            high = middle
    return low if low < len(items) and items[low] == target else -1
""",
        (
            "assert binary_search([], 3) == -1",
            "assert binary_search([4], 4) == 0",
            "assert binary_search([4], 9) == -1",
            "assert binary_search([4], -9) == -1",
            "assert binary_search([1, 2, 2, 2, 3], 2) == 1",
            "assert binary_search([2, 2, 2, 2], 2) == 0",
            "assert binary_search([-9, -5, -5, 0], -9) == 0",
            "assert binary_search([-9, -5, -5, 0], 0) == 3",
            "assert binary_search([1, 3, 5, 7, 9, 11], 11) == 5",
            "assert binary_search([1, 3, 5, 7, 9, 11], 12) == -1",
            "assert binary_search([1, 2, 4, 4], 4) == 2",
        ),
    ),
    Item(
        "reverse_string",
        '''def reverse_string(text):
    """Return the text from its last character to its first. Every character is kept as it is, blanks too.

    >>> reverse_string("abc")
    'cba'
    >>> reverse_string("Hello")
    'olleH'
    """
''',
        """    return text[::-1]
""",
        (
            "assert reverse_string('') == ''",
            "assert reverse_string('x') == 'x'",
            "assert reverse_string('  ab ') == ' ba  '",
            "assert reverse_string('one two') == 'owt eno'",
            "assert reverse_string('!?.') == '.?!'",
            "assert reverse_string('a\\nb\\n') == '\\nb\\na'",
            "assert reverse_string('Ab1') == '1bA'",
            "assert reverse_string('naïve ß') == 'ß evïan'",
        ),
    ),
    Item(
        "run_lengths",
        '''def run_lengths(text):
    """Return the runs of equal characters of a text, from left to right, as a list of tuples (character, length).

    >>> run_lengths("aab")
    [('a', 2), ('b', 1)]
    >>> run_lengths("xyz")
    [('x', 1), ('y', 1), ('z', 1)]
    """
''',
        """    runs = []
    for char in text:
        if runs and runs[-1][0] == char:
            runs[-1] = (char, runs[-1][1] + 1)
        else:
            runs.append((char, 1))
    return runs
""",
        (
            "assert run_lengths('') == []",
            "assert run_lengths('aba') == [('a', 1), ('b', 1), ('a', 1)]",
            "assert run_lengths('aaaa') == [('a', 4)]",
            "assert run_lengths('aA') == [('a', 1), ('A', 1)]",
            "assert run_lengths('  ..') == [(' ', 2), ('.', 2)]",
            "assert run_lengths('1122211') == [('1', 2), ('2', 3), ('1', 2)]",
            "assert run_lengths('zzzzzzzzzzzz') == [('z', 12)]",
        ),
    ),
    Item(
        "most_frequent",
        '''def most_frequent(items):
    """Return the item that stands most often in a list. If several stand equally often, return the one of them that
    comes first in the list. For an empty list return None.

    >>> most_frequent([1, 2, 2])
    2
    >>> most_frequent(["a", "b", "a", "b", "a"])
    'a'
    """
''',
        """    counts = {}
    for item in items:
        counts[item] = counts.get(item, 0) + 1
    return max(counts, key=counts.get) if counts else None
""",
        (
            "assert most_frequent([]) == None",
            "assert most_frequent([7]) == 7",
            "assert most_frequent([3, 1, 1, 3]) == 3",
            "assert most_frequent([2, 5, 5, 2, 9]) == 2",
            "assert most_frequent([-1, -1, 1]) == -1",
            "assert most_frequent(['b', 'a']) == 'b'",
            "assert most_frequent([0, 0, 0, 4, 4]) == 0",
            "assert most_frequent([9, 8, 7, 7, 8]) == 8",
        ),
    ),
)
