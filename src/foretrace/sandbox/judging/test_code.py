"""The request that has tests run: their code with asserts taken apart, compiled once for many answers."""

from __future__ import annotations

import ast
import base64
import builtins
import marshal
import random
import re
import warnings
from typing import Any

import msgspec

from foretrace.core.python_source import parse_quietly
from foretrace.sandbox.inside.roles.decoys import NoDecoyError, vary
from foretrace.sandbox.inside.roles.test_runner import BYTECODE
from foretrace.sandbox.inside.wire.values import encode
from foretrace.sandbox.judging.plan import JudgePlan
from foretrace.sandbox.judging.rewrite import RECORDER, Check, TestNames, TestRewriter
from foretrace.sandbox.judging.test_reading import Function, find_answer_uses, find_check_function

RANDOM = random.SystemRandom()
_MAX_CONSTANT = 1 << 24
_ROWS = 8
_LITERALS = (int, float, str, bool)


class TestCode(msgspec.Struct):
    """A plan's tests, taken apart."""

    __test__ = False

    checks: list[Check]
    tests: list[list[int]]
    """Of each test: the numbers of its results."""
    request: dict[str, Any]


def prepare(plan: JudgePlan, *, control: bool = False) -> TestCode:
    """The tests of a plan, made once.

    Args:
        control: whether asserts on objects are to be asked about with other constants, too.
    """
    key = "control" if control else "code"
    if key not in plan.memory:
        plan.memory[key] = _prepare(plan, control)
    made: TestCode = plan.memory[key]
    return made


def _prepare(plan: JudgePlan, control: bool) -> TestCode:
    checks: list[Check] = []
    tests: list[dict[str, Any]] = []
    results: list[list[int]] = []
    made = 0
    trees = [parse_quietly(test.code) for test in plan.tests]
    shadowed = find_answer_uses(trees, plan.entry_point, parse_quietly(plan.setup)).shadowed
    names = TestNames(frozenset((*plan.uses, "candidate")), shadowed)
    for number, (test, tree) in enumerate(zip(plan.tests, trees, strict=True)):
        first, described = len(checks), _describe_test(test.code, tree)
        rewriter = TestRewriter(number, tree, names, checks, made)
        tree = rewriter.visit(tree)
        if control:
            _add_variants(tree, checks, first)
        tests.append(described | _pack(ast.fix_missing_locations(tree), f"test_{number}.py"))
        results.append(list(range(made, made + len(rewriter.results))))
        made += len(rewriter.results)
    skeletons = "".join(
        f"(lambda {check.parameters}: {check.skeleton}, lambda {check.parameters}: ({', '.join(check.sides or ())})), "
        for check in checks
    )
    texts = [plan.setup, *(test.code for test in plan.tests)]
    request = {
        "tests": tests,
        "skeletons": f"({skeletons})",
        "facts": [[check.hides, bool(check.kinds & {"In", "NotIn"}), _is_order(check)] for check in checks],
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
    return TestCode(checks, results, request)


def _describe_test(code: str, tree: ast.Module) -> dict[str, Any]:
    """What of a test is to be called when its statements have run."""
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
    """Compiled code, and its source for a Python that runs other bytecode."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        code = compile(tree, file, "exec", dont_inherit=True, optimize=0)
    packed = base64.b64encode(marshal.dumps(code)).decode("ascii")
    return {"source": ast.unparse(tree), "bytecode": BYTECODE, "code": packed}


def _pack_source(source: str, file: str) -> dict[str, Any]:
    tree = parse_quietly(source)
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    stored = {node.id for node in names if isinstance(node.ctx, ast.Store)}
    defined = {getattr(node, "name", None) for node in tree.body}
    lacks = sorted({n.id for n in names} - stored - defined - set(dir(builtins)))
    return _pack(tree, file) | {"lacks": lacks}


def _find_modules(texts: list[str]) -> set[str]:
    """What the tests import, but for what is the answer's or their own."""
    found: set[str] = set()
    for node in (node for text in texts for node in ast.walk(parse_quietly(text))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module)
    return {name for name in found if name.partition(".")[0] not in ("pytest", "solution", "this", "antigravity")}


def _is_order(check: Check) -> bool:
    return len(check.leaves) == 2 and bool(re.fullmatch(r"\(t0 [<>] t1\)", check.skeleton))


def show_constants(code: TestCode, *, all_of_them: bool) -> list[Any]:
    """The constants that the process of the tests may know: those that no answer has to meet, or all."""
    return [
        [encode(value, _MAX_CONSTANT) for value in check.constants] if all_of_them or not check.hides else []
        for check in code.checks
    ]


def make_line_up(check: Check) -> tuple[list[list[Any]], int] | None:
    """A check's constants among others like them, and their place; None where there are no others."""
    rows, real = [check.constants], check.constants
    places = [n for n in range(len(real)) if n not in check.tolerances]
    for turn in range(40):
        place = places[turn % len(places)]
        value = real[place]
        try:
            other = vary(value, RANDOM)
        except NoDecoyError:
            continue
        row = [*real[:place], other, *real[place + 1 :]]
        if all(repr(row) != repr(made) for made in rows):
            rows.append(row)
        if len(rows) > _ROWS:
            break
    RANDOM.shuffle(rows)
    return (rows, next(n for n, row in enumerate(rows) if row is real)) if len(rows) > 1 else None


def _add_variants(tree: ast.Module, checks: list[Check], first: int) -> None:
    """Have checks without hidden constants ask about their leaves with other constants in them, too."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Expr) or not isinstance(node.value, ast.Call):
            continue
        call = node.value
        if getattr(call.func, "id", "") != RECORDER:
            continue
        number = call.args[0].value  # type: ignore[attr-defined]
        check = checks[number] if number >= first else None
        if check is None or check.hides or len(check.leaves) < 2:
            continue
        variants, place = _find_variants(check.leaves)
        if variants:
            lambdas = ", ".join(f"lambda: {variant}" for variant in variants)
            leaves = ", ".join(map(ast.unparse, check.leaves))
            text = f"{RECORDER}.control({number}, ({leaves},), {place}, ({lambdas},))"
            node.value = ast.parse(text, mode="eval").body
            ast.increment_lineno(node.value, node.lineno - 1)


def _find_variants(leaves: list[ast.expr]) -> tuple[list[str], int]:
    """One of the leaves with another constant in it, several times, as source; and which leaf it is."""
    for place in sorted(range(len(leaves)), key=lambda n: (not isinstance(leaves[n], ast.Call), -n)):
        nodes = list(ast.walk(leaves[place]))
        if any(isinstance(n, (ast.Await, ast.Yield, ast.YieldFrom, ast.NamedExpr)) for n in nodes):
            continue
        made: list[str] = []
        count = sum(isinstance(n, ast.Constant) and type(n.value) in _LITERALS for n in nodes)
        for which in list(range(min(count, 6))) * (4 if count < 3 else 2):
            tree = ast.parse(ast.unparse(leaves[place]), mode="eval")
            found = [n for n in ast.walk(tree) if isinstance(n, ast.Constant) and type(n.value) in _LITERALS]
            value: Any = found[which].value
            near = type(value) is int and len(made) < count  # what is the same for many numbers differs for the next
            found[which].value = value + RANDOM.choice([-1, 1]) if near else vary(value, RANDOM)
            if (other := ast.unparse(tree)) not in (*made, ast.unparse(leaves[place])):
                made.append(other)
        if made:
            return made, place
    return [], 0
