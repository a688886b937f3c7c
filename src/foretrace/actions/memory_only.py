"""Whether Python code can change nothing but the memory of its own process, so that dropping a fork undoes it."""

from __future__ import annotations

import ast

from foretrace.core.python_source import try_parse

_SAFE_MODULES = (
    "__future__ abc array base64 bisect cmath collections copy dataclasses datetime decimal difflib enum fractions "
    "functools hashlib heapq itertools json math numbers operator random re statistics string textwrap time typing "
    "unicodedata"
)
"""What code may import."""
_UNSAFE_NAMES = "open exec eval compile __import__ getattr globals locals vars breakpoint __builtins__"
_UNSAFE_ATTRIBUTES = "open codecs sys os io builtins subprocess threading modules"
"""Attributes of modules through which code could reach a file or another process."""
_SAFE_METHODS = "__init__ __name__ __eq__ __lt__ __repr__ __str__ __len__ __iter__ __next__ __hash__"
_MODULES, _NAMES, _ATTRIBUTES, _METHODS = (
    frozenset(names.split()) for names in (_SAFE_MODULES, _UNSAFE_NAMES, _UNSAFE_ATTRIBUTES, _SAFE_METHODS)
)


def changes_memory_only(code: str) -> bool:
    """Whether running the code can only change the memory of its process, given that the same is true of all that it
    calls; what is not known to be so is not. A mistake costs a wrong result of a guess, and is no hole in the jail."""
    tree = try_parse(code)
    return tree is not None and all(map(_is_harmless, ast.walk(tree)))


def _is_harmless(node: ast.AST) -> bool:
    if isinstance(node, ast.Import):
        return all(alias.name.partition(".")[0] in _MODULES for alias in node.names)
    if isinstance(node, ast.ImportFrom):
        harmless = not any(alias.name == "*" or _is_private(alias.name) for alias in node.names)
        return harmless and not node.level and (node.module or "").partition(".")[0] in _MODULES
    if isinstance(node, ast.Name):
        return node.id not in _NAMES
    if isinstance(node, ast.Attribute):
        own = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
        return node.attr not in _ATTRIBUTES and (own or not _is_private(node.attr) or node.attr in _METHODS)
    return True


def _is_private(name: str) -> bool:
    return name.startswith("_") or name in _ATTRIBUTES
