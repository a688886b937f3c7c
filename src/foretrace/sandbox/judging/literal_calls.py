"""Asserts that only call the answer with literals. They need no process for the tests: the answer's process gets the
arguments, and the parent compares the values."""

from __future__ import annotations

import ast
from collections.abc import Container, Iterator, Sequence
from typing import Any

import msgspec

from foretrace.sandbox.inside.wire.values import encode
from foretrace.sandbox.judging.rewrite import Check, find_constant_truth, take_apart
from foretrace.sandbox.judging.test_reading import ALIAS, AnswerUses, find_check_function

_MAX_ARGUMENT_BYTES = 64 * 1024
"""Longest encoded argument of a call, bytes."""


class LiteralCheck(msgspec.Struct, frozen=True):
    """One assert, and the numbers of the calls that are its leaves."""

    check: Check
    calls: list[int]


class _NotLiteralError(Exception):
    pass


def read_literal_tests(
    trees: Sequence[ast.Module], uses: AnswerUses
) -> tuple[tuple[tuple[str, list[Any], dict[str, Any]], ...], tuple[LiteralCheck, ...]] | None:
    """The calls and asserts of the tests; None if the tests contain anything else."""
    if len(uses.callees) > 1 or uses.setup_names & uses.callees:
        return None
    calls: list[tuple[str, list[Any], dict[str, Any]]] = []
    found: list[LiteralCheck] = []
    try:
        for tree in trees:
            check = find_check_function(tree)
            names = {name: name for name in uses.callees}
            if uses.entry_point:
                names |= {ALIAS: uses.entry_point} | ({check[0]: uses.entry_point} if check else {})
            for node in _find_asserts(tree, check, names):
                made = take_apart(node.test, len(found), uses.shadowed)
                numbers = [_read_call(leaf, names, calls) for leaf in made.leaves]
                if not numbers:
                    return None
                found.append(LiteralCheck(made, numbers))
    except (_NotLiteralError, ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return None
    return (tuple(calls), tuple(found)) if found else None


def _find_asserts(tree: ast.Module, check: tuple[str, bool] | None, names: Container[str]) -> Iterator[ast.Assert]:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and check and node.name == "check":
            if len(node.args.args) != 1 or node.args.defaults or node.decorator_list:
                raise _NotLiteralError
            for inner in node.body:
                yield from _read_statement(inner)
        elif isinstance(node, ast.Assign) and all(isinstance(t, ast.Name) and t.id.isupper() for t in node.targets):
            ast.literal_eval(node.value)  # METADATA and the like
        elif not _is_check_of(node, check, names):
            yield from _read_statement(node)


def _is_check_of(node: ast.stmt, check: tuple[str, bool] | None, names: Container[str]) -> bool:
    """Whether a statement calls the check function with the code under test."""
    call = node.value if isinstance(node, ast.Expr) else None
    if not check or not isinstance(call, ast.Call) or getattr(call.func, "id", "") != "check":
        return False
    return len(call.args) == 1 and not call.keywords and getattr(call.args[0], "id", "") in names


def _read_statement(node: ast.stmt) -> Iterator[ast.Assert]:
    if isinstance(node, ast.Assert):
        if find_constant_truth(node) is not True:
            yield node
    elif not isinstance(node, (ast.Import, ast.Pass)) and not (
        isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    ):
        raise _NotLiteralError


def _read_call(node: ast.expr, names: dict[str, str], calls: list[Any]) -> int:
    """Add a call of the answer with literal arguments, and return its number."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or node.func.id not in names:
        raise _NotLiteralError
    if any(keyword.arg is None for keyword in node.keywords):
        raise _NotLiteralError
    args = [_encode(ast.literal_eval(arg)) for arg in node.args]
    named = {str(keyword.arg): _encode(ast.literal_eval(keyword.value)) for keyword in node.keywords}
    calls.append((names[node.func.id], args, named))
    return len(calls) - 1


def _encode(value: Any) -> Any:
    tagged = encode(value, _MAX_ARGUMENT_BYTES)
    if type(tagged) is list and tagged[0] == "o":
        raise _NotLiteralError
    return tagged
