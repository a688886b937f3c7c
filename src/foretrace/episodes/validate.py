"""Validate a problem set without a model: every reference passes, and an answer that does nothing fails."""

from __future__ import annotations

import ast
import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal

import msgspec

from foretrace.core.entry_points import EntryPoint, read_entry_point
from foretrace.core.errors import ProblemError
from foretrace.core.problem import Integrity, Problem, Test, Verdict
from foretrace.core.python_source import try_parse
from foretrace.episodes.workspace import judge_with_retry
from foretrace.problems.base import find_definitions
from foretrace.sandbox.base import Sandbox
from foretrace.sandbox.judging.plan import make_judge_plan

FaultKind = Literal["reference_failed", "empty_passed", "unusable", "lost", "bad_row"]
"""What is wrong with a problem.

`reference_failed`: its reference fails its tests. `empty_passed`: an answer that does nothing passes them. `unusable`:
the tests cannot be judged at all. `lost`: the sandbox lost the run twice, which proves nothing. `bad_row`: the row of
the set is not a problem.
"""
TestSet = Literal["public", "hidden"]
_MAX_ASSERT = 120
"""Most characters of an assert that is shown."""


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """One fault of one problem. In JSON, `kind` is called `fault`."""

    problem: str
    """The problem's id; for a bad row, its position in the file."""
    kind: FaultKind = msgspec.field(name="fault")
    tests: TestSet | None = None
    """Which of the problem's tests showed it; `None` if no particular set did."""
    detail: str = ""
    """One line: the first test that failed and how."""


class JudgedTests(msgspec.Struct, frozen=True, kw_only=True):
    """The forms in which the tests of one problem are judged (`core.problem.Integrity`)."""

    problem: str
    public: Integrity | None = None
    """`None` if there are no such tests, or if they cannot be judged."""
    hidden: Integrity | None = None


class ValidationReport(msgspec.Struct, frozen=True, kw_only=True):
    """The result of validating a set. In JSON, `faults` is called `findings`."""

    problems: int
    references_passed: int
    """Problems whose reference passes all tests, public and hidden."""
    empty_passed: int
    """Problems whose tests pass for an answer that does nothing."""
    without_reference: int
    forms: dict[str, int]
    """Problems by the form in which they are judged (`core.problem.Integrity`)."""
    judged: tuple[JudgedTests, ...]
    """The forms for each problem, in the order of the set."""
    public: int
    """Public tests of all problems together."""
    hidden: int
    """Hidden tests as counted by the sandbox: in check code, each assert counts if they can be separated."""
    with_public: int
    """Problems with at least one public test."""
    faults: tuple[Fault, ...] = msgspec.field(name="findings")
    """In the order of the set."""
    seconds: float

    @property
    def sound(self) -> bool:
        """Whether no problem has a fault."""
        return not self.faults


class ProblemResult(msgspec.Struct):
    """The result of one problem."""

    problem: Problem
    faults: list[Fault]
    forms: dict[str, Integrity] = msgspec.field(default_factory=dict[str, Integrity])
    """The forms of its public and of its hidden tests."""
    hidden: int = 0
    reference_passed: bool = False
    empty_passed: bool = False

    def add_fault(self, kind: FaultKind, tests: TestSet | None, detail: str) -> None:
        """Add a fault, with its detail on one line."""
        line = " ".join(detail.split())[:300]
        self.faults.append(Fault(problem=self.problem.id, kind=kind, tests=tests, detail=line))


async def judge_problems(
    problems: Iterable[Problem], sandbox: Sandbox, *, workers: int = 2, progress: Callable[[int], None] | None = None
) -> list[ProblemResult]:
    """Judge the reference and an empty answer of every problem, `workers` problems at a time; the results are in order.

    `progress` is called with the number of finished problems. Problems are read when they are needed.

    Raises:
        ProblemError: the set cannot be read.
        SandboxError: the sandbox cannot serve.
    """
    numbered = enumerate(problems)
    results: dict[int, ProblemResult] = {}

    async def work() -> None:
        for number, problem in numbered:
            results[number] = await _validate(problem, sandbox)
            if progress is not None:
                progress(len(results))

    tasks = [asyncio.create_task(work()) for _ in range(max(1, workers))]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return [results[number] for number in sorted(results)]


def make_report(results: Sequence[ProblemResult], seconds: float) -> ValidationReport:
    """The report on a set, from the results of its problems in order."""
    deciding = (result.forms.get("hidden" if result.problem.hidden_tests else "public") for result in results)
    return ValidationReport(
        problems=len(results),
        references_passed=sum(result.reference_passed for result in results),
        empty_passed=sum(result.empty_passed for result in results),
        without_reference=sum(result.problem.reference is None for result in results),
        forms=dict(sorted(Counter(form for form in deciding if form).items())),
        judged=tuple(JudgedTests(problem=result.problem.id, **result.forms) for result in results),
        public=sum(len(result.problem.public_tests) for result in results),
        hidden=sum(result.hidden for result in results),
        with_public=sum(bool(result.problem.public_tests) for result in results),
        faults=tuple(fault for result in results for fault in result.faults),
        seconds=round(seconds, 3),
    )


