"""Examples in the form of an interpreter session: `>>> f(1)`, followed by its output."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from typing import NamedTuple

from foretrace.core.python_source import try_parse
from foretrace.problems.public_tests.literals import (
    HELPERS,
    MAX_PIECE,
    is_test,
    keep_assert,
    make_example_assert,
    read_value,
    unparse_node,
)

_INPUT = re.compile(r"([ \t]*)>>>(?: (.*))?")
_END = re.compile(r"[ \t]*(?:\"\"\"|'''|```)")
_CLOSING = re.compile(r"\s*(?:\"\"\"|''')\s*$")
_UNSAFE = (ast.Lambda, ast.Await, ast.Yield, ast.YieldFrom, ast.NamedExpr, ast.comprehension)


class Line(NamedTuple):
    """One input of a session, and its output."""

    at: int
    """Its position in the text."""
    node: ast.stmt
    output: str
    silent: bool
    """Whether it gave `None`: it is followed by a blank line and another input."""


def find_sessions(text: str) -> tuple[list[list[Line]], str]:
    """The sessions of a text, and the text with blanks in their place.

    A session ends at a line that is neither an input nor an output; it continues over blank lines.
    """
    lines = text.split("\n")
    rest = list(lines)
    found: list[list[Line]] = []
    number, at, going_on = 0, 0, False
    while number < len(lines):
        after, entry = _read_entry(lines, number, at)
        if entry is not None:
            if not going_on:
                found.append([])
            found[-1].append(entry)
            rest[number:after] = [" " * len(line) for line in lines[number:after]]
            going_on = True
        elif lines[number].strip():
            going_on = False
        at += sum(len(line) + 1 for line in lines[number:after])
        number = after
    return found, "\n".join(rest)


def _read_entry(lines: Sequence[str], number: int, at: int) -> tuple[int, Line | None]:
    """The number of the next line, and the input at line `number`; `None` if no input can be read there."""
    first = _INPUT.fullmatch(lines[number])
    if first is None:
        return number + 1, None
    code, after = [first[2] or ""], number + 1
    while after < len(lines) and lines[after].lstrip().startswith("... "):
        code.append(lines[after].lstrip()[4:])
        after += 1
    node = _parse_statement("\n".join(code))
    closed = node is None
    if node is None:  # the docstring may end on this line
        node = _parse_statement(_CLOSING.sub("", "\n".join(code)))
    if node is None:
        return number + 1, None
    output: list[str] = []
    while not closed and after < len(lines) and lines[after].strip():
        line = lines[after]
        if _INPUT.fullmatch(line) or _END.match(line):
            break
        after += 1
        closed = bool(_CLOSING.search(line))
        output.append(_CLOSING.sub("", line).strip())
    following = next((line for line in lines[after : after + 3] if line.strip()), "")
    blank = after < len(lines) and not lines[after].strip()
    silent = not output and blank and bool(_INPUT.fullmatch(following))
    return after, Line(at, node, "\n".join(output), silent)


def _parse_statement(code: str) -> ast.stmt | None:
    tree = None if "\\\\" in code or len(code) > MAX_PIECE else try_parse(code)
    return tree.body[0] if tree is not None and len(tree.body) == 1 else None


def make_tests(session: Sequence[Line], name: str, is_open: bool) -> list[tuple[int, str]]:
    """Positions and tests: one test per input, or one for the whole session if its inputs depend on one another."""
    if all(isinstance(line.node, ast.Expr) for line in session):
        return [(line.at, _make_single_test(line, name, is_open)) for line in session]
    return [(session[0].at, _make_joint_test(session, name, is_open))]


def _make_single_test(line: Line, name: str, is_open: bool) -> str:
    """The test of an independent input; empty if it cannot be read reliably."""
    node = line.node.value if isinstance(line.node, ast.Expr) else None
    if node is None or not is_test(node, name):
        return ""
    if isinstance(node, ast.Compare):
        return keep_assert(node, is_open) if line.output in ("", "True") else ""
    value = ast.Constant(None) if line.silent else read_value(line.output)
    return make_example_assert(node, value, is_open) if isinstance(node, ast.Call) and value is not None else ""


def _make_joint_test(session: Sequence[Line], name: str, is_open: bool) -> str:
    """Inputs that depend on one another, as one test: assignments and calls unchanged, and an assert for each output.

    Empty if any of them cannot be read reliably, or nothing is asserted.
    """
    known = {name, *HELPERS}
    code: list[str] = []
    used: set[str] = set()
    for line in session:
        step, names = _make_step(line, known, is_open), {n.id for n in ast.walk(line.node) if isinstance(n, ast.Name)}
        if not step:
            return ""
        used |= names
        known |= names
        code.append(step)
    return "\n".join(code) if name in used and any(step.startswith("assert ") for step in code) else ""


def _make_step(line: Line, known: set[str], is_open: bool) -> str:
    """One input of such a session as code; empty if it does anything other than use known names."""
    node = line.node
    if isinstance(node, ast.Assign):
        target = node.targets[0]
        plain = len(node.targets) == 1 and isinstance(target, ast.Name) and not line.output
        return unparse_node(node) if plain and _is_plain(node.value, known) else ""
    if not isinstance(node, ast.Expr) or not _is_plain(node.value, known):
        return ""
    if isinstance(node.value, ast.Compare):
        return keep_assert(node.value, is_open) if line.output in ("", "True") else ""
    if not line.output or is_open:
        return unparse_node(node)
    value = read_value(line.output)
    return make_example_assert(node.value, value, is_open) if value is not None else ""


def _is_plain(value: ast.expr, known: set[str]) -> bool:
    return not any(
        isinstance(part, _UNSAFE)
        or (isinstance(part, ast.Name) and part.id not in known)
        or (isinstance(part, ast.Attribute) and part.attr.startswith("_"))
        for part in ast.walk(value)
    )
