"""Parse other people's Python code without showing the compiler's warnings about it."""

from __future__ import annotations

import ast
import warnings
from typing import Literal, overload

PARSE_ERRORS = (SyntaxError, ValueError, RecursionError, MemoryError)
"""Raised by `parse_quietly` for text that is not Python (`ValueError`: null bytes; the last two: nested too deeply)."""


@overload
def parse_quietly(code: str, mode: Literal["eval"]) -> ast.Expression: ...
@overload
def parse_quietly(code: str, mode: Literal["exec"] = "exec", *, compiles: bool = False) -> ast.Module: ...
def parse_quietly(code: str, mode: str = "exec", *, compiles: bool = False) -> ast.AST:
    """The syntax tree of the code.

    Args:
        compiles: Also compile the code (without running it), which finds errors beyond the grammar, such as a `return`
            outside a function.

    Raises:
        SyntaxError, ValueError, RecursionError, MemoryError: the text is not Python (`PARSE_ERRORS`).
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # e.g. about an invalid escape in a string
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
    """The syntax tree of the code, or `None` if it is not Python."""
    try:
        return parse_quietly(code, mode)
    except PARSE_ERRORS:
        return None
