"""Replace the old definition of a function or class with a new one, in code written block by block."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from foretrace.core.python_source import try_parse

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_DEFINITIONS = (*_FUNCTIONS, ast.ClassDef)
_DEFINES = re.compile(r"(?:async[ \t]+)?(?:def|class)[ \t]+(\w+)")
_LINE = re.compile(r"\r\n?|\n")


class Replacement(NamedTuple):
    """The blocks after a new definition has replaced the old one."""

    start: int
    """Index of the first block that changes."""
    blocks: list[str]
    """The blocks from there on."""


def find_replacements(blocks: Sequence[str], fix: str) -> list[Replacement]:
    """Ways to replace older definitions with those of `fix`, the best first; empty if that is not safe.

    The new definitions take the place of the first old one. Other old definitions of these names are removed; the rest
    of the earlier blocks stays. Statements of the fix that define nothing come last, as they did when it ran.
    A fix that needs what it replaces (`old = f` before a new `f`), or whose function has a second name (`old = f` in a
    later block), has no replacement: the new definition is then placed after the old one.
    """
    tree = _parse(fix)
    if tree is None:
        return []
    names = _find_defined_names(tree)
    trees = [_parse(block) for block in blocks]
    changed = [index for index, found in enumerate(trees) if found is not None and _find_defined_names(found) & names]
    if not changed:
        return []
    start = changed[0]
    behind = [found for found in trees[start:] if found is not None]
    if _uses_old_definition(tree, names) or any(_has_alias(found, names) for found in (tree, *behind)):
        return []
    before, after = _split_around(blocks[start], names)
    later = [_remove_definitions(block, names) for block in blocks[start + 1 :]]
    head, tail = _split_definitions(fix, tree)
    whole = Replacement(start, _drop_empty([before, fix, after, *later]))
    if not tail.strip():
        return [whole]
    best = Replacement(start, _drop_empty([before, head, after, *later, tail]))
    sets = _find_names_set(tree) - names
    return [best] if any(_find_names_set(found) & sets for found in behind) else [best, whole]


@lru_cache(maxsize=64)
def _parse(code: str) -> ast.Module | None:
    return try_parse(code)  # cached, since each fix looks at the same blocks again


def replace_unrun(code: str, fix: str) -> str | None:
    """Code that was never run, with old definitions replaced by those of `fix`; `None` if there are none, or if a name
    could be used before it is set.

    If the code has a syntax error, the lines of the old definitions are removed, if it is valid without them.
    """
    for replacement in find_replacements([code], fix):
        text = "\n\n".join(replacement.blocks)
        if (tree := _parse(text)) is not None and not _uses_name_too_early(tree):
            return text
    tree = _parse(fix)
    if tree is None or _parse(code) is not None:
        return None
    left = _remove_broken_definitions(code, _find_defined_names(tree))
    return f"{left}\n\n{fix}" if left != code and _parse(f"{left}\n\n{fix}") is not None else None


def _uses_name_too_early(tree: ast.Module) -> bool:
    """Whether a statement reads a name that is only set by a later one."""
    later = _find_names_set(tree)
    for node in tree.body:
        if _find_names_read(node) & (later - _find_names_set(node)):
            return True
        later -= _find_names_set(node)
    return False


def _remove_broken_definitions(code: str, names: set[str]) -> str:
    """The code without the first lines of definitions of the names, and the indented lines after these."""
    kept: list[str] = []
    removing = False
    for line in _split_lines(code):
        begins = _DEFINES.match(line)
        if begins:
            removing = begins.group(1) in names
        elif line.strip() and not line.startswith((" ", "\t", ")")):
            removing = False
        if not removing:
            kept.append(line)
    return "\n".join(kept)


def _find_defined_names(tree: ast.Module) -> set[str]:
    return {node.name for node in tree.body if isinstance(node, _DEFINITIONS)}


def _uses_old_definition(tree: ast.Module, names: set[str]) -> bool:
    """Whether the code reads one of the names before defining it itself."""
    defined: set[str] = set()
    for node in tree.body:
        if _find_names_read(node) & (names - defined):
            return True
        if isinstance(node, _DEFINITIONS):
            defined.add(node.name)
    return False


def _has_alias(tree: ast.Module, names: set[str]) -> bool:
    """Whether one of the functions gets a second name, by which the new one may call the old one."""
    values = (
        node.value for statement in tree.body for node in _walk_executed(statement) if isinstance(node, ast.Assign)
    )
    return any(isinstance(value, ast.Name) and value.id in names for value in values)


def _find_names_read(node: ast.AST) -> set[str]:
    return {n.id for n in _walk_executed(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}


def _find_names_set(tree: ast.AST) -> set[str]:
    """Names that are set by running the code."""
    found: set[str] = set()
    for node in _walk_executed(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, _DEFINITIONS):
            found.add(node.name)
        elif isinstance(node, ast.alias):
            found.add(node.asname or node.name.partition(".")[0])
    return found


def _walk_executed(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes executed by a statement: all except the bodies of functions."""
    todo = [node]
    while todo:
        node = todo.pop()
        yield node
        if isinstance(node, _FUNCTIONS):
            todo += [*node.decorator_list, node.args, *([node.returns] if node.returns else [])]
        elif isinstance(node, ast.Lambda):
            todo.append(node.args)
        else:
            todo += ast.iter_child_nodes(node)


def _split_lines(code: str) -> list[str]:
    return _LINE.split(code)


def _find_line_range(node: ast.stmt) -> range:
    """0-based lines of a statement, decorators included."""
    decorators = node.decorator_list if isinstance(node, _DEFINITIONS) else []
    return range(min(n.lineno for n in (node, *decorators)) - 1, node.end_lineno or node.lineno)


def _split_around(code: str, names: set[str]) -> tuple[str, str]:
    """The code before the first definition of the names, and the code after it without further definitions."""
    tree = _parse(code) or ast.Module([], [])
    first = next(_find_line_range(n) for n in tree.body if isinstance(n, _DEFINITIONS) and n.name in names)
    lines = _split_lines(code)
    cut = "\n".join(lines[: first.start])
    return cut, _remove_definitions("\n" * first.start + "\n".join(lines[first.start :]), names)


def _remove_definitions(code: str, names: set[str]) -> str:
    tree = _parse(code)
    if tree is None:
        return code
    removed = {row for n in tree.body if isinstance(n, _DEFINITIONS) and n.name in names for row in _find_line_range(n)}
    return "\n".join(line for row, line in enumerate(_split_lines(code)) if row not in removed) if removed else code


def _split_definitions(code: str, tree: ast.Module) -> tuple[str, str]:
    """The imports and definitions, and the rest; comments stay with the statement that follows."""
    head: list[str] = []
    tail: list[str] = []
    lines, at = _split_lines(code), 0
    kinds = (*_DEFINITIONS, ast.Import, ast.ImportFrom)
    for node in tree.body:
        end = _find_line_range(node).stop
        (head if isinstance(node, kinds) else tail).extend(lines[at:end])
        at = max(at, end)
    tail += lines[at:]
    return "\n".join(head), "\n".join(tail)


def _drop_empty(blocks: Sequence[str]) -> list[str]:
    """The blocks that contain a statement or cannot be parsed."""
    return [b.strip("\n") for b in blocks if (tree := _parse(b)) is None or tree.body]
