"""Parsing somebody else's code: what is not Python, and no warnings for us."""

from __future__ import annotations

import ast
import warnings

import pytest

from foretrace.core.python_source import PARSE_ERRORS, parse_quietly, try_parse


def test_a_tree_without_warnings() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tree = parse_quietly("a = '\\d'\nb = a is 'x'\n", compiles=True)
        assert isinstance(tree.body[0], ast.Assign)
        assert isinstance(parse_quietly("'\\d'", "eval").body, ast.Constant)


@pytest.mark.parametrize("code", ["def f(:", "x = '\x00'", "(" * 100_000])
def test_what_is_no_python(code: str) -> None:
    assert try_parse(code) is None
    with pytest.raises(PARSE_ERRORS):
        parse_quietly(code)


def test_what_only_the_compiler_finds() -> None:
    assert parse_quietly("return 1")
    with pytest.raises(SyntaxError, match="outside function"):
        parse_quietly("return 1", compiles=True)
