"""Decides from the text of the tests how they are judged, in the strongest form that works for all of them, and takes
them apart for it: what is sent to the processes, and what stays here."""

from __future__ import annotations

import ast
import base64
import builtins
import functools
import marshal
import re
import warnings
from collections.abc import Container, Iterator, Sequence
from typing import Any

import msgspec

from foretrace.core.entry_points import read_entry_point
from foretrace.core.errors import ProblemError
from foretrace.core.problem import Integrity, Test
from foretrace.core.python_source import PARSE_ERRORS, parse_quietly, try_parse
from foretrace.sandbox.base import FORMS
from foretrace.sandbox.forkserver.run_result import MAX_INPUT_CHARS
from foretrace.sandbox.inside.recorder import BYTECODE
from foretrace.sandbox.inside.values import encode
from foretrace.sandbox.judging.rewrite import (
    Check,
    TestRewriter,
    find_asserts,
    find_constant_truth,
    name_asserts,
    take_apart,
)
from foretrace.sandbox.judging.test_reading import (
    ALIAS,
    AnswerUses,
    Function,
    find_answer_uses,
    find_check_function,
    find_unknown_features,
    needs_one_process,
)

MAX_CONSTANT = 1 << 24
"""Longest encoded constant of the tests, bytes."""
_MAX_CODE_CHARS = 1 << 21
"""Most characters of the tests of one problem."""
_MAX_ARGUMENT_BYTES = 64 * 1024
"""Longest encoded argument of a call, bytes."""
_FAILING = re.compile(r"assert|fail|(raises|warns|exit)\Z")
"""Names of functions that may raise, so that a test without `assert` can fail."""
_Call = tuple[str, list[Any], dict[str, Any]]
"""A function's name, and its arguments, encoded."""


class TestCode(msgspec.Struct):
    """The tests of a plan, with asserts taken apart."""

    __test__ = False

    checks: list[Check]
    tests: list[list[int]]
    """The numbers of the results of each test."""
    request: dict[str, Any]
    """What is sent to the process that runs them."""

    def show_constants(self, *, all_of_them: bool) -> list[Any]:
        """The constants that the tests' process may know: all, or only those of checks that hide none."""
        return [
            [encode(value, MAX_CONSTANT) for value in check.constants] if all_of_them or not check.hides else []
            for check in self.checks
        ]


class JudgePlan(msgspec.Struct, kw_only=True, dict=True):
    """How the tests of a problem are judged. Made once, and used for all answers."""

    form: Integrity
    is_program: bool = False
    """Whether the tests are inputs and outputs of a program."""
    names: tuple[str, ...]
    """Names of the results, in order."""
    tests: tuple[Test, ...] = ()
    calls: tuple[_Call, ...] = ()
    """For the form `values`: the calls of the answer."""
    checks: tuple[Check, ...] = ()
    """For the form `values`: the checks, one for each name; their leaves are the calls, in order."""
    setup: str = ""
    helpers: str = ""
    """The imports, functions and constants of the prompt, which tests may use, without stubs for the answer."""
    asked: dict[str, Any] = {}
    """What every process is told: `entry_point`; `preamble`, code of the problem that runs before the answer, which may
    redefine its names; `setup_parts`, statements of the setup, of which those that do not need the answer run before
    it; `names` that tests use and do not define: those without another meaning are the answer's."""
    needs_objects: bool = False
    """Whether a right answer was found to need the form `together`."""

    @functools.cached_property
    def code(self) -> TestCode:
        """The tests, taken apart and compiled once for all answers."""
        checks: list[Check] = []
        tests: list[dict[str, Any]] = []
        results: list[list[int]] = []
        made = 0
        trees = [parse_quietly(test.code) for test in self.tests]
        entry_point = self.asked["entry_point"]
        uses = find_answer_uses(trees, entry_point, parse_quietly(self.setup))
        for number, (test, tree) in enumerate(zip(self.tests, trees, strict=True)):
            described = _describe_test(test.code, tree)
            rewriter = TestRewriter(number, tree, uses, checks, made)
            tree = rewriter.visit(tree)
            tests.append(described | _pack(ast.fix_missing_locations(tree), f"test_{number}.py"))
            results.append(list(range(made, made + len(rewriter.results))))
            made += len(rewriter.results)
        texts = [self.setup, *(test.code for test in self.tests)]
        request = {
            **self.asked,
            "tests": tests,
            "skeletons": _pack_skeletons(checks),
            "facts": [[check.hides, bool(check.kinds & {"In", "NotIn"}), check.is_strict] for check in checks],
            "setup": _pack_source(self.setup, "setup.py"),
            "helpers": _pack_source(self.helpers, "prompt.py"),
            "modules": sorted(_find_modules(texts)),
            "uses_pytest": any("pytest" in text for text in texts),
            "patching": [text for text in texts if re.search(r"patch|builtins|setattr", text)],
        }
        return TestCode(checks, results, request)


