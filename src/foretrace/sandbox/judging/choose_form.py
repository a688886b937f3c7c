"""Whether tests can be judged by calls alone, with their own process: read from their text."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence

from foretrace.sandbox.judging.answer_uses import ALIAS, AnswerUses, find_check_function

_PURE = frozenset({
    "math", "cmath", "itertools", "collections", "functools", "operator", "string", "re", "json", "copy",
    "statistics", "heapq", "bisect", "datetime", "decimal", "fractions", "typing", "unittest", "pytest", "textwrap",
    "dataclasses", "abc", "numbers", "calendar", "hashlib", "base64", "struct", "array", "time", "random",
    "__future__",
})  # fmt: skip
"""Modules that hold no state which tests and answer could share (`random` apart, see `RANDOM_WORD`)."""
RANDOM_WORD = "random"
"""An answer with this word is judged in one process with tests that use random numbers, too."""
_SHARED_STATE = re.compile(
    r"\b(open|input|print|exec|eval|compile|globals|locals|vars|getcontext|localcontext|monkeypatch|capsys|capfd|caplog"
    r"|tmp_path|tmpdir|recwarn|setrecursionlimit|mock|warns|deprecated_call|async|await|seed|StopIteration|StopAsyncIteration"
    r"|__\w+__)\b"
)
"""Words of tests that look at, or change, what only one process has."""
_CHANGING = frozenset({
    "append", "extend", "insert", "remove", "pop", "popitem", "clear", "sort", "reverse", "add", "discard", "update",
    "setdefault", "appendleft",
})  # fmt: skip
"""Methods of containers that change them."""
_ALLOWED = re.compile(r"__(name|main|future|init|eq|lt|hash|repr|str|add|len)__")


def needs_one_process(trees: Sequence[ast.Module], setup: ast.Module, uses: AnswerUses, classes: Sequence[str]) -> bool:
    """Whether tests use of the answer anything but calls of functions, or state that it shares with them."""
    if uses.exceptions or uses.setup_reaches_code or set(classes) & uses.callees:
        return True
    if any(name.lstrip("_")[:1].isupper() for name in uses.callees):
        return True
    for tree in (setup, *trees):
        if _shares_state(tree) or _changes_result(tree, uses) or _uses_object(tree, uses):
            return True
    return False


def _shares_state(tree: ast.Module) -> bool:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import) and any(alias.name not in _PURE for alias in node.names):
            return True
        if isinstance(node, ast.ImportFrom) and (node.level or node.module not in _PURE):
            return True
        is_identity = isinstance(node, ast.Compare) and any(isinstance(op, (ast.Is, ast.IsNot)) for op in node.ops)
        if is_identity and not isinstance(node.comparators[0], ast.Constant):  # type: ignore[attr-defined]
            return True
        if isinstance(node, ast.ClassDef) and not node.name.startswith("Test"):
            return True  # its objects may be handed over
    words = set(_SHARED_STATE.findall(_without_texts(tree)))
    return any(not _ALLOWED.fullmatch(word) for word in words)


def _without_texts(tree: ast.Module) -> str:
    names = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            names.append(node.id)
        elif isinstance(node, ast.Attribute):
            names.append(node.attr)
        elif isinstance(node, ast.arg):
            names.append(node.arg)
        elif isinstance(node, (ast.AsyncFunctionDef, ast.Await, ast.AsyncFor, ast.AsyncWith)):
            names.append("async")
    return " ".join(names)


def _changes_result(tree: ast.Module, uses: AnswerUses) -> bool:
    """Whether tests change what the answer gave, which may still be the answer's."""

    def is_given(node: ast.expr) -> bool:
        return isinstance(node, ast.Call) and getattr(node.func, "id", "") in (*uses.callees, ALIAS)

    nodes = list(ast.walk(tree))
    given = {
        getattr(target, "id", "")
        for node in nodes
        if isinstance(node, ast.Assign) and is_given(node.value)
        for target in node.targets
    } - {""}
    parts = [node for node in nodes if isinstance(node, (ast.Attribute, ast.Subscript))]
    return any(
        (is_given(part.value) or getattr(part.value, "id", "") in given)
        and (getattr(part, "attr", "") in _CHANGING or not isinstance(part.ctx, ast.Load))
        for part in parts
    )


def _uses_object(tree: ast.Module, uses: AnswerUses) -> bool:
    """Whether a function of the answer is used otherwise than called, or handed to something that calls it."""
    check = find_check_function(tree)
    names = {*uses.callees, ALIAS, *([check[1]] if check else ())}
    plain: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            plain.update(map(id, (node.func, *node.args)))
    return any(
        isinstance(node, ast.Name) and node.id in names and isinstance(node.ctx, ast.Load) and id(node) not in plain
        for node in ast.walk(tree)
    )
