"""Rules for Python code: decide by its syntax tree whether it looks up, reads, writes, verifies or computes."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import msgspec

from foretrace.actions.call_facts import CallFacts, CallKind, split_words
from foretrace.actions.rules import make_facts
from foretrace.actions.sql_rules import is_read_only_sql, is_sql_query
from foretrace.core.python_source import try_parse

MAX_CHARACTERS = 30_000
MAX_NODES = 6000

_DEFINITION = re.compile(r"^(?:async[ \t]+)?(?:def|class)[ \t]+(\w+)", re.M)
_MAGIC = re.compile(r"^\s*[!%][^\n]*$", re.M)
_TEXT_WRITERS = frozenset(("write_text", "write_bytes"))
_DATA_SAVERS = split_words("to_csv to_json to_excel to_parquet to_pickle savefig imwrite savetxt save_model")
_FILE_MOVERS = split_words(
    "copy copyfile copy2 copytree move rename replace_file makedirs mkdir remove unlink rmtree rmdir symlink"
)
_FILE_READERS = split_words("read_text read_bytes readlines readline getsource getsourcelines print_file")
_PROCESS_STARTERS = split_words("check_output check_call Popen system getoutput")
_COMMAND_STARTERS = _PROCESS_STARTERS | split_words("run call popen getstatusoutput")
_PARSERS = split_words("parse compile safe_load load loads literal_eval")
_SHOWING = split_words("print str repr getattr dir help hasattr join get format dirname")
"""Functions and methods of code that may only print where a module is or what version it has."""
_MODULE_INFO = split_words("__file__ __version__ __path__ version version_info path executable modules")

_VARIABLE = "\0"
"""Begins a path that is only known as a variable so far."""


class _CodeFacts(msgspec.Struct):
    """The contents of the syntax tree of a piece of code."""

    function_calls: set[str] = set()
    method_calls: set[str] = set()
    attributes: set[str] = set()
    imports: set[str] = set()
    definitions: set[str] = set()
    queries: int = 0
    changes: int = 0
    writes: list[str] = []
    """Paths that it opens for writing; empty text where the path is not a literal."""
    paths: dict[str, str] = {}
    """Variable -> the path that it was last set to."""
    reads: int = 0
    saves: int = 0
    asserts: int = 0
    checks: int = 0
    """Signs of code that checks something: comparisons, exceptions that it raises or catches."""
    strings: list[str] = []
    """Its string constants of up to 400 characters."""
    started: list[list[str]] = []
    """The words of commands that it starts; a single text for a shell."""
    written: list[str] = []
    appends: bool = False
    replaced: list[tuple[str, str]] = []
    """Texts that it replaces, each with the new text."""
    removed: list[tuple[str, str]] = []
    """Paths that it removes or moves, each with the new path, or empty text."""
    imports_project: bool = False


@lru_cache(maxsize=256)
def collect_code_facts(code: str) -> _CodeFacts | None:
    """Collect facts about the code; `None` if it does not parse. Never raises."""
    text = _MAGIC.sub("pass", code[:MAX_CHARACTERS])
    tree = try_parse(text)
    if tree is None:
        return None
    facts = _CodeFacts()
    todo: list[ast.AST] = [tree]
    seen = 0
    while todo and seen < MAX_NODES:
        node = todo.pop()
        seen += 1
        visit = _VISITORS.get(type(node))
        if visit is not None:
            visit(node, facts)
        todo.extend(ast.iter_child_nodes(node))
    facts.writes = [facts.paths.get(path[1:], "") if path.startswith(_VARIABLE) else path for path in facts.writes]
    return facts


def _add_import(node: ast.Import | ast.ImportFrom, facts: _CodeFacts) -> None:
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    else:
        names = ["." if node.level else node.module or "."]
    for name in names:
        root = name.split(".", 1)[0]
        facts.imports.add(root)
        facts.imports_project = facts.imports_project or root not in sys.stdlib_module_names


def _add_call(node: ast.Call, facts: _CodeFacts) -> None:
    function = node.func
    _add_texts(node, getattr(function, "id", getattr(function, "attr", "")), facts)
    if isinstance(function, ast.Name):
        facts.function_calls.add(function.id)
        if function.id == "open":
            _add_open(node, facts)
    elif isinstance(function, ast.Attribute):
        facts.method_calls.add(function.attr)
        if function.attr in _TEXT_WRITERS:
            known = _get_path(function.value) or _get_variable(function.value)
            facts.writes.append(known or _get_literal(node.args[:1]))
        elif function.attr in _DATA_SAVERS:
            facts.saves += 1
        elif function.attr == "open" and not isinstance(function.value, ast.Name):
            _add_open(node, facts, shift=-1, path=_get_path(function.value))


def _add_texts(node: ast.Call, name: str, facts: _CodeFacts) -> None:
    """Note the literal texts that a call starts, writes, replaces or removes."""
    first = node.args[0] if node.args else None
    texts = [_get_literal([argument]) for argument in node.args[:2]]
    if name in _COMMAND_STARTERS and first is not None:
        words = first.elts if isinstance(first, (ast.List, ast.Tuple)) else [first]
        facts.started.append([_get_literal([word]) or ast.unparse(word) for word in words])
    elif name in ("write", *_TEXT_WRITERS) and texts:
        facts.written.append(texts[0])
    elif name in ("replace", "sub") and len(texts) == 2 and texts[0]:
        facts.replaced.append((texts[0], texts[1]))
    elif name in ("remove", "unlink", "rmtree") and texts and texts[0]:
        facts.removed.append((texts[0], ""))
    elif name in ("rename", "move") and len(texts) == 2 and texts[0]:
        facts.removed.append((texts[0], texts[1]))


def _add_open(node: ast.Call, facts: _CodeFacts, shift: int = 0, path: str = "") -> None:
    mode = _get_literal(node.args[1 + shift : 2 + shift]) or next(
        (_get_literal([k.value]) for k in node.keywords if k.arg == "mode"), ""
    )
    if set(mode) & set("wax+"):
        named = _get_variable(node.args[0]) if node.args and not shift else ""
        facts.writes.append(path or _get_literal(node.args[:1]) or named)
        facts.appends = facts.appends or "a" in mode
    else:
        facts.reads += 1


def _add_assignment(node: ast.Assign, facts: _CodeFacts) -> None:
    path = _get_literal([node.value]) or _get_path(node.value)
    for target in node.targets:
        if path and isinstance(target, ast.Name):
            facts.paths[target.id] = path


def _add_constant(node: ast.Constant, facts: _CodeFacts) -> None:
    value = node.value
    if not isinstance(value, str):
        return
    if len(value) <= 400:
        facts.strings.append(value)
    if len(value) > 6:
        reads = is_read_only_sql(value)
        facts.changes += reads is False
        facts.queries += reads is not False and is_sql_query(value)


def _count(field: str) -> Callable[[ast.AST, _CodeFacts], None]:
    return lambda node, facts: setattr(facts, field, getattr(facts, field) + 1)


_VISITORS: dict[type[ast.AST], Callable[[Any, _CodeFacts], None]] = {
    ast.Assign: _add_assignment,
    ast.Import: _add_import,
    ast.ImportFrom: _add_import,
    ast.Call: _add_call,
    ast.Constant: _add_constant,
    **dict.fromkeys((ast.FunctionDef, ast.ClassDef), lambda node, facts: facts.definitions.add(node.name)),
    ast.Assert: _count("asserts"),
    **dict.fromkeys((ast.Compare, ast.Raise, ast.Try), _count("checks")),
    ast.Attribute: lambda node, facts: facts.attributes.add(node.attr),
}


def _get_literal(nodes: list[ast.expr]) -> str:
    node = nodes[0] if nodes else None
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _get_variable(node: ast.expr) -> str:
    return f"{_VARIABLE}{node.id}" if isinstance(node, ast.Name) else ""


def _get_path(node: ast.expr) -> str:
    if isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", "")).endswith("Path"):
        return _get_literal(node.args[:1])
    return ""


def classify_inline_python(code: str) -> CallFacts:
    """Classify `python -c CODE` or a heredoc for Python, in which running the project's code is a check."""
    facts = collect_code_facts(code)
    if facts is None:
        return make_facts("python.unparsed")
    if facts.writes:
        return make_facts("python.write", writes=tuple(filter(None, facts.writes)), payload=code[:4000])
    calls, methods = facts.function_calls | facts.method_calls, facts.method_calls
    exercises = facts.imports_project or calls & _PROCESS_STARTERS
    shows_file = facts.reads or methods & _FILE_READERS
    only_shows_module = not calls - _SHOWING and (calls & {"dir", "help"} or facts.attributes & _MODULE_INFO)
    rules = (
        ("python.assert", facts.asserts),
        ("python.read", shows_file and "print" in facts.function_calls and not (exercises or facts.checks)),
        ("python.files", methods & _FILE_MOVERS and not facts.imports_project),
        ("python.source", methods & {"getsource", "getsourcelines"}),
        ("python.introspect", only_shows_module),
        ("python.exercise", exercises or calls & _PARSERS),
        ("python.sql_change", facts.changes),
        ("python.query", facts.queries),
        ("python.read", shows_file),
    )
    return make_facts(next((rule for rule, holds in rules if holds), "python.compute"))


def classify_cell(code: str, find_kind: Callable[[str], CallKind | None]) -> CallFacts:
    """Classify an agent's code cell (CodeAct, Jupyter), in which running code is a tool call, not a check. Cells call
    tools as functions: `find_kind` returns the kind of a tool by its name, or `None`."""
    common: dict[str, object] = {
        "retry_key": "code",
        "payload": code[:6000],
        "defines": tuple(_DEFINITION.findall(code[:MAX_CHARACTERS])),
    }
    facts = collect_code_facts(code)
    if facts is None:
        return make_facts("cell.unparsed", **common)
    if facts.writes or facts.saves:
        return make_facts("cell.write", writes=tuple(filter(None, facts.writes)), **common)
    kinds = [kind for name in facts.function_calls - facts.definitions if (kind := find_kind(name)) is not None]
    rules = (
        ("cell.assert", facts.asserts or facts.imports & {"pytest", "unittest", "doctest"}),
        ("cell.sql_change", facts.changes),
        ("cell.sql", facts.queries),
        (f"cell.{max(kinds).name.lower()}" if kinds else "", kinds),
        ("cell.read", facts.reads and not facts.imports_project),
    )
    return make_facts(next((rule for rule, holds in rules if holds), "cell.compute"), **common)
