"""Read calls and values from prose, and write them as asserts. They are parsed with `ast`, and never run."""

from __future__ import annotations

import ast
import contextlib
import itertools
import re
from collections.abc import Iterator
from typing import NamedTuple

from foretrace.core.python_source import PARSE_ERRORS, try_parse

MAX_PIECE = 8_000
"""Most characters of one call, value or assert."""
MAX_PLACES = 400
"""Most places of one kind in a text that are read."""
HELPERS = frozenset(
    {"abs", "all", "any", "bool", "dict", "float", "frozenset", "int", "isinstance", "len", "list", "max", "min"}
    | {"next", "range", "repr", "reversed", "round", "set", "sorted", "str", "sum", "tuple", "type"}
)
"""Built-in functions that a test may call besides the one it tests."""
_CLOSING = {"(": ")", "[": "]", "{": "}"}
_WORDS = {"true": "True", "false": "False"}
"""Values as written in other languages. Not `null` and `none`, which have many other meanings."""
_NUMBER = re.compile(r"[-+]?[\w.]+(?:(?<=\de)[-+]\d+)?")
_STRING = re.compile(r"[rbuRBU]?(?:\"(?:[^\"\\\n]|\\.)*+\"|'(?:[^'\\\n]|\\.)*+')")
_NOT_SURE = re.compile(r"`|\\\\")
"""A backtick may be Markdown; two backslashes may mean one if the text was a docstring."""
_SHAPES = (
    *(ast.Call, ast.keyword, ast.Constant, ast.List, ast.Tuple, ast.Set, ast.Dict, ast.Compare, ast.cmpop),
    *(ast.UnaryOp, ast.unaryop, ast.BinOp, ast.operator, ast.Subscript, ast.Slice, ast.expr_context),
)
"""What a test may consist of, besides names."""

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
_QUOTED = re.compile(r"(?<!\w)(?:\"(?:[^\"\\\n]|\\.)*+\"|'(?:[^'\\\n]|\\.)*+')")


class Piece(NamedTuple):
    """A piece of a text that is Python."""

    node: ast.expr
    end: int
    """Its end in the text in which it was found."""


def find_places(pattern: str, text: str) -> Iterator[re.Match[str]]:
    """The first MAX_PLACES matches in a text."""
    return itertools.islice(re.finditer(pattern, text), MAX_PLACES)


def is_literal(node: ast.expr) -> bool:
    """Whether the expression is a literal, such as `[1, "a"]`."""
    with contextlib.suppress(TypeError, *PARSE_ERRORS):
        ast.literal_eval(node)
        return True
    return False


def read_value(text: str) -> ast.expr | None:
    """The expression of a text that is a single literal; `None` if it is not, or may be something else."""
    node = None if _NOT_SURE.search(text) else _parse_expression(text.strip())
    return node if node is not None and is_literal(node) else None


def read_call_at(text: str, begin: int, name: str) -> Piece | None:
    """The call of `name` that begins at `begin`, with literal arguments; it may span several lines."""
    end = _find_closing_bracket(text, begin + len(name))
    call = _parse_expression(text[begin:end]) if end else None
    if not isinstance(call, ast.Call) or _NOT_SURE.search(text, begin, end):
        return None
    given = [*call.args, *(keyword.value for keyword in call.keywords)]
    named = all(keyword.arg for keyword in call.keywords)
    return Piece(call, end) if named and all(is_literal(node) for node in given) else None


def read_value_at(line: str, begin: int = 0) -> Piece | None:
    """The longest value that begins at `begin`, after blanks.

    `("x")` is not read as a value: some authors mean a tuple.
    """
    while begin < len(line) and line[begin] in " \t`":
        begin += 1
    if line[begin : begin + 1] in _CLOSING:
        end = _find_closing_bracket(line, begin)
    else:
        match = _STRING.match(line, begin) or _NUMBER.match(line, begin)
        end = match.end() if match else 0
        while end > begin and line[end - 1] == ".":
            end -= 1
    piece = line[begin:end]
    node = read_value(_WORDS.get(piece, piece)) if piece else None
    if node is None or (piece[0] == "(" and not isinstance(node, ast.Tuple)):
        return None
    return Piece(node, end)


def _parse_expression(code: str) -> ast.expr | None:
    tree = try_parse(code, "eval") if len(code) <= MAX_PIECE else None
    return None if tree is None else tree.body


def _find_closing_bracket(text: str, begin: int) -> int:
    """The end of the bracket that opens at `begin`; 0 if it is not closed within MAX_PIECE characters."""
    closing: list[str] = []
    at, limit = begin, min(len(text), begin + MAX_PIECE)
    while at < limit:
        char = text[at]
        if char in "\"'":
            string = _STRING.match(text, at, limit)
            if string is None:
                return 0
            at = string.end()
            continue
        at += 1
        if char in _CLOSING:
            closing.append(_CLOSING[char])
        elif char in ")]}":
            if not closing or closing.pop() != char:
                return 0
            if not closing:
                return at
    return 0


def is_test(node: ast.expr, name: str) -> bool:
    """Whether an expression is clearly a test: it calls `name`, and otherwise has only values and built-ins."""
    called = False
    for part in ast.walk(node):
        if isinstance(part, ast.Name):
            called = called or part.id == name
            if part.id != name and part.id not in HELPERS:
                return False
        elif not isinstance(part, _SHAPES):
            return False
    return called


def make_assert(node: ast.expr) -> str:
    """`assert node` on one line in canonical form; empty if it cannot be written."""
    code = unparse_node(node)
    return f"assert {code}" if code else ""


def unparse_node(node: ast.AST) -> str:
    """The code of a node; empty if it cannot be written."""
    try:
        return ast.unparse(node)
    except (ValueError, RecursionError, MemoryError):
        return ""


# Statements that call the values of their examples approximate, in any order, or one of several.


def leaves_values_open(text: str) -> bool:
    """Whether a statement says, outside strings, that values other than those it shows may be right. Then none of them
    is a test: a wrong test would reject right answers, while a missing one does no harm."""
    return _OPEN.search(_QUOTED.sub("", text)) is not None


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
        if is_literal(value) and plain:
            return make_example_assert(call, value, is_open)
    return make_assert(test)


def _is_abridged(*parts: ast.expr) -> bool:
    """Whether a part of an example is left out: `[1, 2, ...]`."""
    return any(isinstance(n, ast.Constant) and n.value is ... for part in parts for n in ast.walk(part))
