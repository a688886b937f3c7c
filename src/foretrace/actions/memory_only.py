"""Whether Python code can change nothing but the memory of its own process, so that dropping a fork undoes it."""

from __future__ import annotations

import ast
import functools
import importlib
from types import ModuleType

from foretrace.core.python_source import try_parse

_SAFE_MODULES = (
    "__future__ abc array base64 bisect cmath collections collections.abc copy dataclasses datetime decimal difflib "
    "enum fractions functools hashlib heapq itertools json math numbers random re statistics string textwrap time "
    "unicodedata"
)
"""Modules that code may import; from `typing`, only the names of types."""
_UNSAFE_NAMES = "open exec eval compile getattr globals locals vars breakpoint help"
_UNSAFE_ATTRIBUTES = (
    "open codecs sys os io builtins subprocess threading modules "
    "Formatter attrgetter methodcaller get_type_hints singledispatch singledispatchmethod ForwardRef"
)
"""Attributes through which code could reach a file or another process; the last ones look up attributes by name or
evaluate text."""
_SAFE_METHODS = "__init__ __name__ __eq__ __lt__ __repr__ __str__ __len__ __iter__ __next__ __hash__"
_MODULES, _NAMES, _ATTRIBUTES, _METHODS = (
    frozenset(names.split()) for names in (_SAFE_MODULES, _UNSAFE_NAMES, _UNSAFE_ATTRIBUTES, _SAFE_METHODS)
)


def changes_memory_only(code: str) -> bool:
    """Whether running the code changes, as far as its names tell, only the memory of its process, given that the same
    is true of all code before it. This is a check of modules and names, not a proof: code that sets out to deceive it
    may succeed. A file is then left behind by a guess that was dropped; the sandbox holds as it does for all code."""
    tree = try_parse(code)
    return tree is not None and all(map(_is_harmless, ast.walk(tree)))


def _is_harmless(node: ast.AST) -> bool:
    if isinstance(node, ast.Import):
        return all(alias.name in _MODULES for alias in node.names)
    if isinstance(node, ast.ImportFrom):
        harmless = not any(alias.name == "*" or _is_private(alias.name) for alias in node.names)
        types_only = node.module == "typing" and all(alias.name[0].isupper() for alias in node.names)
        return harmless and not node.level and (types_only or node.module in _MODULES)
    if isinstance(node, ast.MatchClass):  # reads attributes by names in `__match_args__`
        return False
    if isinstance(node, ast.Name):
        return node.id not in _NAMES and (not node.id.startswith("_") or node.id in ("_", "__name__"))
    if isinstance(node, ast.Attribute):
        own = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
        return not _is_unsafe(node.attr) and (own or not _is_private(node.attr) or node.attr in _METHODS)
    return True


def _is_private(name: str) -> bool:
    return name.startswith("_") or _is_unsafe(name)


def _is_unsafe(attribute: str) -> bool:
    return attribute in _ATTRIBUTES or attribute in _find_other_modules()


@functools.cache
def _find_other_modules() -> frozenset[str]:
    """Names under which the allowed modules hold other modules, such as `inspect` in `dataclasses`."""
    held = [item for name in _MODULES for item in vars(importlib.import_module(name)).items()]
    return frozenset(name for name, value in held if isinstance(value, ModuleType) and value.__name__ not in _MODULES)
