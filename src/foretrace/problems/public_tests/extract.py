"""The tests that a statement shows: doctest examples, `f(1) == 2` and similar forms, and asserts.

Read with `ast` and never run. An example that cannot be read reliably is left out, since a wrong public test would
reject a right answer. Also left out are examples of statements that call values approximate, in any order, or one of
several.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from foretrace.core.problem import Test
from foretrace.core.python_source import try_parse
from foretrace.problems.public_tests.literals import (
    HELPERS,
    MAX_PIECE,
    find_places,
    is_test,
    keep_assert,
    leaves_values_open,
    make_example_assert,
    read_call_at,
    read_value,
    read_value_at,
    unparse_node,
)

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
    sessions, rest = _find_sessions(text)
    for session in sessions:
        found += _make_session_tests(session, entry_point, is_open)
    found += _find_asserts(rest, entry_point, is_open)
    shown = _remove_formulas(list(_find_examples(rest, entry_point)), rest, entry_point)
    found += [(example.at, make_example_assert(example.call, example.value, is_open)) for example in shown]
    if not is_open:
        found += _find_named_tests(rest, entry_point, code or text)
    codes = [code for _, code in sorted(found, key=lambda pair: pair[0]) if code]
    calls = Counter(code.partition(" == ")[0] for code in {*codes})  # examples that contradict each other prove nothing
    return tuple(Test(code=code) for code in dict.fromkeys(codes) if calls[code.partition(" == ")[0]] == 1)


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


# Sessions of an interpreter: `>>> f(1)`, followed by its output.

_PROMPT = re.compile(r"([ \t]*)>>>(?: (.*))?")
_BLOCK_END = re.compile(r"[ \t]*(?:\"\"\"|'''|```)")
_CLOSING = re.compile(r"\s*(?:\"\"\"|''')\s*$")
_UNSAFE = (ast.Lambda, ast.Await, ast.Yield, ast.YieldFrom, ast.NamedExpr, ast.comprehension)


class _Line(NamedTuple):
    """One input of a session, and its output."""

    at: int
    """Its position in the text."""
    node: ast.stmt
    output: str
    silent: bool
    """Whether it gave `None`: it is followed by a blank line and another input."""


def _find_sessions(text: str) -> tuple[list[list[_Line]], str]:
    """The sessions of a text, and the text with blanks in their place.

    A session ends at a line that is neither an input nor an output; it continues over blank lines.
    """
    lines = text.split("\n")
    rest = list(lines)
    found: list[list[_Line]] = []
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


def _read_entry(lines: Sequence[str], number: int, at: int) -> tuple[int, _Line | None]:
    """The number of the next line, and the input at line `number`; `None` if no input can be read there."""
    first = _PROMPT.fullmatch(lines[number])
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
        if _PROMPT.fullmatch(line) or _BLOCK_END.match(line):
            break
        after += 1
        closed = bool(_CLOSING.search(line))
        output.append(_CLOSING.sub("", line).strip())
    following = next((line for line in lines[after : after + 3] if line.strip()), "")
    blank = after < len(lines) and not lines[after].strip()
    silent = not output and blank and bool(_PROMPT.fullmatch(following))
    return after, _Line(at, node, "\n".join(output), silent)


def _parse_statement(code: str) -> ast.stmt | None:
    tree = None if "\\\\" in code or len(code) > MAX_PIECE else try_parse(code)
    return tree.body[0] if tree is not None and len(tree.body) == 1 else None


def _make_session_tests(session: Sequence[_Line], name: str, is_open: bool) -> list[tuple[int, str]]:
    """Positions and tests: one test per input, or one for the whole session if its inputs depend on one another."""
    if all(isinstance(line.node, ast.Expr) for line in session):
        return [(line.at, _make_single_test(line, name, is_open)) for line in session]
    return [(session[0].at, _make_joint_test(session, name, is_open))]


def _make_single_test(line: _Line, name: str, is_open: bool) -> str:
    """The test of an independent input; empty if it cannot be read reliably."""
    node = line.node.value if isinstance(line.node, ast.Expr) else None
    if node is None or not is_test(node, name):
        return ""
    if isinstance(node, ast.Compare):
        return keep_assert(node, is_open) if line.output in ("", "True") else ""
    value = ast.Constant(None) if line.silent else read_value(line.output)
    return make_example_assert(node, value, is_open) if isinstance(node, ast.Call) and value is not None else ""


def _make_joint_test(session: Sequence[_Line], name: str, is_open: bool) -> str:
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


def _make_step(line: _Line, known: set[str], is_open: bool) -> str:
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


# Examples that name the parameters: `For n = 3 the output should be 5`, or `Input: n = 3` followed by `Output: 5`.

_FOR = r"(?m)^[ \t*•-]*+(?:For|If|With|Given)\s++(?=\w+\s*=)"
_SHOULD = re.compile(
    r"[\s,]*+(?:then\s++)?(?:the\s++)?(?:output|result|answer|return value|function)\s++(?:should|must|will)\s++"
    r"(?:be|return)\b[\s:]*+"
)
_INPUT = r"(?m)^[ \t*•-]*+Inputs?\s*+:"
_OUTPUT = re.compile(r"[ \t]*+\n[ \t*•-]*+Outputs?\s*+:")
_NAME = re.compile(r"[\s,;]*+(?:and\s++)?([A-Za-z_]\w*+)\s*+[=:](?!=)")
_ARGUMENT_TAIL = re.compile(r"\s*+[.,;]?+\s*+(?:#.*)?")


def _find_named_tests(text: str, name: str, code: str) -> Iterator[tuple[int, str]]:
    """Positions and tests. `code` has the definition, whose parameters must be exactly the names."""
    parameters = _find_parameters(code, name)
    if not parameters:
        return
    for begin, middle in ((_FOR, _SHOULD), (_INPUT, _OUTPUT)):
        for match in find_places(begin, text):
            given, at = _read_arguments(text, match.end(), parameters, bare=begin is _INPUT)
            result = middle.match(text, at)
            if result is None or set(given) != set(parameters):
                continue
            line = text[result.end() :].partition("\n")[0]
            value = read_value_at(line)
            if value is not None and _ARGUMENT_TAIL.fullmatch(line, value.end):
                call = ast.Call(ast.Name(name), [given[p] for p in parameters], [])
                yield match.start(), make_example_assert(call, value.node, is_open=False)


def _find_parameters(code: str, name: str) -> list[str]:
    """The parameter names of a function in the code; empty if not all can be passed by position."""
    match = re.search(rf"^[ \t]*(?=(?:async )?def {re.escape(name)}\()", code, re.MULTILINE)
    if match is None:
        return []
    head = code[match.end() : match.end() + 2_000]
    for colon in re.finditer(r":(?=[ \t]*(?:#.*)?(?:\n|$))", head):
        tree = try_parse(head[: colon.end()] + "\n    pass")
        if tree is not None and isinstance(tree.body[0], (ast.FunctionDef, ast.AsyncFunctionDef)):
            given = tree.body[0].args
            plain = not (given.vararg or given.kwarg or given.kwonlyargs or given.defaults)
            return [a.arg for a in (*given.posonlyargs, *given.args)] if plain else []
    return []


def _read_arguments(text: str, at: int, parameters: list[str], *, bare: bool) -> tuple[dict[str, ast.expr], int]:
    """Values by name from `at` on, and their end. A bare value belongs to the only parameter."""
    given: dict[str, ast.expr] = {}
    while (match := _NAME.match(text, at)) and match[1] in parameters and match[1] not in given:
        value = read_value_at(text, match.end())
        if value is None:
            return {}, at
        given[match[1]], at = value
    if not given and bare and len(parameters) == 1:
        value = read_value_at(text, at)
        if value is not None:
            return {parameters[0]: value.node}, value.end
    return given, at
