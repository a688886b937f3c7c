"""What test code uses of the answer, read from its text."""

from __future__ import annotations

import ast
import builtins
import re
from collections import deque
from collections.abc import Iterator, Sequence
from datetime import date
from decimal import Decimal

import msgspec

ALIAS = "candidate"
_CLASS_STATEMENT = re.compile(r"^class[ \t]+(\w+)[ \t]*[(:]", re.MULTILINE)

_PLAIN_METHODS = frozenset(
    name
    for kind in (str, bytes, int, float, complex, tuple, list, set, dict, deque, date, Decimal)
    for name in dir(kind)
)
"""Methods of values that a function may return."""


class AnswerUses(msgspec.Struct, frozen=True, kw_only=True):
    """What a set of tests uses of the answer."""

    entry_point: str | None
    callees: frozenset[str]
    """The answer's own names: the entry point, and names that nothing else defines."""
    setup_names: frozenset[str]
    """Names that the setup gives a meaning to, imports aside."""
    exceptions: frozenset[str]
    shadowed: frozenset[str]
    """Names that mean something of the tests' own, or of a module that is neither `math` nor `pytest`."""
    setup_reaches_code: bool
    """Whether the setup uses names that only the answer can have, so that what it defines may be made of them."""


def find_answer_uses(trees: Sequence[ast.Module], entry_point: str | None, setup: ast.Module) -> AnswerUses:
    """Read what the tests use."""
    setup_names = frozenset(find_bound(setup))
    imported = {
        name for node in setup.body if isinstance(node, (ast.Import, ast.ImportFrom)) for name in find_bound(node)
    }
    own = {entry_point} if entry_point else set[str]()
    callees: set[str] = set(own)
    caught: set[str] = set()
    for tree in trees:
        free = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} - set(find_bound(tree))
        callees |= {name for name in free - setup_names - {ALIAS} if not hasattr(builtins, name)}
        caught |= set(_find_caught(tree))
    exceptions = (caught & callees) - own
    lacking = {node.id for node in ast.walk(setup) if isinstance(node, ast.Name)} - setup_names
    return AnswerUses(
        entry_point=entry_point,
        callees=frozenset(callees - exceptions),
        setup_names=setup_names - imported - own,
        exceptions=frozenset(exceptions),
        shadowed=frozenset(own.union(*(_find_shadowed(tree) for tree in (setup, *trees)))),
        setup_reaches_code=any(not hasattr(builtins, name) for name in lacking),
    )


def find_classes(trees: Sequence[ast.Module], prompt: str) -> tuple[str, ...]:
    """Names that the prompt defines as classes, or of which tests ask whether something is one."""
    found = set(_CLASS_STATEMENT.findall(prompt))
    for node in (node for tree in trees for node in ast.walk(tree)):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("isinstance", "issubclass") and node.args:
            found |= {part.id for part in ast.walk(node.args[-1]) if isinstance(part, ast.Name)}
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Call) and node.attr not in _PLAIN_METHODS:
            found.add(getattr(node.value.func, "id", ""))  # make(1).name
    return tuple(sorted(found - {""}))


def find_check_function(tree: ast.Module) -> tuple[str, str, bool] | None:
    """Of the function `check`: its name, its parameter's, and whether the code itself calls it. None without one."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == "check" and node.args.args:
            calls = (other.value for other in tree.body if isinstance(other, ast.Expr))
            called = any(isinstance(call, ast.Call) and getattr(call.func, "id", "") == "check" for call in calls)
            return node.name, node.args.args[0].arg, called
    return None


def find_bound(tree: ast.AST) -> Iterator[str]:
    """All names that code gives a meaning to, anywhere in it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            yield node.id
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            yield from (alias.asname or alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar)) and node.name:
            yield node.name


def _find_shadowed(tree: ast.Module) -> set[str]:
    known: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            known |= {alias.name for alias in node.names if alias.name in ("math", "pytest") and not alias.asname}
        elif isinstance(node, ast.ImportFrom) and node.module in ("math", "pytest"):
            known |= {alias.name for alias in node.names if not alias.asname}
    return set(find_bound(tree)) - known


def _find_caught(tree: ast.Module) -> Iterator[str]:
    """Names that code expects as exceptions: in `except`, and as the first argument of `raises`."""
    for node in ast.walk(tree):
        kinds: list[ast.expr] = []
        if isinstance(node, ast.ExceptHandler) and node.type:
            kinds = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
        elif isinstance(node, ast.Call) and node.args and getattr(node.func, "attr", "") in ("raises", "assertRaises"):
            kinds = [node.args[0]]
        yield from (kind.id for kind in kinds if isinstance(kind, ast.Name))
