"""The asserts of test code: which there are, and what they are called."""

from __future__ import annotations

import ast


def find_asserts(tree: ast.Module) -> list[ast.Assert]:
    """The asserts in the order of the source, without those that cannot fail (`assert True`)."""
    found: list[ast.Assert] = []
    _search(tree, found)
    return found


def _search(node: ast.AST, found: list[ast.Assert]) -> None:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Assert):
            if find_constant_truth(child) is not True:
                found.append(child)
        elif isinstance(child, (ast.stmt, ast.ExceptHandler, ast.match_case)):
            _search(child, found)


def find_constant_truth(node: ast.Assert) -> bool | None:
    """Truth of what is asserted where that is a constant; `assert False` marks a place that must not be reached."""
    return bool(node.test.value) if isinstance(node.test, ast.Constant) else None


def name_asserts(number: int, tree: ast.Module, found: list[ast.Assert]) -> list[str]:
    """A name for each assert: the number of the test alone where it has one assert and no more, else with its line.
    A test without an assert is one test: it passes if nothing is raised."""
    if not found or (len(found) == 1 and found[0] in tree.body):
        return [str(number)]
    seen: dict[str, int] = {}
    out: list[str] = []
    for node in found:
        name = f"{number}:{node.lineno}"
        seen[name] = seen.get(name, 0) + 1
        out.append(name if seen[name] == 1 else f"{name}.{seen[name]}")
    return out
