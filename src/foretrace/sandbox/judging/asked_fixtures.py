"""What tests in pytest's style ask for that is not known here: no answer could pass such tests."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from foretrace.sandbox.inside.roles.pytest_stand_in import BUILTIN_FIXTURES, make_module

_Function = ast.FunctionDef | ast.AsyncFunctionDef
_KNOWN = frozenset(vars(make_module())) | {"fixture(autouse)", "fixture(scope)"}


def find_unknown_features(tree: ast.Module) -> list[str]:
    """What tests use of pytest that is not known, such as `pytest.warns` and `fixture(params)`."""
    used: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "pytest":
            used += [alias.name for alias in node.names]
        elif isinstance(node, ast.Attribute) and ast.unparse(node.value) == "pytest":
            used.append(node.attr)
        elif isinstance(node, ast.Attribute) and ast.unparse(node).endswith("mark.usefixtures"):
            used.append("mark.usefixtures")
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("pytest.fixture", "fixture"):
            used += [f"fixture({keyword.arg})" for keyword in node.keywords]
    return [f"pytest.{name}" for name in dict.fromkeys(used) if name not in _KNOWN]


def find_unknown_fixtures(tree: ast.Module, others: Sequence[ast.Module]) -> list[str]:
    """Names of parameters of tests that nothing gives, in the order of the code.

    Args:
        others: the tests' setup and earlier tests, which may define fixtures, too.
    """
    known = {"self", "cls", *BUILTIN_FIXTURES}.union(*map(_find_fixtures, (*others, tree)))
    named = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    unknown: dict[str, None] = {}
    for function, decorators in _find_tests(tree):
        texts = [ast.unparse(decorator) for decorator in decorators]
        if function.name in named or not all(text.startswith(("pytest.mark.", "mark.")) for text in texts):
            continue  # the code calls it, or something else gives it what it takes
        given = {word for text in texts for word in re.findall(r"\w+", text)}
        parameters = [*function.args.posonlyargs, *function.args.args]
        asked = parameters[: len(parameters) - len(function.args.defaults)]
        unknown.update(dict.fromkeys(p.arg for p in asked if p.arg not in known | given))
    return list(unknown)


def _find_tests(tree: ast.Module) -> Iterator[tuple[_Function, list[ast.expr]]]:
    """Test functions and methods, with their decorators and those of their class."""
    for node in tree.body:
        if isinstance(node, _Function) and node.name.startswith("test"):
            yield node, node.decorator_list
        elif isinstance(node, ast.ClassDef) and node.name.startswith("Test") and not node.bases:
            for part in node.body:
                if isinstance(part, _Function) and part.name.startswith("test"):
                    yield part, [*node.decorator_list, *part.decorator_list]


def _find_fixtures(tree: ast.Module) -> set[str]:
    """Names of all that is decorated or assigned, which may be fixtures."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, _Function) and node.decorator_list:
            found.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
    return found
