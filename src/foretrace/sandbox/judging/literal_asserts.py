"""Asserts of calls with literals, whose values are compared with literals: these need no process of the tests.

The candidate gets the arguments, and the parent compares the values. Where an assert is of any other form, or a value
is not plain, the tests are judged by running them (`relay`).
"""

from __future__ import annotations

import ast
from collections.abc import Container, Iterator, Sequence
from typing import Any, Literal

import msgspec

from foretrace.sandbox.inside.roles.asserts import find_constant_truth
from foretrace.sandbox.inside.roles.compiled_tests import find_check_function
from foretrace.sandbox.inside.wire.show import IteratorItems, OpaqueValue
from foretrace.sandbox.inside.wire.stdlib_values import is_stdlib_value
from foretrace.sandbox.inside.wire.values import encode, show_value
from foretrace.sandbox.judging.candidate_uses import ALIAS, CandidateUses
from foretrace.sandbox.judging.compare import Tolerance, close, equal

_MAX_ARGUMENT_BYTES = 64 * 1024
"""Encoded bytes that the arguments of one call may have."""
_MAX_BITS = 1024
"""Bits of an int that may be compared within a tolerance."""
_SINGLES = (None, True, False, ...)
Form = Literal["equal", "unequal", "is", "is not", "true", "false", "near", "in"]


class AssertResult(msgspec.Struct, frozen=True):
    """What an assert came to."""

    passed: bool
    actual: str | None = None
    expected: str | None = None


class LiteralAssert(msgspec.Struct, frozen=True, kw_only=True):
    """One assert: a call, and what its value is compared with."""

    form: Form
    call: int
    """Number of the call."""
    expected: Any = None
    tolerance: Tolerance | None = None
    strict: bool = False
    """`near`: whether the difference must be smaller than the tolerance."""

    def judge(self, value: Any) -> AssertResult | None:
        """Whether the assert holds for a value; None where it takes Python itself to say so."""
        if not _is_plain(value):
            return None
        passed = self._holds(value)
        if passed is None:
            return None
        shows = self.form in ("equal", "is", "near", "in")
        return AssertResult(passed, show_value(value), show_value(self.expected) if shows else None)

    def _holds(self, value: Any) -> bool | None:
        match self.form:
            case "equal":
                return equal(value, self.expected)
            case "unequal":
                return not equal(value, self.expected)
            case "is":
                return value is self.expected
            case "is not":
                return value is not self.expected
            case "true":
                return bool(value)
            case "false":
                return not value
            case "in":
                return any(equal(value, member) for member in self.expected)
            case "near":
                return self._is_near(value)

    def _is_near(self, value: Any) -> bool | None:
        if type(value) not in (int, float) or (type(value) is int and value.bit_length() > _MAX_BITS):
            return None
        assert self.tolerance is not None
        if self.tolerance.relative:
            return close(value, self.expected, self.tolerance)
        difference = abs(value - self.expected)
        return difference < self.tolerance.absolute if self.strict else difference <= self.tolerance.absolute


class LiteralTests(msgspec.Struct, frozen=True):
    """The calls of tests whose asserts are all literal, and the asserts."""

    calls: tuple[tuple[str, list[Any], dict[str, Any]], ...]
    asserts: tuple[LiteralAssert, ...]


class _NotLiteralError(Exception):
    pass