def make_judge_plan(
    tests: Sequence[Test],
    *,
    entry_point: str | None = None,
    setup: str = "",
    prompt: str = "",
    form: Integrity | None = None,
) -> JudgePlan:
    """The plan for `tests`.

    Args:
        prompt: code that the answer continues or builds on; all of it but the entry point is available to the answer.
        form: a weaker form than the tests would get.

    Raises:
        ProblemError: no tests, tests that cannot be parsed or cannot fail, or programs and functions in one set.
    """
    if any(type(test) is not Test for test in tests):
        raise ProblemError('tests are given as Test objects, e.g. [Test(code="assert f(1) == 2")]')
    if form is not None and form not in FORMS:
        raise ProblemError(f"unknown form {form!r}: choose {', '.join(FORMS)}, or none")
    return _plan(tuple(tests), entry_point, setup, prompt, form)


@functools.lru_cache(maxsize=256)  # a problem is judged many times
def _plan(
    tests: tuple[Test, ...], entry_point: str | None, setup: str, prompt: str, form: Integrity | None
) -> JudgePlan:
    if not tests:
        raise ProblemError("no tests: give at least one")
    programs = [test.stdin is not None or test.stdout is not None for test in tests]
    if any(programs):
        return _programs(tests, programs, form)
    if sum(len(test.code) for test in tests) + len(setup) > _MAX_CODE_CHARS:
        raise ProblemError(f"the tests have more than {_MAX_CODE_CHARS:,} characters: give fewer or smaller ones")
    trees = [_parse(f"test {number}", test.code) for number, test in enumerate(tests)]
    setup_tree = _parse("the setup of the tests", setup)
    found = [find_asserts(tree) for tree in trees]
    for number, tree in enumerate(trees):
        if not found[number] and not _can_fail(tree):
            raise ProblemError(f"test {number} has no assert: write what must hold as `assert f(1) == 2`")
        if unknown := find_unknown_features(tree):
            raise ProblemError(
                f"test {number} uses {', '.join(unknown)}, which cannot be judged here: write the test without it"
            )
    uses = find_answer_uses(trees, entry_point, setup_tree)
    for number, tree in enumerate(trees):
        _check_names(number, tree, uses, entry_point)
    preamble, helpers = split_prompt(prompt, entry_point)
    common: dict[str, Any] = {
        "names": tuple(name for n, tree in enumerate(trees) for name in name_asserts(n, tree, found[n])),
        "tests": tests,
        "setup": setup,
        "helpers": helpers,
        "asked": {
            "entry_point": entry_point,
            "preamble": preamble,
            "setup_parts": tuple(map(ast.unparse, setup_tree.body)),
            "names": sorted(uses.callees),
        },
    }
    literal = read_literal_tests(trees, uses) if form in (None, "values") else None
    if literal is not None:
        return JudgePlan(form="values", calls=literal[0], checks=literal[1], **common)
    strongest: Integrity = "together" if needs_one_process(trees, setup_tree, uses) else "calls"
    if form is not None and FORMS.index(form) < FORMS.index(strongest):
        raise ProblemError(f"these tests cannot be judged in the form {form}: ask for {strongest}, or for none")
    return JudgePlan(form=form or strongest, **common)


def _can_fail(tree: ast.Module) -> bool:
    """Whether a test without `assert` can fail: it raises, or calls a function that may, such as `self.assertEqual`."""
    nodes = list(ast.walk(tree))
    called = (getattr(node.func, "attr", getattr(node.func, "id", "")) for node in nodes if isinstance(node, ast.Call))
    return any(isinstance(node, ast.Raise) for node in nodes) or any(map(_FAILING.match, called))


def split_prompt(prompt: str, entry_point: str | None) -> tuple[str, str]:
    """What a prompt provides: code without the entry point for the answer; imports, constants and functions for tests.

    A prompt may end in a signature and a docstring. A prompt that is not Python provides nothing.
    """
    tree = next((tree for end in ("", "\n    pass\n", "\n        pass\n") if (tree := try_parse(prompt + end))), None)
    if tree is None:
        return "", ""
    asked = read_entry_point(entry_point or "")
    rest = [node for node in tree.body if asked is None or getattr(node, "name", None) != asked.name]
    helpers = [
        node
        for node in rest
        if isinstance(node, (ast.Import, ast.ImportFrom, ast.Assign, ast.AnnAssign))
        or (isinstance(node, ast.FunctionDef) and not _is_stub(node))
    ]
    return "\n".join(map(ast.unparse, rest)), "\n".join(map(ast.unparse, helpers))


def _is_stub(node: ast.FunctionDef) -> bool:
    """Whether a function has only placeholders: docstring, `...`, `pass` or `raise`."""
    parts = (part.value if isinstance(part, ast.Expr) else part for part in node.body)
    return all(isinstance(part, (ast.Pass, ast.Raise, ast.Constant)) for part in parts)


