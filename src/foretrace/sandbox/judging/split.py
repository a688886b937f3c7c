"""Tests whose calls can be taken out of them: the candidate gets arguments, and the parent evaluates the rest."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from foretrace.sandbox.inside.roles import asserts
from foretrace.sandbox.inside.roles.judge import find_check_function
from foretrace.sandbox.inside.wire.values import encode, show_value
from foretrace.sandbox.judging.candidate_uses import ALIAS, CandidateUses
from foretrace.sandbox.judging.evaluate import Evaluator, FailedError, UnsupportedError
from foretrace.sandbox.judging.safe_builtins import COMPARE, MODULES

_MAX_ARGUMENT_BYTES = 256 * 1024
"""Encoded bytes that the arguments of one call may have."""
Calls = dict[ast.Call, int]


class AssertResult(msgspec.Struct, frozen=True):
    """What an assert came to."""

    passed: bool
    actual: str | None = None
    expected: str | None = None
    error: str | None = None


class Check:
    """One assert whose calls were taken out."""

    def __init__(self, test: ast.expr, names: Mapping[str, Any], calls: Calls) -> None:
        self._test, self._names, self._calls = test, names, calls

    @property
    def calls(self) -> list[int]:
        """Numbers of the calls whose answers it needs."""
        return list(self._calls.values())

    def judge(self, answer: Callable[[int], Any]) -> AssertResult:
        """Whether it holds, given the value of each call.

        Args:
            answer: the value of the call of this number; whatever it raises is passed on.
        """
        evaluator = Evaluator(self._names, self._calls.__contains__, lambda node: answer(self._calls[node]))
        actual = expected = None
        test = self._test
        try:
            if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], (ast.Eq, ast.Is)):
                sides = [test.left, test.comparators[0]]
                if self._called(sides[1]) and not self._called(sides[0]):
                    sides.reverse()
                ours = evaluator.value(sides[0])
                actual = show_value(ours)
                theirs = evaluator.value(sides[1])
                expected = show_value(theirs)
                return AssertResult(COMPARE[type(test.ops[0])](ours, theirs), actual, expected)
            left, right = self._sides()
            if left is not None:
                actual = show_value(evaluator.value(left))
            if right is not None:
                expected = show_value(evaluator.value(right))
            return AssertResult(bool(evaluator.value(test)), actual, expected)
        except FailedError as error:
            return AssertResult(False, actual, expected, str(error))

    def _sides(self) -> tuple[ast.expr | None, ast.expr | None]:
        """What the candidate gave and what is asked for, where the assert says how close the two must be."""
        test = self._test
        inner = test.left if isinstance(test, ast.Compare) and len(test.ops) == 1 else None
        if isinstance(inner, ast.Call) and getattr(inner.func, "id", "") == "abs" and len(inner.args) == 1:
            inner = inner.args[0]
            if isinstance(inner, ast.BinOp):
                return (inner.left, inner.right) if self._called(inner.left) else (inner.right, inner.left)
        if isinstance(test, ast.Call) and len(test.args) >= 2:
            name = getattr(test.func, "attr", getattr(test.func, "id", ""))
            if name in ("isclose", "allclose"):
                return test.args[0], test.args[1]
        return next(iter(self._calls), None), None

    def _called(self, node: ast.AST) -> bool:
        return any(part in self._calls for part in ast.walk(node) if isinstance(part, ast.Call))


class SplitTests(msgspec.Struct, frozen=True):
    """Calls, and the checks of their answers."""

    calls: tuple[tuple[str, list[Any], dict[str, Any]], ...]
    checks: tuple[Check, ...]


def split_tests(trees: Sequence[ast.Module], code: CandidateUses) -> SplitTests | None:
    """Take the calls out of all asserts; None where one of them, or something beside them, is of another form."""
    calls: list[tuple[str, list[Any], dict[str, Any]]] = []
    checks: list[Check] = []
    try:
        for tree in trees:
            names, found = _statements(tree, code)
            aliases = {name: name for name in code.callees}
            if code.entry_point:
                check = find_check_function(tree)
                aliases |= {ALIAS: code.entry_point} | ({check[1]: code.entry_point} if check else {})
            for node in found:
                checks.append(_check(node.test, names, aliases, code.setup_names, calls))
    except (UnsupportedError, FailedError, RecursionError):
        return None
    return SplitTests(tuple(calls), tuple(checks))


def _statements(tree: ast.Module, code: CandidateUses) -> tuple[dict[str, Any], list[ast.Assert]]:
    """The names that imports give, and the asserts, if there is nothing else that matters."""
    check = find_check_function(tree)
    names: dict[str, Any] = {name: value for node in code.imports for name, value in _imported(node)}
    found: list[ast.Assert] = []
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and check and node.name == check[0]:
            if len(node.args.args) != 1 or node.args.defaults or node.decorator_list:
                raise UnsupportedError
            for inner in node.body:
                _statement(inner, names, found)
        elif isinstance(node, ast.Assign) and all(isinstance(t, ast.Name) and t.id.isupper() for t in node.targets):
            Evaluator({}).value(node.value)  # METADATA and the like
        elif not _calls_check(node, check):
            _statement(node, names, found)
    if set(names) & (code.setup_names | code.callees):
        raise UnsupportedError
    return names, found


def _statement(node: ast.stmt, names: dict[str, Any], found: list[ast.Assert]) -> None:
    if isinstance(node, ast.Assert):
        if asserts.find_constant_truth(node) is not True:
            found.append(node)
    elif isinstance(node, (ast.Import, ast.ImportFrom)):
        names.update(_imported(node))
    elif not isinstance(node, ast.Pass) and not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
        raise UnsupportedError


def _imported(node: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, Any]]:
    for alias in node.names:
        if isinstance(node, ast.Import):
            # One that is not known is no harm: what uses it is not known either.
            yield alias.asname or alias.name, MODULES.get(alias.name, {})
        else:
            known = MODULES.get(node.module or "", {})
            if alias.name in known:
                yield alias.asname or alias.name, known[alias.name]


def _calls_check(node: ast.stmt, check: tuple[str, str, bool] | None) -> bool:
    return bool(
        check
        and isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Call)
        and getattr(node.value.func, "id", "") == check[0]
    )


def _check(
    test: ast.expr, names: Mapping[str, Any], aliases: Mapping[str, str], shadowed: frozenset[str], calls: list[Any]
) -> Check:
    own: Calls = {}

    def is_call(node: ast.expr) -> bool:
        return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in aliases

    if not Evaluator(names, is_call).accepts(test) or _names(test) & shadowed:
        raise UnsupportedError
    constants = Evaluator(names)
    for node in _outermost(test, is_call):
        if any(_names(arg) & set(aliases) for arg in (*node.args, *node.keywords)):
            raise UnsupportedError
        own[node] = len(calls)
        name = aliases[node.func.id]  # type: ignore[attr-defined]
        args = constants.value(ast.List([*node.args], ast.Load()))
        if any(keyword.arg is None for keyword in node.keywords):
            raise UnsupportedError
        named = {keyword.arg or "": constants.value(keyword.value) for keyword in node.keywords}
        calls.append((name, [_sendable(arg) for arg in args], {key: _sendable(arg) for key, arg in named.items()}))
    for node in _without_calls(test, own):
        constants.value(node)  # so that it is known now that they have values
    return Check(test, names, own)


def _names(node: ast.AST) -> set[str]:
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}


def _sendable(value: Any) -> Any:
    tagged = encode(value, _MAX_ARGUMENT_BYTES, keep=_refuse)
    if type(tagged) is list and tagged[0] == "o":
        raise UnsupportedError
    return tagged


def _refuse(value: Any) -> int:
    raise UnsupportedError


def _outermost(node: ast.AST, is_call: Callable[[Any], bool]) -> Iterator[ast.Call]:
    if isinstance(node, ast.Call) and is_call(node):
        yield node
        return
    for part in ast.iter_child_nodes(node):
        yield from _outermost(part, is_call)


def _without_calls(node: ast.AST, calls: Calls) -> Iterator[ast.expr]:
    """The largest parts of an expression that need no answer."""
    if not any(part in calls for part in ast.walk(node) if isinstance(part, ast.Call)):
        if isinstance(node, ast.expr) and not isinstance(node, (ast.Starred, ast.Slice)):
            yield node
        return
    if node in calls:
        return
    for part in ast.iter_child_nodes(node):
        if not (isinstance(node, ast.Call) and part is node.func):
            yield from _without_calls(part, calls)
