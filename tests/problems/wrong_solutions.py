"""Answers to the built-in problems that look right, pass what the statement shows, and are wrong."""

from __future__ import annotations

WRONG: dict[str, dict[str, str]] = {
    "two_sum": {
        "pairs a number with itself": """
def two_sum(numbers, target):
    for number in numbers:
        if target - number in numbers:
            i, j = numbers.index(number), numbers.index(target - number)
            return (min(i, j), max(i, j))
""",
        "smallest i first": """
def two_sum(numbers, target):
    for i in range(len(numbers)):
        for j in range(i + 1, len(numbers)):
            if numbers[i] + numbers[j] == target:
                return (i, j)
""",
    },
    "is_palindrome": {
        "letters only": """
def is_palindrome(text):
    kept = [c for c in text.lower() if c.isalpha()]
    return kept == kept[::-1]
""",
        "punctuation counts": """
def is_palindrome(text):
    kept = text.lower().replace(" ", "").replace("?", "")
    return kept == kept[::-1]
""",
    },
    "max_subarray": {
        "begins at zero": """
def max_subarray(numbers):
    best = here = 0
    for n in numbers:
        here = max(0, here + n)
        best = max(best, here)
    return best
""",
        "prefix sums in any order": """
def max_subarray(numbers):
    sums = [0]
    for n in numbers:
        sums.append(sums[-1] + n)
    return max(sums) - min(sums)
""",
    },
    "valid_parentheses": {
        "counts only": """
def valid_parentheses(text):
    return all(text.count(a) == text.count(b) for a, b in ("()", "[]", "{}"))
""",
        "each kind apart": """
def valid_parentheses(text):
    kinds, counts = {")": "(", "]": "[", "}": "{"}, {"(": 0, "[": 0, "{": 0}
    for c in text:
        if c in counts:
            counts[c] += 1
        elif c in kinds:
            counts[kinds[c]] -= 1
            if counts[kinds[c]] < 0:
                return False
    return not any(counts.values())
""",
    },
    "merge_sorted_lists": {
        "drops duplicates": """
def merge_sorted_lists(left, right):
    return sorted(set(left) | set(right))
""",
        "forgets the rest of the left": """
def merge_sorted_lists(left, right):
    merged, i = [], 0
    for number in right:
        while i < len(left) and left[i] <= number:
            merged.append(left[i])
            i += 1
        merged.append(number)
    return merged + left[i:i + 1]
""",
    },
    "climbing_stairs": {
        "nothing for no step": """
def climbing_stairs(n):
    a, b = 0, 1
    for _ in range(n):
        a, b = b, a + b
    return b if n else 0
""",
        "as many ways as steps": """
def climbing_stairs(n):
    return n
""",
    },
    "binary_search": {
        "any of equal ones": """
def binary_search(items, target):
    low, high = 0, len(items) - 1
    while low <= high:
        middle = (low + high) // 2
        if items[middle] == target:
            return middle
        if items[middle] < target:
            low = middle + 1
        else:
            high = middle - 1
    return -1
""",
        "never looks at the last": """
def binary_search(items, target):
    low, high = 0, len(items) - 1
    while low < high:
        middle = (low + high) // 2
        if items[middle] < target:
            low = middle + 1
        else:
            high = middle
    return low if low < len(items) - 1 and items[low] == target else -1
""",
    },
    "reverse_string": {
        "words": """
def reverse_string(text):
    return " ".join(word[::-1] for word in text.split())
""",
        "strips": """
def reverse_string(text):
    return text.strip()[::-1]
""",
    },
    "run_lengths": {
        "counts of the whole text": """
def run_lengths(text):
    return [(c, text.count(c)) for c in dict.fromkeys(text)]
""",
        "fails on empty": """
def run_lengths(text):
    runs, n = [], 1
    for a, b in zip(text, text[1:]):
        if a == b:
            n += 1
        else:
            runs.append((a, n))
            n = 1
    return runs + [(text[-1], n)]
""",
    },
    "most_frequent": {
        "the largest of equals": """
def most_frequent(items):
    return max(items, key=lambda item: (items.count(item), item), default=None)
""",
        "the last of equals": """
def most_frequent(items):
    best, most, counts = None, 0, {}
    for item in items:
        counts[item] = counts.get(item, 0) + 1
        if counts[item] >= most:
            best, most = item, counts[item]
    return best
""",
    },
    "merge_ranges": {
        "does not sort": """
def merge_ranges(ranges):
    merged = []
    for first, last in ranges:
        if merged and first <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], last))
        else:
            merged.append((first, last))
    return merged
""",
        "takes the last end": """
def merge_ranges(ranges):
    merged = []
    for first, last in sorted(ranges):
        if merged and first <= merged[-1][1]:
            merged[-1] = (merged[-1][0], last)
        else:
            merged.append((first, last))
    return merged
""",
    },
    "compare_versions": {
        "as text": """
def compare_versions(left, right):
    a, b = left.split("."), right.split(".")
    return (a > b) - (a < b)
""",
        "longer is newer": """
def compare_versions(left, right):
    a, b = [list(map(int, v.split("."))) for v in (left, right)]
    return (a > b) - (a < b)
""",
    },
    "longest_distinct": {
        "how many there are": """
def longest_distinct(text):
    return len(set(text))
""",
        "starts again behind the repeat": """
def longest_distinct(text):
    seen, best = set(), 0
    for c in text:
        if c in seen:
            seen = set()
        seen.add(c)
        best = max(best, len(seen))
    return best
""",
    },
    "to_base": {
        "nothing for zero": """
def to_base(number, base):
    digits, sign, number = "", "-" if number < 0 else "", abs(number)
    while number:
        digits = "0123456789abcdef"[number % base] + digits
        number //= base
    return sign + digits
""",
        "never ends below zero": """
def to_base(number, base):
    if number == 0:
        return "0"
    digits = ""
    while number > 0:
        number, digit = divmod(number, base)
        digits = "0123456789abcdef"[digit] + digits
    return digits
""",
    },
    "rotate_in_place": {
        "one by one": """
def rotate_in_place(items, k):
    for _ in range(k):
        items.insert(0, items.pop())
""",
        "fails on empty": """
def rotate_in_place(items, k):
    k %= len(items)
    items[:] = items[-k:] + items[:-k]
""",
    },
    "recent_cache": {
        "holds what was asked for": """
class RecentCache:
    def __init__(self, size):
        self.size, self.values = size, {}

    def put(self, key, value):
        self.values.pop(key, None)
        self.values[key] = value
        if len(self.values) > self.size:
            del self.values[next(iter(self.values))]

    def get(self, key):
        value = self.values.pop(key, None)
        self.values[key] = value
        return value

    def keys(self):
        return list(reversed(self.values))
""",
        "a second put is no use": """
class RecentCache:
    def __init__(self, size):
        self.size, self.values = size, {}

    def put(self, key, value):
        if key not in self.values and len(self.values) == self.size:
            del self.values[next(iter(self.values))]
        self.values[key] = value

    def get(self, key):
        if key in self.values:
            self.values[key] = self.values.pop(key)
            return self.values[key]

    def keys(self):
        return list(reversed(self.values))
""",
    },
    "ledger_totals": {
        "fails on empty lines": """
import sys

totals = {}
for line in sys.stdin:
    name, amount = line.split()
    totals[name] = totals.get(name, 0) + int(amount)
for name in sorted(totals):
    print(f"{name}: {totals[name]}")
""",
        "in the order of the input": """
import sys

totals = {}
for line in sys.stdin:
    if line.strip():
        name, amount = line.split()
        totals[name] = totals.get(name, 0) + int(amount)
for name, total in totals.items():
    print(f"{name}: {total}")
""",
    },
    "column_sums": {
        "no rows, no columns": """
n, m = map(int, input().split())
rows = [list(map(int, input().split())) for _ in range(n)]
print(*[sum(column) for column in zip(*rows)])
""",
        "one digit a number": """
n, m = map(int, input().split())
sums = [0] * m
for _ in range(n):
    for i, digit in enumerate(input().replace(" ", "")):
        sums[i] += int(digit)
print(*sums)
""",
    },
}
"""By problem, then by what is wrong with it."""
