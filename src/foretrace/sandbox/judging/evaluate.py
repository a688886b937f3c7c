"""A small evaluator of expressions in tests: known forms over plain values, with bounded work. It never runs code."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from foretrace.sandbox.judging.safe_builtins import (
    BINARY,
    COMPARE,
    FUNCTIONS,
    KEYWORDS,
    METHODS,
    MODULES,
    TYPES,
    UNARY,
    TooMuchError,
    items,
)

_NOTHING: Any = object()
_PARTS = (
    *(ast.Constant, ast.List, ast.Tuple, ast.Set, ast.Dict, ast.Starred, ast.UnaryOp, ast.BinOp, ast.BoolOp, ast.IfExp),
    *(ast.Subscript, ast.Slice, ast.expr_context, ast.operator, ast.unaryop, ast.boolop),
)
"""Nodes that are known if their parts are."""


class UnsupportedError(Exception):
    """An expression of a form that is not known here."""


class FailedError(Exception):
    """An expression of a known form that has no value, as Python would raise; `str` says which error."""

    def __init__(self, error: BaseException | str) -> None:
        super().__init__(error if isinstance(error, str) else f"{type(error).__name__}: {str(error)[:300]}")


def _is_single(node: ast.expr) -> bool:
    """Whether the value is one that exists once, so that `is` says something of it."""
    singles = (None, True, False, ...)
    return (isinstance(node, ast.Constant) and any(node.value is one for one in singles)) or (
        isinstance(node, ast.Name) and node.id in TYPES
    )


class Evaluator:
    """Evaluates expressions.

    Args:
        names: what names mean beside the built-in functions: values, or modules as dicts in `MODULES`.
        answer: gives the value of a call of the code under test; `is_call` says which calls those are.
    """

    def __init__(
        self,
        names: Mapping[str, Any],
        is_call: Callable[[ast.expr], bool] = lambda node: False,
        answer: Callable[[ast.Call], Any] | None = None,
    ) -> None:
        self._names, self._is_call, self._answer = names, is_call, answer

    def value(self, node: ast.expr) -> Any:
        """The expression's value.

        Raises:
            UnsupportedError: a form that is not known here.
            FailedError: Python would raise, or the value would be too large.
        """
        try:
            return self._value(node)
        except (UnsupportedError, FailedError):
            raise
        except TooMuchError as error:
            raise FailedError(str(error)) from None
        except Exception as error:
            raise FailedError(error) from None

    def _value(self, node: ast.expr) -> Any:
        if self._answer is not None and self._is_call(node):
            assert isinstance(node, ast.Call)
            return self._answer(node)
        match node:
            case ast.Constant():
                return node.value
            case ast.Name():
                return self._named(node.id)
            case ast.List() | ast.Tuple() | ast.Set():
                make = {ast.List: list, ast.Tuple: tuple, ast.Set: set}[type(node)]
                return make(self._spread(node.elts))
            case ast.Dict():
                if None in node.keys:
                    raise UnsupportedError
                keys = [self._value(key) for key in node.keys if key is not None]
                return dict(zip(keys, map(self._value, node.values), strict=True))
            case ast.UnaryOp():
                return UNARY[type(node.op)](self._value(node.operand))
            case ast.BinOp() if type(node.op) in BINARY:
                return BINARY[type(node.op)](self._value(node.left), self._value(node.right))
            case ast.BoolOp():
                return self._junction(node)
            case ast.Compare():
                return self._compared(node)
            case ast.IfExp():
                return self._value(node.body if self._value(node.test) else node.orelse)
            case ast.Subscript():
                return self._value(node.value)[self._value(node.slice)]
            case ast.Slice():
                return slice(*(part and self._value(part) for part in (node.lower, node.upper, node.step)))
            case ast.Attribute():
                return self._member(node)
            case ast.Call():
                return self._called(node)
            case _:
                raise UnsupportedError

    def _named(self, name: str) -> Any:
        known = self._names.get(name, TYPES.get(name, _NOTHING))
        if known is _NOTHING:
            raise UnsupportedError
        return known

    def _spread(self, nodes: Iterable[ast.expr]) -> list[Any]:
        out: list[Any] = []
        for node in nodes:
            if isinstance(node, ast.Starred):
                out += items(self._value(node.value))
            else:
                out.append(self._value(node))
        return out

    def _junction(self, node: ast.BoolOp) -> Any:
        value: Any = None
        for part in node.values:
            value = self._value(part)
            if bool(value) is isinstance(node.op, ast.Or):
                break
        return value

    def _compared(self, node: ast.Compare) -> bool:
        left = self._value(node.left)
        for op, comparator in zip(node.ops, node.comparators, strict=True):
            right = self._value(comparator)
            if not COMPARE[type(op)](left, right):
                return False
            left = right
        return True

    def _member(self, node: ast.Attribute) -> Any:
        """What a known module has under a name."""
        module = self._names.get(node.value.id) if isinstance(node.value, ast.Name) else None
        if not any(module is known for known in MODULES.values()) or node.attr not in module:  # type: ignore[operator]
            raise UnsupportedError
        return module[node.attr]  # type: ignore[index]

    def _called(self, node: ast.Call) -> Any:
        args = self._spread(node.args)
        named = {keyword.arg or "": self._value(keyword.value) for keyword in node.keywords}
        if isinstance(node.func, ast.Attribute) and not self._is_module(node.func.value):
            owner = self._value(node.func.value)
            if type(owner) not in TYPES.values() or node.func.attr not in METHODS:
                raise AttributeError(f"'{type(owner).__name__}' object has no attribute '{node.func.attr}'")
            return getattr(owner, node.func.attr)(*args, **named)
        return self._function(node.func)(*args, **named)

    def _function(self, node: ast.expr) -> Callable[..., Any]:
        """What a call calls, where it is known."""
        if isinstance(node, ast.Name) and node.id not in self._names and node.id in FUNCTIONS:
            return FUNCTIONS[node.id]
        function = self._member(node) if isinstance(node, ast.Attribute) else self._names.get(getattr(node, "id", ""))
        if not callable(function):
            raise UnsupportedError
        return function

    def _is_module(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Name) and any(self._names.get(node.id) is known for known in MODULES.values())

    def accepts(self, node: ast.AST) -> bool:
        """Whether all of the expression is of forms known here, whatever values the calls will give."""
        if isinstance(node, ast.expr) and self._is_call(node):
            return True  # its arguments are looked at elsewhere
        match node:
            case ast.Name():
                return node.id in self._names or node.id in TYPES
            case ast.Attribute():
                return self._is_module(node.value) and self._known_member(node)
            case ast.Call():
                return self._accepts_call(node)
            case ast.Compare():
                sides = [node.left, *node.comparators]
                if any(isinstance(op, (ast.Is, ast.IsNot)) for op in node.ops) and not any(map(_is_single, sides)):
                    return False
                return all(map(self.accepts, sides))
            case ast.Dict() if None in node.keys:
                return False
            case _ if isinstance(node, _PARTS):
                return all(self.accepts(part) for part in ast.iter_child_nodes(node))
            case _:
                return False

    def _known_member(self, node: ast.Attribute) -> bool:
        try:
            self._member(node)
        except UnsupportedError:
            return False
        return True

    def _accepts_call(self, node: ast.Call) -> bool:
        func, names = node.func, {keyword.arg for keyword in node.keywords}
        parts = [*node.args, *(keyword.value for keyword in node.keywords)]
        if None in names or not all(map(self.accepts, parts)):
            return False
        if isinstance(func, ast.Attribute) and not self._is_module(func.value):
            return func.attr in METHODS and not names and self.accepts(func.value)
        try:
            self._function(func)
        except UnsupportedError:
            return False
        known = KEYWORDS.get(func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", ""), set())
        return known is None or names <= known
