"""Statements that call the values of their examples approximate, in any order, or one of several."""

from __future__ import annotations

import ast
import re

from foretrace.problems.public_tests.literals import is_literal, make_assert

_OPEN = re.compile(
    r"(?:\b(?:return|output|print|answer|result)\w*\b(?:(?!given|come|input)[^.\n]){0,99}?|[#(][^.\n]{0,60}?)"
    r"\b(?:any|arbitrary|whatever|no particular)\s+order\b|\border\s+(?:may|might|can)\s+(?:vary|differ)\b"
    r"|\border\b[^.\n]{0,40}(?:\bnot|n't)\s+(?:matter|important|relevant|fixed)\b|\bun-?ordered\b"
    r"|\b(?:regardless|irrespective)\s+of\s+(?:the\s+)?order\b|[≈≃±~]|\bapprox|\bwithin\s+(?:10|1e-|0?\.0)"
    r"|\b(?:one|another|other|also\s+an?|any|several|multiple)\s+(?:of\s+)?(?:the\s+)?(?:possible|valid|correct)\b"
    r"|\b(?:return|print|output)\s+any\s+(?:one\s+)?of\b|^[ \t]*or\s*[\[{(]"
    r"|[#(]\s*(?:or\b|random|(?:about|roughly)\s*$)|\(e\.g\.\)|\+SKIP\b|\+ELLIPSIS\b",
    re.IGNORECASE | re.MULTILINE,
)
_STRING = re.compile(r"(?<!\w)(?:\"(?:[^\"\\\n]|\\.)*+\"|'(?:[^'\\\n]|\\.)*+')")


def leaves_values_open(text: str) -> bool:
    """Whether a statement says, outside strings, that values other than those it shows may be right. Then none of them
    is a test: a wrong test would reject right answers, while a missing one does no harm."""
    return _OPEN.search(_STRING.sub("", text)) is not None


def make_example_assert(call: ast.expr, value: ast.expr, is_open: bool) -> str:
    """`assert call == value`; empty if other values may be right as well."""
    return "" if is_open or _is_abridged(call, value) else make_assert(ast.Compare(call, [ast.Eq()], [value]))


def keep_assert(test: ast.expr, is_open: bool) -> str:
    """The assert of a test that the statement spells out. Tests other than `call == value` are taken as they are."""
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.Eq):
        call, value = test.left, test.comparators[0]
        if isinstance(value, ast.Call) and is_literal(call):
            call, value = value, call
        plain = isinstance(call, ast.Call) and all(is_literal(arg) for arg in call.args)
        if is_literal(value) and (plain or _is_abridged(call, value)):
            return make_example_assert(call, value, is_open)
    return make_assert(test)


def _is_abridged(call: ast.expr, value: ast.expr) -> bool:
    """Whether a part of an example is left out: `[1, 2, ...]`, or `'abcabc...'` if no argument begins with that."""
    if any(isinstance(n, ast.Constant) and n.value is ... for part in (call, value) for n in ast.walk(part)):
        return True
    given = [n.value for n in ast.walk(call) if isinstance(n, ast.Constant) and isinstance(n.value, str)]
    for node in ast.walk(value):
        text = node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
        before, dots, _ = text.replace("…", "...").partition("...")
        if dots and not any("..." in one or "…" in one or one.startswith(before.rstrip()) for one in given):
            return True
    return False
