"""Examples that name the parameters: `For n = 3 the output should be 5`, or `Input: n = 3` followed by `Output: 5`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from foretrace.core.python_source import try_parse
from foretrace.problems.public_tests.literals import find_places, read_value_at
from foretrace.problems.public_tests.remarks import make_example_assert

_FOR = r"(?m)^[ \t*•-]*+(?:For|If|With|Given)\s++(?=\w+\s*=)"
_SHOULD = re.compile(
    r"[\s,]*+(?:then\s++)?(?:the\s++)?(?:output|result|answer|return value|function)\s++(?:should|must|will)\s++"
    r"(?:be|return)\b[\s:]*+"
)
_INPUT = r"(?m)^[ \t*•-]*+Inputs?\s*+:"
_OUTPUT = re.compile(r"[ \t]*+\n[ \t*•-]*+Outputs?\s*+:")
_NAME = re.compile(r"[\s,;]*+(?:and\s++)?([A-Za-z_]\w*+)\s*+[=:](?!=)")
_TAIL = re.compile(r"\s*+[.,;]?+\s*+(?:#.*)?")


def find_tests(text: str, name: str, code: str) -> Iterator[tuple[int, str]]:
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
            if value is not None and _TAIL.fullmatch(line, value.end):
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
