"""What a piece of Python code does, from its syntax tree: look up, read, write, verify or compute."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable
from functools import lru_cache

import msgspec

from foretrace.actions.meaning import Kind, Meaning, meaning, words
from foretrace.actions.sql import is_query, sql_reads
from foretrace.actions.taxonomy import Effect
from foretrace.core.python_source import try_parse

LIMIT = 30_000
"""Characters of code that are read."""
MAX_NODES = 6000
"""Nodes of the syntax tree that are visited."""

_DEFINES = re.compile(r"^(?:async[ \t]+)?(?:def|class)[ \t]+(\w+)", re.M)
_MAGIC = re.compile(r"^\s*[!%][^\n]*$", re.M)
_WRITERS = frozenset(("write_text", "write_bytes"))
_SAVERS = words("to_csv to_json to_excel to_parquet to_pickle savefig imwrite savetxt save_model")
_OTHER_WRITERS = words(
    "copy copyfile copy2 copytree move rename replace_file makedirs mkdir remove unlink rmtree rmdir symlink"
)
_READERS = words("read_text read_bytes readlines readline getsource getsourcelines print_file")
_CHECKERS = words("check_output check_call Popen system getoutput")
_PARSERS = words("parse compile safe_load load loads literal_eval")
_TELLS = words("__file__ __version__ __path__ version version_info path executable modules")


class _Facts(msgspec.Struct):
    """What the syntax tree holds."""

    called: list[str] = []
    """Names called as functions (`f(...)`)."""
    methods: list[str] = []
    """Names called as methods (`x.f(...)`)."""
    attributes: list[str] = []
    imported: list[str] = []
    defined: set[str] = set()
    queries: int = 0
    changes: int = 0
    writes: list[str] = []
    """Literal paths that are opened for writing; empty text where the path is no literal."""
    reads: int = 0
    saves: int = 0
    """Calls that save data or a figure."""
    asserts: int = 0
    project: bool = False
    """Whether it imports something that is not of the standard library."""


@lru_cache(maxsize=256)
def facts_of(code: str) -> _Facts | None:
    """Facts about the code, or null when it does not parse. Never raises."""
    text = _MAGIC.sub("pass", code[:LIMIT])
    tree = try_parse(text)
    if tree is None:
        return None
    facts = _Facts()
    todo: list[ast.AST] = [tree]
    seen = 0
    while todo and seen < MAX_NODES:
        node = todo.pop()
        seen += 1
        visit = _VISITORS.get(type(node))
        if visit is not None:
            visit(node, facts)
        todo.extend(ast.iter_child_nodes(node))
    return facts


def _on_import(node: ast.AST, facts: _Facts) -> None:
    names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
    if isinstance(node, ast.ImportFrom):
        names = ["." if node.level else node.module or "."]
    for name in names:
        root = name.split(".", 1)[0]
        facts.imported.append(root)
        facts.project = facts.project or root not in sys.stdlib_module_names


def _on_call(node: ast.AST, facts: _Facts) -> None:
    assert isinstance(node, ast.Call)
    function = node.func
    if isinstance(function, ast.Name):
        facts.called.append(function.id)
        if function.id == "open":
            _on_open(node, facts)
    elif isinstance(function, ast.Attribute):
        facts.methods.append(function.attr)
        if function.attr in _WRITERS:
            facts.writes.append(_path_of(function.value) or _literal(node.args[:1]))
        elif function.attr in _SAVERS:
            facts.saves += 1
        elif function.attr == "open" and not isinstance(function.value, ast.Name):
            _on_open(node, facts, shift=-1, path=_path_of(function.value))


def _on_open(node: ast.Call, facts: _Facts, shift: int = 0, path: str = "") -> None:
    mode = _literal(node.args[1 + shift : 2 + shift]) or next(
        (_literal([k.value]) for k in node.keywords if k.arg == "mode"), ""
    )
    if set(mode) & set("wax+"):
        facts.writes.append(path or _literal(node.args[:1]))
    else:
        facts.reads += 1


def _on_constant(node: ast.AST, facts: _Facts) -> None:
    value = getattr(node, "value", None)
    if isinstance(value, str) and len(value) > 6:
        if is_query(value):
            facts.queries += 1
        elif sql_reads(value) is False:
            facts.changes += 1


def _on_define(node: ast.AST, facts: _Facts) -> None:
    facts.defined.add(getattr(node, "name", ""))


def _on_assert(node: ast.AST, facts: _Facts) -> None:
    facts.asserts += 1


def _on_attribute(node: ast.AST, facts: _Facts) -> None:
    facts.attributes.append(getattr(node, "attr", ""))


_VISITORS: dict[type[ast.AST], Callable[[ast.AST, _Facts], None]] = {
    ast.Import: _on_import,
    ast.ImportFrom: _on_import,
    ast.Call: _on_call,
    ast.Constant: _on_constant,
    ast.FunctionDef: _on_define,
    ast.ClassDef: _on_define,
    ast.Assert: _on_assert,
    ast.Attribute: _on_attribute,
}


def _literal(nodes: list[ast.expr]) -> str:
    node = nodes[0] if nodes else None
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _path_of(node: ast.expr) -> str:
    """`Path("f")` -> f."""
    if isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", "")).endswith("Path"):
        return _literal(node.args[:1])
    return ""


def read_inline(code: str) -> Meaning:
    """What `python -c CODE` or a heredoc fed to Python means in a shell: exercising code is a check."""
    facts = facts_of(code)
    if facts is None:
        return meaning(Kind.VERIFY, "python.unparsed")
    if facts.writes:
        paths = tuple(path for path in facts.writes if path)
        return meaning(Kind.WRITE, "python.write", writes=paths, payload=code[:4000])
    if facts.asserts:
        return meaning(Kind.VERIFY, "python.assert")
    if set(facts.methods) & _OTHER_WRITERS and not facts.project:
        return meaning(Kind.OTHER, "python.files", Effect.LOCAL_WRITE)
    if set(facts.methods) & {"getsource", "getsourcelines"}:
        return meaning(Kind.READ, "python.source")
    if _only_tells(facts):
        return meaning(Kind.OTHER, "python.introspect", Effect.PURE_READ)
    if facts.project or set(facts.called + facts.methods) & (_CHECKERS | _PARSERS):
        return meaning(Kind.VERIFY, "python.exercise")
    if facts.queries:
        return meaning(Kind.SEARCH, "python.query")
    if facts.reads or set(facts.methods) & _READERS:
        return meaning(Kind.READ, "python.read")
    return meaning(Kind.OTHER, "python.compute", Effect.SANDBOX_EXEC)


def _only_tells(facts: _Facts) -> bool:
    """Whether the code only prints where a module is or what version it has."""
    if set(facts.called) - {"print", "str", "repr", "getattr", "dir", "help", "hasattr"}:
        return False
    if set(facts.called) & {"dir", "help"} and not facts.methods:
        return True
    return bool(set(facts.attributes) & _TELLS) and not set(facts.methods) - {"join", "get", "format", "dirname"}


def read_cell(code: str, lookup: Callable[[str], Kind | None]) -> Meaning:
    """What a code cell of an agent means (CodeAct, Jupyter): computing is a tool call, not a check.

    Args:
        code: Python source.
        lookup: the kind of a tool by name, or null; cells call tools as functions.
    """
    same: dict[str, object] = {"redo": "code", "payload": code[:6000], "defines": tuple(_DEFINES.findall(code[:LIMIT]))}
    facts = facts_of(code)
    if facts is None:
        return meaning(Kind.OTHER, "cell.unparsed", Effect.SANDBOX_EXEC, **same)
    if facts.writes or facts.saves:
        paths = tuple(path for path in facts.writes if path)
        return meaning(Kind.WRITE, "cell.write", writes=paths, **same)
    if facts.asserts or set(facts.imported) & {"pytest", "unittest", "doctest"}:
        return meaning(Kind.VERIFY, "cell.assert", **same)
    if facts.changes:
        return meaning(Kind.OTHER, "cell.sql_change", Effect.LOCAL_WRITE, **same)
    if facts.queries:
        return meaning(Kind.SEARCH, "cell.sql", **same)
    kinds = [kind for name in facts.called if name not in facts.defined and (kind := lookup(name)) is not None]
    if kinds:
        kind = max(kinds)
        effect = None if kind is not Kind.OTHER else Effect.UNKNOWN
        return meaning(kind, f"cell.{kind.name.lower()}", effect, **same)
    if facts.reads and not facts.project:
        return meaning(Kind.READ, "cell.read", **same)
    return meaning(Kind.OTHER, "cell.compute", Effect.SANDBOX_EXEC, **same)
