"""The second half of the built-in problems: numbers, ranges, a change in place, a class and programs."""

from __future__ import annotations

from foretrace.problems.builtin_tasks.lists_and_texts import Item

NUMBERS_AND_RANGES = (
    Item(
        "merge_ranges",
        '''def merge_ranges(ranges):
    """Join ranges that overlap or touch. Each is a tuple (first, last) of integers with first <= last, both included;
    (1, 3) and (3, 5) touch, and (1, 3) and (4, 5) do not. They come in any order. Return the joined ranges, ascending.

    >>> merge_ranges([(1, 3), (2, 6), (8, 9)])
    [(1, 6), (8, 9)]
    >>> merge_ranges([(1, 2), (5, 6)])
    [(1, 2), (5, 6)]
    """
''',
        """    merged = []
    for first, last in sorted(ranges):
        if merged and first <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], last))
        else:
            merged.append((first, last))
    return merged
""",
        (
            "assert merge_ranges([]) == []",
            "assert merge_ranges([(4, 4)]) == [(4, 4)]",
            "assert merge_ranges([(1, 3), (3, 5)]) == [(1, 5)]",
            "assert merge_ranges([(1, 3), (4, 5)]) == [(1, 3), (4, 5)]",
            "assert merge_ranges([(1, 10), (2, 3)]) == [(1, 10)]",
            "assert merge_ranges([(6, 8), (-4, -1), (-2, 7)]) == [(-4, 8)]",
            "assert merge_ranges([(2, 3), (2, 3), (2, 2)]) == [(2, 3)]",
            "assert merge_ranges([(1, 10), (2, 3), (9, 12)]) == [(1, 12)]",
            "assert merge_ranges([(5, 6), (1, 2)]) == [(1, 2), (5, 6)]",
        ),
    ),
    Item(
        "compare_versions",
        '''def compare_versions(left, right):
    """Compare two versions, which are whole numbers joined by dots. Return -1 if the left one is older, 1 if it is
    newer, and 0 if they are equal. The numbers are compared as numbers, from the first to the last; a number that is
    missing at the end counts as 0.

    >>> compare_versions("1.2", "1.3")
    -1
    >>> compare_versions("2.0", "1.9")
    1
    >>> compare_versions("1.5", "1.5")
    0
    """
''',
        """    a = [int(part) for part in left.split(".")]
    b = [int(part) for part in right.split(".")]
    size = max(len(a), len(b))
    a += [0] * (size - len(a))
    b += [0] * (size - len(b))
    return (a > b) - (a < b)
""",
        (
            "assert compare_versions('1.10', '1.9') == 1",
            "assert compare_versions('1.0', '1') == 0",
            "assert compare_versions('1', '1.0.1') == -1",
            "assert compare_versions('1.01', '1.1') == 0",
            "assert compare_versions('10', '9.9.9') == 1",
            "assert compare_versions('0', '0.0.0') == 0",
            "assert compare_versions('2.1.0', '2.0.9') == 1",
            "assert compare_versions('1.2.3', '1.2') == 1",
        ),
    ),
    Item(
        "longest_distinct",
        '''def longest_distinct(text):
    """Return the length of the longest run of neighbouring characters of a text in which no character stands twice.

    >>> longest_distinct("abcb")
    3
    >>> longest_distinct("zzz")
    1
    """
''',
        """    last, begin, best = {}, 0, 0
    for index, char in enumerate(text):
        begin = max(begin, last.get(char, -1) + 1)
        last[char] = index
        best = max(best, index - begin + 1)
    return best
""",
        (
            "assert longest_distinct('') == 0",
            "assert longest_distinct(' ') == 1",
            "assert longest_distinct('abba') == 2",
            "assert longest_distinct('dvdf') == 3",
            "assert longest_distinct('abcabcdb') == 4",
            "assert longest_distinct('pwwkew') == 3",
            "assert longest_distinct('tmmzuxt') == 5",
            "assert longest_distinct('aA.a!') == 4",
            "assert longest_distinct('abcdef') == 6",
        ),
    ),
    Item(
        "to_base",
        '''def to_base(number, base):
    """Write an integer in a base from 2 to 16, with the digits 0123456789abcdef. A negative number begins with a minus
    sign; there are no zeros in front.

    >>> to_base(10, 2)
    '1010'
    >>> to_base(255, 16)
    'ff'
    """
''',
        """    if number == 0:
        return "0"
    digits, rest = "", abs(number)
    while rest:
        rest, digit = divmod(rest, base)
        digits = "0123456789abcdef"[digit] + digits
    return "-" + digits if number < 0 else digits
""",
        (
            "assert to_base(0, 2) == '0'",
            "assert to_base(-10, 2) == '-1010'",
            "assert to_base(-1, 16) == '-1'",
            "assert to_base(16, 16) == '10'",
            "assert to_base(7, 8) == '7'",
            "assert to_base(8, 3) == '22'",
            "assert to_base(171, 12) == '123'",
            "assert to_base(1000000000000000000000000000007, 10) == '1000000000000000000000000000007'",
        ),
    ),
    Item(
        "rotate_in_place",
        '''def rotate_in_place(items, k):
    """Move every item of a list k places to the right, those at the end to its beginning. Change the list itself and
    return None. k may be larger than the list is long; a negative k moves to the left.

    >>> numbers = [1, 2, 3, 4]
    >>> rotate_in_place(numbers, 1)
    >>> numbers
    [4, 1, 2, 3]
    """
''',
        """    if items:
        cut = -k % len(items)
        items[:] = items[cut:] + items[:cut]
""",
        (
            "a = []\nrotate_in_place(a, 3)\nassert a == []",
            "a = [1]\nrotate_in_place(a, 5)\nassert a == [1]",
            "a = [1, 2, 3]\nrotate_in_place(a, 0)\nassert a == [1, 2, 3]",
            "a = [1, 2, 3]\nrotate_in_place(a, 7)\nassert a == [3, 1, 2]",
            "a = [1, 2, 3]\nrotate_in_place(a, -1)\nassert a == [2, 3, 1]",
            "a = [1, 2, 3]\nrotate_in_place(a, -5)\nassert a == [3, 1, 2]",
            "a = [1, 1, 2, 2]\nrotate_in_place(a, 2)\nassert a == [2, 2, 1, 1]",
            "a = [1, 2]\nrotate_in_place(a, 2)\nassert a == [1, 2]",
        ),
    ),
    Item(
        "recent_cache",
        '''class RecentCache:
    """A cache that holds at most `size` keys (at least one) and forgets the one that was not used for longest.

    `put(key, value)` stores a value, in place of an older one of the same key. `get(key)` returns it, or None if the
    key is not held. Both count as a use of the key, except a `get` of a key that is not held. `keys()` returns the
    keys as a list, from the one that was used last to the one that was not used for longest, and is no use of any.

    >>> cache = RecentCache(2)
    >>> cache.put("a", 1)
    >>> cache.put("b", 2)
    >>> cache.get("a")
    1
    >>> cache.put("c", 3)
    >>> cache.keys()
    ['c', 'a']
    """
''',
        """
    def __init__(self, size):
        self.size = size
        self.values = {}

    def put(self, key, value):
        self.values.pop(key, None)
        self.values[key] = value
        if len(self.values) > self.size:
            del self.values[next(iter(self.values))]

    def get(self, key):
        if key not in self.values:
            return None
        self.values[key] = self.values.pop(key)
        return self.values[key]

    def keys(self):
        return list(reversed(self.values))
""",
        (
            "c = RecentCache(1)\nc.put('a', 1)\nc.put('b', 2)\nassert c.get('a') == None\nassert c.get('b') == 2",
            "c = RecentCache(3)\nassert c.keys() == []\nassert c.get('x') == None",
            "c = RecentCache(2)\nc.put('a', 1)\nc.put('b', 2)\nc.put('a', 3)\nc.put('c', 4)\n"
            "assert c.get('b') == None\nassert c.get('a') == 3",
            "c = RecentCache(2)\nc.put('a', 1)\nc.put('a', 2)\nc.put('b', 3)\nassert c.keys() == ['b', 'a']\n"
            "assert c.get('a') == 2",
            "c = RecentCache(2)\nc.put(0, 0)\nc.put(1, 1)\nassert c.get(0) == 0\nc.put(2, 2)\n"
            "assert c.keys() == [2, 0]",
            "c = RecentCache(2)\nc.put('a', 1)\nc.put('b', 2)\nassert c.get('z') == None\nc.keys()\nc.put('c', 3)\n"
            "assert c.keys() == ['c', 'b']",
            "c = RecentCache(2)\nd = RecentCache(2)\nc.put('a', 1)\nassert d.get('a') == None\nassert c.get('a') == 1",
        ),
    ),
)
PROGRAMS = (
    Item(
        "ledger_totals",
        """Write a program that adds up a ledger.

Each line of the input is a name, one or more blanks, and a whole number, which may be negative. Empty lines do not
count. For each name print one line, `name: total`, in the alphabetical order of the names. An empty input prints
nothing.

For example, for the input

    ann 5
    bob 2
    ann 1

it prints

    ann: 6
    bob: 2
""",
        """import sys

totals = {}
for line in sys.stdin:
    if line.strip():
        name, amount = line.split()
        totals[name] = totals.get(name, 0) + int(amount)
for name in sorted(totals):
    print(f"{name}: {totals[name]}")
""",
        (
            *("", ""),
            *("zoe -4\n", "zoe: -4\n"),
            *("b 1\n\na 2\n\n\nb -1\n", "a: 2\nb: 0\n"),
            *("x   10\ny 20\nx 30", "x: 40\ny: 20\n"),
            *("k 9999999999\nk 1\n", "k: 10000000000\n"),
            *("c 1\nb 1\na 1\n", "a: 1\nb: 1\nc: 1\n"),
            *("\n\n", ""),
        ),
        ("ann 5\nbob 2\nann 1\n", "ann: 6\nbob: 2\n"),
    ),
    Item(
        "column_sums",
        """Write a program that adds up the columns of a table.

The first line of the input holds two whole numbers, the number of rows and the number of columns (at least one). Then
each row follows on a line of its own, as whole numbers with blanks between them. Print the sums of the columns on one
line, with one blank between them. A table without rows has the sum 0 in each column.

For example, for the input

    2 3
    1 2 3
    4 5 6

it prints

    5 7 9
""",
        """rows, columns = map(int, input().split())
sums = [0] * columns
for _ in range(rows):
    for column, number in enumerate(map(int, input().split())):
        sums[column] += number
print(*sums)
""",
        (
            *("0 2\n", "0 0\n"),
            *("1 1\n-7\n", "-7\n"),
            *("3 2\n1 -1\n2 -2\n3 -3\n", "6 -6\n"),
            *("2 2\n10  20\n 1 2 \n", "11 22\n"),
            *("2 3\n5 5 5\n5 5 5", "10 10 10\n"),
            *("3 1\n1\n1\n1\n", "3\n"),
        ),
        ("2 3\n1 2 3\n4 5 6\n", "5 7 9\n"),
    ),
)