def _programs(tests: Sequence[Test], programs: list[bool], form: Integrity | None) -> JudgePlan:
    for number, test in enumerate(tests):
        if not programs[number] or test.code:
            raise ProblemError(f"test {number} mixes programs and functions: give either stdin and stdout, or code")
        if test.stdout is None:
            raise ProblemError(f"test {number} has an input and no stdout: say what the program must print")
        if len(test.stdin or "") > MAX_INPUT_CHARS:
            raise ProblemError(
                f"test {number} has an input of more than {MAX_INPUT_CHARS:,} characters: give a smaller one"
            )
    if form not in (None, "values"):
        raise ProblemError(f"tests with stdin and stdout cannot be judged in the form {form}: ask for none")
    names = tuple(map(str, range(len(tests))))
    return JudgePlan(form="values", is_program=True, names=names, tests=tuple(tests))


def _parse(what: str, code: str) -> ast.Module:
    try:
        return parse_quietly(code, compiles=True)
    except SyntaxError as error:
        where = f" (line {error.lineno})" if error.lineno else ""
        raise ProblemError(f"{what} cannot be parsed{where}: {error.msg}") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise ProblemError(f"{what} cannot be parsed: {error or 'it is nested too deeply'}") from None


def _check_names(number: int, tree: ast.Module, uses: AnswerUses, entry_point: str | None) -> None:
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    if entry_point is None and (find_check_function(tree) or ("candidate" in used and "candidate" in uses.callees)):
        raise ProblemError(f"test {number} calls `candidate`, and the problem names no entry_point: name it")
    reaching = {*uses.callees, "candidate", *(uses.setup_names if uses.setup_reaches_code else ())}
    if not find_check_function(tree) and not used & reaching:
        raise ProblemError(f"test {number} does not call the code: use its entry point")


# Asserts that only call the answer with literals need no process for the tests: the answer's process gets the
# arguments, and the parent compares the values.


class _NotLiteralError(Exception):
    pass


def read_literal_tests(
    trees: Sequence[ast.Module], uses: AnswerUses
) -> tuple[tuple[_Call, ...], tuple[Check, ...]] | None:
    """The calls and asserts of the tests; None if the tests contain anything else."""
    if len(uses.callees) > 1 or uses.setup_names & uses.callees:
        return None
    calls: list[_Call] = []
    checks: list[Check] = []
    try:
        for tree in trees:
            check = find_check_function(tree)
            names = {name: name for name in uses.callees}
            if uses.entry_point:
                names |= {ALIAS: uses.entry_point} | ({check[0]: uses.entry_point} if check else {})
            for node in _find_asserts(tree, check, names):
                checks.append(take_apart(node.test, len(checks), uses.shadowed))
                calls += [_read_call(leaf, names) for leaf in checks[-1].leaves]
                if not checks[-1].leaves:
                    return None
    except (_NotLiteralError, TypeError, *PARSE_ERRORS):
        return None
    return (tuple(calls), tuple(checks)) if checks else None


def _find_asserts(tree: ast.Module, check: tuple[str, bool] | None, names: Container[str]) -> Iterator[ast.Assert]:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and check and node.name == "check":
            if len(node.args.args) != 1 or node.args.defaults or node.decorator_list:
                raise _NotLiteralError
            for inner in node.body:
                yield from _read_statement(inner)
        elif isinstance(node, ast.Assign) and all(isinstance(t, ast.Name) and t.id.isupper() for t in node.targets):
            ast.literal_eval(node.value)  # METADATA and the like
        else:
            match node:
                case ast.Expr(ast.Call(ast.Name("check"), [ast.Name(name)], [])) if check and name in names:
                    pass  # the check function is called with the code under test
                case _:
                    yield from _read_statement(node)


def _read_statement(node: ast.stmt) -> Iterator[ast.Assert]:
    match node:
        case ast.Assert():
            if find_constant_truth(node) is not True:
                yield node
        case ast.Import() | ast.Pass() | ast.Expr(ast.Constant()):
            pass
        case _:
            raise _NotLiteralError


def _read_call(node: ast.expr, names: dict[str, str]) -> _Call:
    """A call of the answer with literal arguments."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or node.func.id not in names:
        raise _NotLiteralError
    if not all(keyword.arg for keyword in node.keywords):
        raise _NotLiteralError
    args = [_encode(ast.literal_eval(arg)) for arg in node.args]
    named = {str(keyword.arg): _encode(ast.literal_eval(keyword.value)) for keyword in node.keywords}
    return names[node.func.id], args, named


def _encode(value: Any) -> Any:
    tagged = encode(value, _MAX_ARGUMENT_BYTES)
    if type(tagged) is list and tagged[0] == "o":
        raise _NotLiteralError
    return tagged


# Tests as they are sent: compiled.


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
