"""What test code uses of the answer and of pytest, and whether it needs one process, determined from its text."""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterator, Sequence

import msgspec

from foretrace.sandbox.inside.pytest_stand_in import BUILTIN_FIXTURES, make_module

ALIAS = "candidate"
RANDOM_WORD = "random"
"""If both the answer and its tests have this word, they are judged in one process."""
Function = ast.FunctionDef | ast.AsyncFunctionDef
_KNOWN_OF_PYTEST = frozenset(vars(make_module())) | {"fixture(autouse)", "fixture(scope)"}
_PURE = frozenset({
    "math", "cmath", "itertools", "collections", "functools", "operator", "string", "re", "json", "copy",
    "statistics", "heapq", "bisect", "datetime", "decimal", "fractions", "typing", "unittest", "pytest", "textwrap",
    "dataclasses", "abc", "numbers", "calendar", "hashlib", "base64", "struct", "array", "time", "random",
    "__future__",
})  # fmt: skip
"""Modules without state that tests and answer could share (except `random`, see `RANDOM_WORD`)."""
_SHARED_STATE = re.compile(
    r"open|input|print|exec|eval|compile|globals|locals|vars|getcontext|localcontext|monkeypatch|capsys|capfd|caplog"
    r"|tmp_path|tmpdir|recwarn|setrecursionlimit|mock|warns|deprecated_call|seed|StopIteration|StopAsyncIteration"
    r"|__(?!(name|main|future|init|eq|lt|hash|repr|str|add|len)__)\w+__"
)
"""Names in tests that read or change the state of a process."""
_CHANGING = frozenset({
    "append", "extend", "insert", "remove", "pop", "popitem", "clear", "sort", "reverse", "add", "discard", "update",
    "setdefault", "appendleft",
})  # fmt: skip
"""Methods of containers that change them."""


class AnswerUses(msgspec.Struct, frozen=True, kw_only=True):
    """What a set of tests uses of the answer."""

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
    """Find what the tests use of the answer."""
    setup_names = find_bound(setup)
    imported = {
        name for node in setup.body if isinstance(node, ast.Import | ast.ImportFrom) for name in find_bound(node)
    }
    own = {entry_point} if entry_point else set[str]()
    return AnswerUses(
        entry_point=entry_point,
        callees=frozenset(own.union(*(_find_free(tree) - setup_names - {ALIAS} for tree in trees))),
        setup_names=frozenset(setup_names - imported - own),
        shadowed=frozenset(own.union(*(find_bound(tree) - _find_known(tree) for tree in (setup, *trees)))),
        setup_reaches_code=bool(_find_free(setup)),
    )


def find_bound(tree: ast.AST) -> set[str]:
    """All names that code binds, anywhere in it."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            found.add(node.id)
        elif isinstance(node, Function | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.arg):
            found.add(node.arg)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found |= {alias.asname or alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
            found.add(node.name)
    return found


def _find_free(tree: ast.Module) -> set[str]:
    """Names that code uses, but that neither it nor builtins define."""
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} - find_bound(tree) - vars(builtins).keys()


def _find_known(tree: ast.Module) -> set[str]:
    """Names that are imported from `math` or `pytest`."""
    known: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            known |= {alias.name for alias in node.names if alias.name in ("math", "pytest") and not alias.asname}
        elif isinstance(node, ast.ImportFrom) and node.module in ("math", "pytest"):
            known |= {alias.name for alias in node.names if not alias.asname}
    return known


def find_check_function(tree: ast.Module) -> tuple[str, bool] | None:
    """For the function `check`: its parameter's name, and whether the code calls it. None without such a function."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == "check" and node.args.args:
            calls = (other.value for other in tree.body if isinstance(other, ast.Expr))
            called = any(isinstance(call, ast.Call) and getattr(call.func, "id", "") == "check" for call in calls)
            return node.args.args[0].arg, called
    return None


# Whether tests can be judged in their own process, by calls alone.


def needs_one_process(trees: Sequence[ast.Module], setup: ast.Module, uses: AnswerUses) -> bool:
    """Whether tests use anything of the answer other than function calls, or state that they share with it."""
    if uses.setup_reaches_code or any(name.lstrip("_")[:1].isupper() for name in uses.callees):
        return True
    return any(_shares_state(tree) or _handles_objects(tree, uses) for tree in (setup, *trees))


def _shares_state(tree: ast.Module) -> bool:
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names) if any(alias.name not in _PURE for alias in names):
                return True
            case ast.ImportFrom(level=level, module=module) if level or module not in _PURE:
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

    assigned = (
        target for node in nodes if isinstance(node, ast.Assign) and is_given(node.value) for target in node.targets
    )
    given = {target.id for target in assigned if isinstance(target, ast.Name)}
    for node in nodes:
        if isinstance(node, ast.Name) and node.id in functions and isinstance(node.ctx, ast.Load):
            if id(node) not in plain:
                return True
        elif isinstance(node, ast.Attribute | ast.Subscript):
            changes = getattr(node, "attr", "") in _CHANGING or not isinstance(node.ctx, ast.Load)
            if changes and (is_given(node.value) or getattr(node.value, "id", "") in given):
                return True
    return False


# Features of pytest that are not supported: no answer could pass tests that use them.


def find_unknown_features(tree: ast.Module) -> list[str]:
    """Features of pytest that tests use and that are not supported, such as `pytest.warns` and `fixture(params)`."""
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


def find_unknown_fixtures(tree: ast.Module, others: Sequence[ast.Module]) -> list[str]:
    """Parameters of tests for which there is no fixture or other value, in source order.

    Args:
        others: the tests' setup and earlier tests, which may also define fixtures.
    """
    known = {"self", "cls", *BUILTIN_FIXTURES}
    for node in (node for each in (*others, tree) for node in ast.walk(each)):
        if isinstance(node, Function) and node.decorator_list:
            known.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            known.add(node.id)  # may be a fixture
    named = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    unknown: dict[str, None] = {}
    for function, decorators in _find_tests(tree):
        texts = [ast.unparse(decorator) for decorator in decorators]
        if function.name in named or not all(text.startswith(("pytest.mark.", "mark.")) for text in texts):
            continue  # the code calls it, or its decorators may pass its arguments
        given = {word for text in texts for word in re.findall(r"\w+", text)}
        parameters = [*function.args.posonlyargs, *function.args.args]
        asked = parameters[: len(parameters) - len(function.args.defaults)]
        unknown.update(dict.fromkeys(p.arg for p in asked if p.arg not in known | given))
    return list(unknown)


def _find_tests(tree: ast.Module) -> Iterator[tuple[Function, list[ast.expr]]]:
    """Test functions and methods, with their decorators and those of their class."""
    for node in tree.body:
        if isinstance(node, Function) and node.name.startswith("test"):
            yield node, node.decorator_list
        elif isinstance(node, ast.ClassDef) and node.name.startswith("Test") and not node.bases:
            for part in node.body:
                if isinstance(part, Function) and part.name.startswith("test"):
                    yield part, [*node.decorator_list, *part.decorator_list]
