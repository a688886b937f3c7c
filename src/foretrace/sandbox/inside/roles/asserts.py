"""The asserts of test code: which there are, what they are called, and code that records each instead of stopping."""

from __future__ import annotations

import ast

RECORDER = "__recorder__"
"""Name of the recorder in the namespace of instrumented code."""


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
    """A name for each assert: the number of the test alone where it has one assert and no more, else with its line."""
    if len(found) == 1 and found[0] in tree.body:
        return [str(number)]
    seen: dict[str, int] = {}
    out: list[str] = []
    for node in found:
        name = f"{number}:{node.lineno}"
        seen[name] = seen.get(name, 0) + 1
        out.append(name if seen[name] == 1 else f"{name}.{seen[name]}")
    return out


def find_branches(tree: ast.Module) -> list[dict[int, int]]:
    """For each assert of `find`, in which branch (value) of which `if` or `match` (key) it stands."""
    out: list[dict[int, int]] = []

    def visit(node: ast.AST, path: dict[int, int]) -> None:
        if isinstance(node, ast.Assert):
            if find_constant_truth(node) is not True:
                out.append(path)
            return
        if isinstance(node, ast.If):
            parts: list[list[ast.AST]] = [[*node.body], [*node.orelse]]
        elif isinstance(node, ast.Match):
            parts = [[case] for case in node.cases]
        else:
            for child in ast.iter_child_nodes(node):
                if isinstance(child, (ast.stmt, ast.ExceptHandler)):
                    visit(child, path)
            return
        for branch, part in enumerate(parts):
            for child in part:
                for inner in child.body if isinstance(child, ast.match_case) else [child]:
                    visit(inner, {**path, id(node): branch})

    visit(tree, {})
    return out


class AssertInstrumenter(ast.NodeTransformer):
    """Replaces the asserts of a tree, which are numbered as `find` gives them."""

    def __init__(self, callees: frozenset[str]) -> None:
        self._next = 0
        self._callees = callees

    def visit_Assert(self, node: ast.Assert) -> ast.stmt | None:
        """Code that tells the recorder what became of this assert, and goes on."""
        if find_constant_truth(node) is True:
            return ast.copy_location(ast.Pass(), node)
        test, number = node.test, ast.Constant(self._next)
        self._next += 1
        if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.Eq):
            swapped = self._calls(test.comparators[0]) and not self._calls(test.left)
            record = self._call_recorder("compare", number, test.left, test.comparators[0], ast.Constant(swapped))
        else:
            record = self._call_recorder("truth", number, test)
        # A bare `except`: what is raised belongs to this test, whatever it is.
        handler = ast.ExceptHandler(None, None, [self._call_recorder("raised", ast.Constant(number.value))])
        attempt = ast.Try(body=[record], handlers=[handler], orelse=[], finalbody=[])
        return ast.fix_missing_locations(ast.copy_location(attempt, node))

    def _calls(self, node: ast.AST) -> bool:
        return any(isinstance(part, ast.Name) and part.id in self._callees for part in ast.walk(node))

    def _call_recorder(self, method: str, *args: ast.expr) -> ast.Expr:
        recorder = ast.Attribute(ast.Name(RECORDER, ast.Load()), method, ast.Load())
        return ast.Expr(ast.Call(recorder, list(args), []))
