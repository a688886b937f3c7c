"""What test code uses of the answer and of pytest, and whether it needs one process, determined from its text."""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Sequence

import msgspec

from foretrace.sandbox.inside.pytest_stand_in import make_module

ALIAS = "candidate"
RANDOM_WORD = "random"
"""If both the answer and its tests have this word, they are judged in one process."""
Function = ast.FunctionDef | ast.AsyncFunctionDef
_KNOWN_OF_PYTEST = frozenset(vars(make_module())) | {"fixture(autouse)", "fixture(scope)"}
_PURE = re.compile(
    "math|cmath|itertools|collections|functools|operator|string|re|json|copy|statistics|heapq|bisect|datetime|decimal"
    "|fractions|typing|unittest|pytest|textwrap|dataclasses|abc|numbers|calendar|hashlib|base64|struct|array|time"
    "|random|__future__"
)
"""Modules without state that tests and answer could share (except `random`, see `RANDOM_WORD`)."""
_SHARED_STATE = re.compile(
    r"open|input|print|exec|eval|compile|globals|locals|vars|getcontext|localcontext|monkeypatch|capsys|capfd|caplog"
    r"|tmp_path|tmpdir|recwarn|setrecursionlimit|mock|warns|deprecated_call|seed|StopIteration|StopAsyncIteration"
    r"|__(?!(name|main|future|init|eq|lt|hash|repr|str|add|len)__)\w+__"
)
"""Names in tests that read or change the state of a process."""
_CHANGING = re.compile(
    "append|extend|insert|remove|pop|popitem|clear|sort|reverse|add|discard|update|setdefault|appendleft"
)
"""Methods of containers that change them."""


class AnswerUses(msgspec.Struct, frozen=True, kw_only=True):
    entry_point: str | None
    callees: frozenset[str]
    """The answer's own names: the entry point, and names that nothing else defines."""
    setup_names: frozenset[str]
    """Names that the setup defines, except imports."""
    shadowed: frozenset[str]
    """Names that the tests define, or import from modules other than `math` and `pytest`."""
    setup_reaches_code: bool
    """Whether the setup uses names that only the answer can define, so that its own names may depend on the answer."""


def find_answer_uses(trees: Sequence[ast.Module], entry_point: str | None, setup: ast.Module) -> AnswerUses:
    setup_names = _find_bound(setup)
    imported = {name for node in setup.body if isinstance(node, _IMPORTS) for name in _find_bound(node)}
    own = {entry_point} if entry_point else set[str]()
    return AnswerUses(
        entry_point=entry_point,
        callees=frozenset(own.union(*(_find_free(tree) - setup_names - {ALIAS} for tree in trees))),
        setup_names=frozenset(setup_names - imported - own),
        shadowed=frozenset(own.union(*(_find_bound(tree) - _find_known(tree) for tree in (setup, *trees)))),
        setup_reaches_code=bool(_find_free(setup)),
    )


_IMPORTS = ast.Import | ast.ImportFrom


def _find_bound(tree: ast.AST) -> set[str]:
    """All names that code binds, anywhere in it."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            found.add(node.id)
        elif isinstance(node, ast.arg):
            found.add(node.arg)
        elif isinstance(node, _IMPORTS):
            found |= {alias.asname or alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, Function | ast.ClassDef | ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
            found.add(node.name)
    return found


def _find_free(tree: ast.Module) -> set[str]:
    """Names that code uses, but that neither it nor builtins define."""
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    return names - _find_bound(tree) - vars(builtins).keys()


def _find_known(tree: ast.Module) -> set[str]:
    """Names that are imported from `math` or `pytest`."""
    known: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, _IMPORTS):
            module = getattr(node, "module", None)
            plain = [alias.name for alias in node.names if not alias.asname]
            known |= {name for name in plain if (module or name) in ("math", "pytest")}
    return known


def find_check_function(tree: ast.Module) -> tuple[str, bool] | None:
    """For the function `check`: its parameter's name, and whether the code calls it. None without such a function."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == "check" and node.args.args:
            calls = (other.value for other in tree.body if isinstance(other, ast.Expr))
            called = any(isinstance(call, ast.Call) and getattr(call.func, "id", "") == "check" for call in calls)
            return node.args.args[0].arg, called
    return None


def needs_one_process(trees: Sequence[ast.Module], setup: ast.Module, uses: AnswerUses) -> bool:
    """Whether tests use anything of the answer other than function calls, or state that they share with it."""
    if uses.setup_reaches_code or any(name.lstrip("_")[:1].isupper() for name in uses.callees):
        return True
    return any(_shares_state(tree) or _handles_objects(tree, uses) for tree in (setup, *trees))


def _shares_state(tree: ast.Module) -> bool:
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names) if not all(_PURE.fullmatch(alias.name) for alias in names):
                return True
            case ast.ImportFrom(level=level, module=module) if level or not _PURE.fullmatch(module or ""):
                return True
            case ast.Compare(ops=ops, comparators=[first, *_]) if not isinstance(first, ast.Constant):
                if any(isinstance(op, ast.Is | ast.IsNot) for op in ops):
                    return True
            case ast.ClassDef(name=name) if not name.startswith("Test"):
                return True  # its objects may be passed to the answer
            case ast.AsyncFunctionDef() | ast.Await() | ast.AsyncFor() | ast.AsyncWith():
                return True
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name) if _SHARED_STATE.fullmatch(name):
                return True
            case _:
                pass
    return False


def _handles_objects(tree: ast.Module, uses: AnswerUses) -> bool:
    """Whether tests use a function of the answer other than by calling it or passing it as an argument, or change its
    return value, which the answer may still hold."""
    check = find_check_function(tree)
    functions = {*uses.callees, ALIAS, *([check[0]] if check else ())}
    nodes = list(ast.walk(tree))
    plain = {id(part) for node in nodes if isinstance(node, ast.Call) for part in (node.func, *node.args)}

    def is_given(node: ast.expr) -> bool:
        return isinstance(node, ast.Call) and getattr(node.func, "id", "") in (*uses.callees, ALIAS)

    assigned = (node.targets for node in nodes if isinstance(node, ast.Assign) and is_given(node.value))
    given = {target.id for targets in assigned for target in targets if isinstance(target, ast.Name)}
    for node in nodes:
        if isinstance(node, ast.Name) and node.id in functions and isinstance(node.ctx, ast.Load):
            if id(node) not in plain:
                return True
        elif isinstance(node, ast.Attribute | ast.Subscript):
            changes = _CHANGING.fullmatch(getattr(node, "attr", "")) or not isinstance(node.ctx, ast.Load)
            if changes and (is_given(node.value) or getattr(node.value, "id", "") in given):
                return True
    return False


def find_unknown_features(tree: ast.Module) -> list[str]:
    """Features of pytest that tests use and that are not supported, such as `pytest.warns` and `fixture(params)`: no
    answer could pass tests that use them."""
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
    return [f"pytest.{name}" for name in dict.fromkeys(used) if name not in _KNOWN_OF_PYTEST]