async def _validate(problem: Problem, sandbox: Sandbox) -> ProblemResult:
    result = ProblemResult(problem, [], hidden=len(problem.hidden_tests))
    sets: dict[TestSet, tuple[Test, ...]] = {"public": problem.public_tests, "hidden": problem.hidden_tests}
    sets = {which: tests for which, tests in sets.items() if tests}
    for which, tests in sets.items():
        try:
            result.forms[which] = _find_form(problem, tests)
        except ProblemError as error:
            reasons = [why for number, test in enumerate(tests) if (why := _explain_unusable(problem, number, test))]
            for why in reasons or [str(error)]:
                result.add_fault("unusable", which, why)
    if result.faults:
        return result
    try:
        if problem.reference is not None:
            await _judge_reference(result, problem.reference, sets, sandbox)
        await _judge_empty_answer(result, sandbox)
    except ProblemError as error:  # a sandbox with its own rules
        result.add_fault("unusable", None, str(error))
    return result


async def _judge_reference(
    result: ProblemResult, reference: str, sets: Mapping[TestSet, tuple[Test, ...]], sandbox: Sandbox
) -> None:
    for which, tests in sets.items():
        verdict = await judge_with_retry(sandbox, result.problem, reference, tests)
        result.forms[which] = verdict.integrity
        if not verdict.passed:
            kind = "lost" if verdict.ending == "lost" else "reference_failed"
            result.add_fault(kind, which, _explain(verdict, tests))
    result.reference_passed = not result.faults


async def _judge_empty_answer(result: ProblemResult, sandbox: Sandbox) -> None:
    """Judge an answer that does nothing by the deciding tests: the hidden ones, if there are any."""
    problem = result.problem
    which: TestSet = "hidden" if problem.hidden_tests else "public"
    tests = problem.hidden_tests or problem.public_tests
    verdict = await judge_with_retry(sandbox, problem, make_empty_answer(problem), tests)
    result.hidden = len(verdict.tests) if which == "hidden" else 0
    if problem.reference is None:
        result.forms[which] = verdict.integrity
    result.empty_passed = verdict.passed
    if verdict.passed:
        result.add_fault("empty_passed", which, "an answer that does nothing passes")
    elif verdict.ending == "lost":
        result.add_fault("lost", which, _explain(verdict, tests))
    elif problem.reference is None:  # the answer imports nothing
        errors = (test.error or "" for test in verdict.tests)
        if missing := next((error for error in errors if "No module named" in error), None):
            result.add_fault("unusable", which, missing)


def _find_form(problem: Problem, tests: tuple[Test, ...]) -> Integrity:
    return make_judge_plan(
        tests, entry_point=problem.entry_point, setup=problem.setup, prompt=problem.prompt, form=problem.form
    ).form


def _explain_unusable(problem: Problem, number: int, test: Test) -> str:
    """Why a test cannot be judged, with its number in its set; empty if it can."""
    try:
        _find_form(problem, (test,))
    except ProblemError as error:
        return str(error).replace("test 0 ", f"test {number} ", 1)
    return ""


def _explain(verdict: Verdict, tests: Sequence[Test]) -> str:
    """The first test that fails, and how."""
    if verdict.error is not None:
        return f"{verdict.error.kind}: {verdict.error.message}"
    test = next((test for test in verdict.tests if not test.passed), None)
    if test is None:
        return "no test was run" if not verdict.tests else verdict.ending
    source = _find_source(test.name, tests)
    named = f"test {test.name}" + (f" (`{source}`)" if source else "")
    if test.error is not None:
        return f"{named}: {test.error}"
    return f"{named}: {test.actual} is not {test.expected}"


def _find_source(name: str, tests: Sequence[Test]) -> str | None:
    """The assert of a test that is named by its number alone: it has only one."""
    tree = try_parse(tests[int(name)].code) if name.isdigit() and int(name) < len(tests) else None
    found = [] if tree is None else [node for node in ast.walk(tree) if isinstance(node, ast.Assert)]
    text = ast.unparse(found[0].test) if len(found) == 1 else ""
    return f"assert {text}" if 0 < len(text) <= _MAX_ASSERT else None


def make_empty_answer(problem: Problem) -> str:
    """An answer of the right shape that does nothing: a function that returns `None`, a class whose methods return
    `None`, or an empty program. Parameters are taken from the reference or else the prompt."""
    if problem.entry_point is None:
        return ""
    name, method = read_entry_point(problem.entry_point) or EntryPoint(problem.entry_point)
    for code in (problem.reference, problem.prompt):
        node = find_definitions(code or "").get(name)
        if isinstance(node, ast.ClassDef):
            methods = [n for n in node.body if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))]
            body = "\n".join(_make_empty_function(method, "    ") for method in methods) or "    pass"
            return f"class {node.name}:\n{body}\n"
        if node is not None:
            return _make_empty_function(node, "") + "\n"
    if method is not None:
        return f"class {name}:\n    def {method}(self, *args, **kwargs):\n        return None\n"
    return f"def {name}(*args, **kwargs):\n    return None\n"


def _make_empty_function(function: ast.FunctionDef | ast.AsyncFunctionDef, indent: str) -> str:
    """The function with its parameters and an empty body.

    Defaults become `None` and annotations are removed, since both may need undefined names. Only decorators that change
    how the function is called are kept.
    """
    allowed = {"staticmethod", "classmethod", "property"}
    names = [node.id for node in function.decorator_list if isinstance(node, ast.Name) and node.id in allowed]
    arguments = function.args
    for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg):
        if argument is not None:
            argument.annotation = None
    arguments.defaults = [ast.Constant(None) for _ in arguments.defaults]
    arguments.kw_defaults = [default and ast.Constant(None) for default in arguments.kw_defaults]
    word = "async def" if isinstance(function, ast.AsyncFunctionDef) else "def"
    lines = [f"@{name}" for name in names]
    lines += [f"{word} {function.name}({ast.unparse(arguments)}):", "    return None"]
    return "\n".join(indent + line for line in lines)
