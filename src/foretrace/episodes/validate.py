"""Prove a problem set without a model: every reference passes, and an answer that does nothing fails."""

from __future__ import annotations

import ast
import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Literal

import msgspec

from foretrace.core.errors import ProblemError
from foretrace.core.problem import Problem, Test, Verdict
from foretrace.core.python_source import try_parse
from foretrace.sandbox.base import Limits, Sandbox

Fault = Literal["reference_failed", "empty_passed", "unusable", "lost", "bad_row"]
"""What is wrong with a problem.

`reference_failed`: its own answer fails its tests. `empty_passed`: an answer that does nothing passes them.
`unusable`: they cannot be judged at all. `lost`: the sandbox lost the run twice, which proves nothing. `bad_row`: there
is no problem in it.
"""
_TRIES = 2


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing wrong with one problem."""

    problem: str
    """Its id; of a bad row, the place."""
    fault: Fault
    tests: Literal["public", "hidden"] | None = None
    """Which of its tests showed it; null for tests that cannot be judged."""
    detail: str = ""
    """One line: the first test that failed and how."""


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """What checking a set found, in the order of the set."""

    problems: int
    references_passed: int
    """Problems whose reference passes all of its tests, public and hidden."""
    empty_passed: int
    """Problems that an answer that does nothing passes."""
    without_reference: int
    forms: dict[str, int]
    """How many problems each form of judging serves."""
    public: int
    """Public tests, all problems together."""
    hidden: int
    """Hidden tests as the sandbox counts them: check code counts an assert as a test where it can tell them apart."""
    with_public: int
    """Problems with at least one public test."""
    findings: tuple[Finding, ...]
    seconds: float

    @property
    def sound(self) -> bool:
        """True when nothing is wrong with any problem."""
        return not self.findings


class _Proof(msgspec.Struct):
    """What was found about one problem."""

    problem: Problem
    findings: list[Finding]
    form: str | None = None
    hidden: int = 0
    reference_passed: bool = False
    empty_passed: bool = False


async def check(
    problems: Iterable[Problem],
    sandbox: Sandbox,
    *,
    workers: int = 2,
    limits: Limits | None = None,
    progress: Callable[[int], None] | None = None,
) -> Checked:
    """Judge the reference and an empty answer of every problem, `workers` problems at one time.

    `progress` is called with the number of problems that are done. The problems are read as they are needed.

    Raises:
        ProblemError: the set cannot be read.
        SandboxError: the sandbox cannot serve.
    """
    begun = time.monotonic()
    numbered = enumerate(problems)
    proofs: dict[int, _Proof] = {}

    async def work() -> None:
        for number, problem in numbered:
            proofs[number] = await _prove(problem, sandbox, limits)
            if progress is not None:
                progress(len(proofs))

    tasks = [asyncio.create_task(work()) for _ in range(max(1, workers))]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return _sum([proofs[number] for number in sorted(proofs)], time.monotonic() - begun)


def _sum(proofs: list[_Proof], seconds: float) -> Checked:
    return Checked(
        problems=len(proofs),
        references_passed=sum(proof.reference_passed for proof in proofs),
        empty_passed=sum(proof.empty_passed for proof in proofs),
        without_reference=sum(proof.problem.reference is None for proof in proofs),
        forms=dict(sorted(Counter(proof.form for proof in proofs if proof.form).items())),
        public=sum(len(proof.problem.public_tests) for proof in proofs),
        hidden=sum(proof.hidden for proof in proofs),
        with_public=sum(bool(proof.problem.public_tests) for proof in proofs),
        findings=tuple(finding for proof in proofs for finding in proof.findings),
        seconds=round(seconds, 3),
    )


async def _prove(problem: Problem, sandbox: Sandbox, limits: Limits | None) -> _Proof:
    proof = _Proof(problem, [], hidden=len(problem.hidden_tests))
    try:
        if problem.reference is not None:
            proof.reference_passed = await _try_reference(proof, problem.reference, sandbox, limits)
        which, tests = ("hidden", problem.hidden_tests) if problem.hidden_tests else ("public", problem.public_tests)
        verdict = await _judge(problem, empty_answer(problem), tests, sandbox, limits)
        proof.form, proof.hidden = verdict.integrity, len(verdict.tests) if which == "hidden" else 0
        if verdict.passed:
            proof.empty_passed = True
            proof.findings.append(_finding(problem, "empty_passed", which, "an answer that does nothing passes"))
        elif verdict.ending == "lost":
            proof.findings.append(_finding(problem, "lost", which, _why(verdict)))
    except ProblemError as error:
        proof.findings.append(_finding(problem, "unusable", None, str(error)))
    return proof


async def _try_reference(proof: _Proof, reference: str, sandbox: Sandbox, limits: Limits | None) -> bool:
    problem = proof.problem
    passed = True
    for which, tests in (("public", problem.public_tests), ("hidden", problem.hidden_tests)):
        if not tests:
            continue
        verdict = await _judge(problem, reference, tests, sandbox, limits)
        if not verdict.passed:
            fault = "lost" if verdict.ending == "lost" else "reference_failed"
            proof.findings.append(_finding(problem, fault, which, _why(verdict)))
            passed = False
    return passed


async def _judge(
    problem: Problem, code: str, tests: tuple[Test, ...], sandbox: Sandbox, limits: Limits | None
) -> Verdict:
    """The verdict; a run that was lost says nothing of the code, and is tried once more."""
    for last in range(1, _TRIES + 1):
        verdict = await sandbox.judge(
            code, tests, entry_point=problem.entry_point, setup=problem.setup, form=problem.form, limits=limits
        )
        if verdict.ending != "lost" or last == _TRIES:
            return verdict
    raise AssertionError("no try was made")


def _finding(problem: Problem, fault: Fault, which: str | None, detail: str) -> Finding:
    line = " ".join(detail.split())[:300]
    return msgspec.convert({"problem": problem.id, "fault": fault, "tests": which, "detail": line}, Finding)


def _why(verdict: Verdict) -> str:
    """The first test that failed, and how."""
    if verdict.error is not None:
        return f"{verdict.error.kind}: {verdict.error.message}"
    test = next((test for test in verdict.tests if not test.passed), None)
    if test is None:
        return "no test was run" if not verdict.tests else verdict.ending
    if test.error is not None:
        return f"test {test.name}: {test.error}"
    return f"test {test.name}: {test.actual} is not {test.expected}"


def empty_answer(problem: Problem) -> str:
    """An answer of the right shape that does nothing: a function that returns None, a class whose methods do, or a
    program without a line. Its parameters are those of the reference, else those of the prompt."""
    if problem.entry_point is None:
        return ""
    for code in (problem.reference, problem.prompt):
        node = _definition(code or "", problem.entry_point)
        if isinstance(node, ast.ClassDef):
            methods = [n for n in node.body if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))]
            body = "\n".join(_hollow(method, "    ") for method in methods) or "    pass"
            return f"class {node.name}:\n{body}\n"
        if node is not None:
            return _hollow(node, "") + "\n"
    return f"def {problem.entry_point}(*args, **kwargs):\n    return None\n"


def _definition(code: str, name: str) -> ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | None:
    tree = try_parse(code)
    if tree is None:
        return None
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return next((node for node in reversed(tree.body) if isinstance(node, kinds) and node.name == name), None)


def _hollow(function: ast.FunctionDef | ast.AsyncFunctionDef, indent: str) -> str:
    """The function with its parameters and no body. Defaults become None and annotations go: both may need names that
    are not there. Of the decorators, those stay that decide how it is called."""
    kept = {"staticmethod", "classmethod", "property"}
    names = [node.id for node in function.decorator_list if isinstance(node, ast.Name) and node.id in kept]
    given = function.args
    for argument in (*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg):
        if argument is not None:
            argument.annotation = None
    given.defaults = [ast.Constant(None) for _ in given.defaults]
    given.kw_defaults = [default and ast.Constant(None) for default in given.kw_defaults]
    word = "async def" if isinstance(function, ast.AsyncFunctionDef) else "def"
    lines = [f"@{name}" for name in names]
    lines += [f"{word} {function.name}({ast.unparse(given)}):", "    return None"]
    return "\n".join(indent + line for line in lines)
