"""The tests that a statement shows: doctest examples, `f(1) == 2` and similar forms, and asserts.

Read with `ast` and never run. An example that cannot be read reliably is left out, since a wrong public test would
reject a right answer. Also left out are examples of statements that call values approximate, in any order, or one of
several (`remarks.py`).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from foretrace.core.problem import Test
from foretrace.core.python_source import try_parse
from foretrace.problems.public_tests import doctests, named_parameters
from foretrace.problems.public_tests.literals import (
    MAX_PIECE,
    find_places,
    is_test,
    read_call_at,
    read_value_at,
    unparse_node,
)
from foretrace.problems.public_tests.remarks import keep_assert, leaves_values_open, make_example_assert

MAX_TEXT = 200_000
"""Most characters of a statement that are read."""
_LEAD = re.compile(
    r"[\s`\"']*+(?:(?:>>>|[*•–-](?=\s)|\(?\d++[.)](?=\s)|#++|assert\b|for\b|e\.g\.|(?:for )?examples?\b|"
    r"for instance\b|test\b|case\b|sample\b)(?:\s*+\d++)?+[:,]?+[\s`]*+)*+",
    re.IGNORECASE,
)
"""What may precede a call. No words except these: `wrong: f(1) == 2` and `unless f(1) == 2` mean something else."""
_SIGN = re.compile(
    r"[`\s]*+(?P<hash>#++\s*+)?(?:(?P<sign>==?=?>|===?|--?>|➞|→|⟶|⇒|↦|⟹|(?:should |must |will )?returns?\b:?+|gives\b|"
    r"(?:should |must )be\b|=)|(?(hash)|(?!)))[`\s]*+(?:#\s*+)?+"
)
_TAIL = re.compile(r"[`\s]*+(?:[.,;]?+[`\s]*+(?:#.*)?|(?<=\s)\(\s*[A-Za-z].*)")
"""What may follow a value: nothing, a full stop, a comment, or a remark in brackets."""
_DOCSTRING_END = re.compile(r"(\"\"\"|''')\s*$")


class _Example(NamedTuple):
    """A call, a sign, a value."""

    at: int
    sign: str
    call: ast.expr
    value: ast.expr


def extract_public_tests(text: str, entry_point: str | None, *, code: str = "") -> tuple[Test, ...]:
    """The examples of `entry_point` in `text`, in order, each as `assert f(1) == 2`.

    `code` defines the entry point if the text does not. Its parameters are needed to read examples that name them (`For
    n = 3 the output should be 5`). A program has no entry point, and gives no tests.
    """
    if not entry_point or not entry_point.isidentifier():
        return ()
    text = text[:MAX_TEXT].replace("\r\n", "\n")
    found: list[tuple[int, str]] = []
    is_open = leaves_values_open(text)
    sessions, rest = doctests.find_sessions(text)
    for session in sessions:
        found += doctests.make_tests(session, entry_point, is_open)
    found += _find_asserts(rest, entry_point, is_open)
    shown = _remove_counts(_remove_formulas(list(_find_examples(rest, entry_point)), rest, entry_point))
    found += [(example.at, make_example_assert(example.call, example.value, is_open)) for example in shown]
    if not is_open:
        found += named_parameters.find_tests(rest, entry_point, code or text)
    return _make_tests([code for _, code in sorted(found, key=lambda pair: pair[0]) if code])


def _make_tests(codes: list[str]) -> tuple[Test, ...]:
    """Make tests, without repeats and without examples that contradict one another."""
    values: dict[str, set[str]] = {}
    for code in codes:
        call, _, value = code.partition(" == ")
        values.setdefault(call, set()).add(value)
    return tuple(Test(code=code) for code in dict.fromkeys(codes) if len(values[code.partition(" == ")[0]]) == 1)


def _find_examples(text: str, name: str) -> Iterator[_Example]:
    """`f(1) == 2` and similar forms: a call, a sign, a value, and nothing else on the line."""
    for match in find_places(rf"(?<![\w.]){re.escape(name)}\(", text):
        line_start = text.rfind("\n", 0, match.start()) + 1
        call = read_call_at(text, match.start(), name) if _LEAD.fullmatch(text, line_start, match.start()) else None
        sign = _SIGN.match(text, call.end) if call else None
        if call is None or sign is None or "\n" in sign[0].rstrip():
            continue
        line = _DOCSTRING_END.sub("", text[sign.end() :].partition("\n")[0])
        value = read_value_at(line)
        if value is not None and _TAIL.fullmatch(line, value.end):
            yield _Example(match.start(), sign["sign"] or "#", call.node, value.node)


def _remove_formulas(examples: list[_Example], text: str, name: str) -> list[_Example]:
    """Remove examples with a plain `=` if the text defines a formula such as `f(n) = f(n - 1) + 2`: then `f(1) = 3` is
    about a mathematical function rather than the Python function."""
    variable = r"[^()\"'\n]*\b(?!True\b|False\b|None\b)[A-Za-z_][^()\"'\n]*"
    formula = re.search(rf"(?<![\w.]){re.escape(name)}\({variable}\)\s*=(?![=>])", text)
    return [e for e in examples if e.sign != "=" or not formula]


def _remove_counts(examples: list[_Example]) -> list[_Example]:
    """Remove `f(4)  # 1`, `f(9)  # 2`, since these may be values or just numbers of the examples."""
    values = [unparse_node(e.value) for e in examples if e.sign == "#"]
    counts = values in ([str(n) for n in range(first, first + len(values))] for first in (0, 1))
    return [e for e in examples if e.sign != "#" or not counts]


def _find_asserts(text: str, name: str, is_open: bool) -> Iterator[tuple[int, str]]:
    """`assert` statements, including multi-line ones."""
    for match in find_places(r"(?m)^[ \t>*`-]*+(?=assert[ (])", text):
        lines = text[match.end() : match.end() + MAX_PIECE].split("\n")[:20]
        for count in range(1, len(lines) + 1):
            code = "\n".join(lines[:count]).rstrip("` ")
            tree = try_parse(code)
            if tree is None:
                continue
            node = tree.body[0]
            if isinstance(node, ast.Assert) and len(tree.body) == 1 and is_test(node.test, name):
                yield match.end(), keep_assert(node.test, is_open)
            break
