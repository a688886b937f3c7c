"""The request to run tests: their code with asserts taken apart, compiled once for all answers."""

from __future__ import annotations

import ast
import base64
import builtins
import marshal
import re
import warnings
from typing import Any

import msgspec

from foretrace.core.python_source import parse_quietly
from foretrace.sandbox.inside.recorder import BYTECODE
from foretrace.sandbox.inside.values import encode
from foretrace.sandbox.judging.plan import JudgePlan
from foretrace.sandbox.judging.rewrite import Check, TestRewriter
from foretrace.sandbox.judging.test_reading import Function, find_answer_uses, find_check_function

MAX_CONSTANT = 1 << 24


class TestCode(msgspec.Struct):
    """The tests of a plan, with asserts taken apart."""

    __test__ = False

    checks: list[Check]
    tests: list[list[int]]
    """The numbers of the results of each test."""
    request: dict[str, Any]


def prepare(plan: JudgePlan) -> TestCode:
    """The taken-apart tests of a plan, cached in it."""
    if "code" in plan.memory:
        return plan.memory["code"]  # type: ignore[no-any-return]
    checks: list[Check] = []
    tests: list[dict[str, Any]] = []
    results: list[list[int]] = []
    made = 0
    trees = [parse_quietly(test.code) for test in plan.tests]
    uses = find_answer_uses(trees, plan.entry_point, parse_quietly(plan.setup))
    for number, (test, tree) in enumerate(zip(plan.tests, trees, strict=True)):
        described = _describe_test(test.code, tree)
        rewriter = TestRewriter(number, tree, uses, checks, made)
        tree = rewriter.visit(tree)
        tests.append(described | _pack(ast.fix_missing_locations(tree), f"test_{number}.py"))
        results.append(list(range(made, made + len(rewriter.results))))
        made += len(rewriter.results)
    texts = [plan.setup, *(test.code for test in plan.tests)]
    request = {
        "tests": tests,
        "skeletons": _pack_skeletons(checks),
        "facts": [[check.hides, bool(check.kinds & {"In", "NotIn"}), check.is_strict] for check in checks],
        "setup": _pack_source(plan.setup, "setup.py"),
        "helpers": _pack_source(plan.helpers, "prompt.py"),
        "entry_point": plan.entry_point,
        "names": plan.uses,
        "modules": sorted(_find_modules(texts)),
        "uses_pytest": any("pytest" in text for text in texts),
        "patching": [text for text in texts if re.search(r"patch|builtins|setattr", text)],
        "preamble": plan.preamble,
        "setup_parts": plan.setup_parts,
    }
    code = plan.memory["code"] = TestCode(checks, results, request)
    return code


def _describe_test(code: str, tree: ast.Module) -> dict[str, Any]:
    """What to call of a test after its statements have run."""
    called = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    check = find_check_function(tree)
    functions = [n.name for n in tree.body if isinstance(n, Function) and n.name.startswith("test")]
    cases: list[str] = []
    classes: list[str] = []
    for node in (node for node in tree.body if isinstance(node, ast.ClassDef)):
        if any("TestCase" in base or base in cases for base in map(ast.unparse, node.bases)):
            cases.append(node.name)
        if node.name in cases or (node.name.startswith("Test") and node.name not in called):
            classes.append(node.name)
    return {
        "check": "check" if check and not check[1] else None,
        "functions": [name for name in functions if name not in called],
        "classes": classes,
        "may_skip": "skip" in code.lower(),
    }


def _pack(tree: ast.Module, file: str) -> dict[str, Any]:
    """Compiled code (large tests take a second to compile), and its source for a Python with other bytecode."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        code = compile(tree, file, "exec", dont_inherit=True, optimize=0)
    packed = base64.b64encode(marshal.dumps(code)).decode("ascii")
    return {"source": ast.unparse(tree), "bytecode": BYTECODE, "code": packed}


def _pack_skeletons(checks: list[Check]) -> dict[str, Any]:
    pairs = "".join(
        f"(lambda {check.parameters}: {check.skeleton}, lambda {check.parameters}: ({', '.join(check.sides or ())})), "
        for check in checks
    )
    source = f"skeletons = ({pairs})"
    try:
        return _pack(parse_quietly(source), "skeletons")
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # too deep: the asserts fail where they are run
        return {"source": source, "bytecode": "", "code": ""}


def _pack_source(source: str, file: str) -> dict[str, Any]:
    tree = parse_quietly(source)
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    stored = {node.id for node in names if isinstance(node.ctx, ast.Store)}
    defined = {getattr(node, "name", None) for node in tree.body}
    lacks = sorted({n.id for n in names} - stored - defined - set(dir(builtins)))
    return _pack(tree, file) | {"lacks": lacks}


def _find_modules(texts: list[str]) -> set[str]:
    """The modules that the tests import, except the answer, pytest, and modules with visible side effects."""
    found: set[str] = set()
    for node in (node for text in texts for node in ast.walk(parse_quietly(text))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module)
    return {name for name in found if name.partition(".")[0] not in ("pytest", "solution", "this", "antigravity")}


def show_constants(code: TestCode, *, all_of_them: bool) -> list[Any]:
    """The constants that the tests' process may know: all, or only those of checks that hide none."""
    return [
        [encode(value, MAX_CONSTANT) for value in check.constants] if all_of_them or not check.hides else []
        for check in code.checks
    ]
