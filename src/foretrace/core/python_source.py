"""Parse Python code that somebody else wrote, without showing the compiler's warnings about it."""

from __future__ import annotations

import ast
import warnings
from typing import Any, Literal, overload

PARSE_ERRORS = (SyntaxError, ValueError, RecursionError, MemoryError)
"""What `parse_quietly` raises for what is not Python (`ValueError`: a null byte; the last two: nested too deeply)."""


@overload
def parse_quietly(code: str, mode: Literal["eval"]) -> ast.Expression: ...
@overload
def parse_quietly(code: str, mode: Literal["exec"] = "exec", *, compiles: bool = False) -> ast.Module: ...
def parse_quietly(code: str, mode: str = "exec", *, compiles: bool = False) -> ast.AST:
    """The syntax tree of the code.

    Args:
        compiles: Also compile it, which runs nothing, to find what is wrong beyond the grammar, such as a `return`
            outside of a function.

    Raises:
        SyntaxError, ValueError, RecursionError, MemoryError: it is not Python (`PARSE_ERRORS`).
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # such as an invalid escape in a string, which is of no use here
        tree = ast.parse(code, mode=mode)
        if compiles:
            assert isinstance(tree, ast.Module)
            compile(tree, "code", "exec", dont_inherit=True)
    return tree


@overload
def try_parse(code: str, mode: Literal["eval"]) -> ast.Expression | None: ...
@overload
def try_parse(code: str, mode: Literal["exec"] = "exec") -> ast.Module | None: ...
def try_parse(code: str, mode: Literal["eval", "exec"] = "exec") -> ast.AST | None:
    """The syntax tree of the code, or `None` where it is not Python."""
    try:
        return parse_quietly(code, mode)
    except PARSE_ERRORS:
        return None


def parse_literal(code: str) -> Any:
    """The value that the code writes out, such as `{'a': (1, None)}`.

    Raises:
        SyntaxError, ValueError, RecursionError, MemoryError: it is not Python (`PARSE_ERRORS`), or no such value.
        TypeError: a value that cannot be made, such as a list in a set.
    """
    return ast.literal_eval(parse_quietly(code.strip(), "eval"))