def read_literal_asserts(trees: Sequence[ast.Module], uses: CandidateUses) -> LiteralTests | None:
    """The asserts of tests, if all are of this form and there is nothing else in the tests."""
    if len(uses.callees) > 1 or uses.exceptions or uses.setup_names & uses.callees:
        return None
    calls: list[tuple[str, list[Any], dict[str, Any]]] = []
    found: list[LiteralAssert] = []
    try:
        for tree in trees:
            check = find_check_function(tree)
            names = {name: name for name in uses.callees}
            if uses.entry_point:
                names |= {ALIAS: uses.entry_point} | ({check[1]: uses.entry_point} if check else {})
            reader = _Reader(names, calls, _find_known(tree, uses))
            found += [reader.read(node.test) for node in _find_asserts(tree, check, names)]
    except (_NotLiteralError, ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return None
    return LiteralTests(tuple(calls), tuple(found)) if found else None


def _find_asserts(tree: ast.Module, check: tuple[str, str, bool] | None, names: Container[str]) -> Iterator[ast.Assert]:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and check and node.name == check[0]:
            if len(node.args.args) != 1 or node.args.defaults or node.decorator_list:
                raise _NotLiteralError
            for inner in node.body:
                yield from _read_statement(inner)
        elif isinstance(node, ast.Assign) and all(isinstance(t, ast.Name) and t.id.isupper() for t in node.targets):
            ast.literal_eval(node.value)  # METADATA and the like
        elif not _is_check_of(node, check, names):
            yield from _read_statement(node)


def _is_check_of(node: ast.stmt, check: tuple[str, str, bool] | None, names: Container[str]) -> bool:
    """Whether a statement calls the check function with the code under test itself."""
    call = node.value if isinstance(node, ast.Expr) else None
    if not check or not isinstance(call, ast.Call) or getattr(call.func, "id", "") != check[0]:
        return False
    return len(call.args) == 1 and not call.keywords and getattr(call.args[0], "id", "") in names


def _read_statement(node: ast.stmt) -> Iterator[ast.Assert]:
    if isinstance(node, ast.Assert):
        if find_constant_truth(node) is not True:
            yield node
    elif isinstance(node, (ast.Import, ast.Pass)) or (
        isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    ):
        return
    else:
        raise _NotLiteralError


def _find_known(tree: ast.Module, uses: CandidateUses) -> set[str]:
    """Which of `math` and `abs` mean here what they mean in Python."""
    own = [node for node in ast.walk(tree) if isinstance(node, ast.Import)]
    given = {alias.asname or alias.name for node in (*uses.imports, *own) for alias in node.names}
    known = {"abs"} - given - uses.setup_names - uses.callees
    return known | ({"math"} & given - uses.setup_names)


class _Reader:
    def __init__(self, names: dict[str, str], calls: list[Any], known: set[str]) -> None:
        self._names, self._calls, self._known = names, calls, known

    def read(self, test: ast.expr) -> LiteralAssert:
        """The assert of what is asserted."""
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            return LiteralAssert(form="false", call=self._call(test.operand))
        if isinstance(test, ast.Compare) and len(test.ops) == 1:
            return self._read_comparison(test.left, test.ops[0], test.comparators[0])
        if isinstance(test, ast.Call) and isinstance(test.func, ast.Attribute):
            return self._read_isclose(test)
        return LiteralAssert(form="true", call=self._call(test))

    def _read_comparison(self, left: ast.expr, op: ast.cmpop, right: ast.expr) -> LiteralAssert:
        if isinstance(op, (ast.Eq, ast.NotEq)):
            form: Form = "equal" if isinstance(op, ast.Eq) else "unequal"
            if self._is_call(left):
                return LiteralAssert(form=form, call=self._call(left), expected=_literal(right))
            return LiteralAssert(form=form, expected=_literal(left), call=self._call(right))
        if isinstance(op, (ast.Is, ast.IsNot)):
            expected = _literal(right)
            if not any(expected is single for single in _SINGLES):
                raise _NotLiteralError
            form = "is" if isinstance(op, ast.Is) else "is not"
            return LiteralAssert(form=form, call=self._call(left), expected=expected)
        if isinstance(op, ast.In) and isinstance(right, (ast.List, ast.Tuple)):
            return LiteralAssert(form="in", call=self._call(left), expected=_literal(right))
        if isinstance(op, (ast.Lt, ast.LtE)):
            return self._read_difference(left, _number(right), isinstance(op, ast.Lt))
        raise _NotLiteralError

    def _read_difference(self, left: ast.expr, limit: float, strict: bool) -> LiteralAssert:
        """`abs(call - number)`, which is below `limit`."""
        inner = left.args[0] if isinstance(left, ast.Call) and len(left.args) == 1 and not left.keywords else None
        if getattr(getattr(left, "func", None), "id", "") != "abs" or "abs" not in self._known:
            raise _NotLiteralError
        if not isinstance(inner, ast.BinOp) or not isinstance(inner.op, ast.Sub):
            raise _NotLiteralError
        call, number = (inner.left, inner.right) if self._is_call(inner.left) else (inner.right, inner.left)
        tolerance = Tolerance(limit, 0.0)
        expected = _number(number)
        return LiteralAssert(form="near", call=self._call(call), expected=expected, tolerance=tolerance, strict=strict)

    def _read_isclose(self, test: ast.Call) -> LiteralAssert:
        assert isinstance(test.func, ast.Attribute)
        if "math" not in self._known or test.func.attr != "isclose" or getattr(test.func.value, "id", "") != "math":
            raise _NotLiteralError
        named = {keyword.arg: _number(keyword.value) for keyword in test.keywords}
        if len(test.args) != 2 or not named.keys() <= {"rel_tol", "abs_tol"} or named.get("rel_tol", 1) == 0:
            raise _NotLiteralError
        tolerance = Tolerance(named.get("abs_tol", 0.0), named.get("rel_tol", 1e-9))
        return LiteralAssert(
            form="near", call=self._call(test.args[0]), expected=_number(test.args[1]), tolerance=tolerance
        )

    def _is_call(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in self._names

    def _call(self, node: ast.expr) -> int:
        """The number of a call of the code, whose arguments are literals."""
        if not self._is_call(node):
            raise _NotLiteralError
        assert isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        if any(keyword.arg is None for keyword in node.keywords):
            raise _NotLiteralError
        args = [_encode(_literal(arg)) for arg in node.args]
        named = {str(keyword.arg): _encode(_literal(keyword.value)) for keyword in node.keywords}
        self._calls.append((self._names[node.func.id], args, named))
        return len(self._calls) - 1


def _literal(node: ast.expr) -> Any:
    return ast.literal_eval(node)


def _number(node: ast.expr) -> float:
    value = ast.literal_eval(node)
    if type(value) not in (int, float):
        raise _NotLiteralError
    return value


def _encode(value: Any) -> Any:
    tagged = encode(value, _MAX_ARGUMENT_BYTES)
    if type(tagged) is list and tagged[0] == "o":
        raise _NotLiteralError
    return tagged


def _is_plain(value: Any) -> bool:
    """Whether there is nothing in a value but builtin data, which is compared as Python compares it."""
    kind = type(value)
    if kind in (list, tuple, set, frozenset):
        return all(map(_is_plain, value))
    if kind is dict:
        return all(map(_is_plain, value)) and all(map(_is_plain, value.values()))
    return kind not in (OpaqueValue, IteratorItems, range) and not is_stdlib_value(value)
