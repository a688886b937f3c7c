"""Decides how tests are judged, from their text alone: the strongest form that serves all of them."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import msgspec

from foretrace.core.errors import ProblemError
from foretrace.core.problem import Integrity, Test
from foretrace.core.python_source import parse_quietly
from foretrace.sandbox.forkserver.run_result import MAX_INPUT_CHARS
from foretrace.sandbox.inside.roles import asserts
from foretrace.sandbox.inside.roles.judge import find_check_function
from foretrace.sandbox.judging import split
from foretrace.sandbox.judging.candidate_uses import CandidateUses, find_candidate_uses, needs_one_process
from foretrace.sandbox.judging.split import Check

_MAX_CODE_CHARS = 1 << 21
"""Characters that the tests of one problem may have."""


class JudgePlan(msgspec.Struct, frozen=True, kw_only=True):
    """How tests are judged. Made once for a problem, and used for any number of candidates."""

    form: Integrity
    names: tuple[str, ...]
    """Names of the tests, in order."""
    entry_point: str | None = None
    setup: str = ""
    tests: tuple[Test, ...] = ()
    calls: tuple[tuple[str, list[Any], dict[str, Any]], ...] = ()
    """`split`: the calls of the candidate: its name, and encoded arguments."""
    checks: tuple[Check, ...] = ()
    """`split`: what is asked of the answers, one for each name."""
    callees: tuple[str, ...] = ()
    """`judge`: names of the candidate's that tests use."""
    exceptions: tuple[str, ...] = ()
    """`judge`: those of its names that tests catch."""
    keep: bool = False
    """`judge`: whether tests use objects of the candidate's classes, which stay in its process."""


def make_judge_plan(
    tests: Sequence[Test], *, entry_point: str | None = None, setup: str = "", form: Integrity | None = None
) -> JudgePlan:
    """The plan for `tests`.

    Args:
        form: asks for a form weaker than the tests would get.

    Raises:
        ProblemError: no tests, tests that cannot be parsed or hold no assert, or programs and functions in one set.
    """
    if any(type(test) is not Test for test in tests):
        raise ProblemError('tests are given as Test objects, e.g. [Test(code="assert f(1) == 2")]')
    if form not in (None, "split", "judge", "stdin", "shared"):
        raise ProblemError(f"unknown form {form!r}: choose split, judge, stdin or shared, or none")
    return _plan(tuple(tests), entry_point, setup, form)


@lru_cache(maxsize=256)  # a problem is judged many times
def _plan(tests: tuple[Test, ...], entry_point: str | None, setup: str, form: Integrity | None) -> JudgePlan:
    if not tests:
        raise ProblemError("no tests: give at least one")
    programs = [test.stdin is not None or test.stdout is not None for test in tests]
    if any(programs):
        return _programs(tests, programs, form)
    if sum(len(test.code) for test in tests) + len(setup) > _MAX_CODE_CHARS:
        raise ProblemError(f"the tests have more than {_MAX_CODE_CHARS:,} characters: give fewer or smaller ones")
    trees = [_tree(number, test.code) for number, test in enumerate(tests)]
    found = [asserts.find_asserts(tree) for tree in trees]
    for number, some in enumerate(found):
        if not some:
            raise ProblemError(f"test {number} has no assert: {_instead(trees[number])}")
    code = find_candidate_uses(trees, entry_point, _setup_tree(setup))
    for number, tree in enumerate(trees):
        _check_names(number, tree, code, entry_point)
    names = [name for n, tree in enumerate(trees) for name in asserts.name_asserts(n, tree, found[n])]
    common: dict[str, Any] = {"names": tuple(names), "entry_point": entry_point, "setup": setup, "tests": tuple(tests)}
    if form in (None, "split"):
        parts = split.split_tests(trees, code)
        if parts is not None:
            return JudgePlan(form="split", calls=parts.calls, checks=parts.checks, **common)
        if form == "split":
            raise ProblemError("these tests cannot be judged in the form split: ask for judge, or for none")
    shared = form == "shared" or needs_one_process(trees, code)
    if form == "judge" and shared:
        raise ProblemError("these tests cannot be judged in the form judge: ask for shared, or for none")
    if form == "stdin":
        raise ProblemError("tests made of code cannot be judged in the form stdin: ask for none")
    return JudgePlan(
        form="shared" if shared else "judge",
        callees=tuple(sorted(code.callees)),
        exceptions=tuple(sorted(code.exceptions)),
        keep=code.classes or any(map(_calls_results, trees)),
        **common,
    )


def _calls_results(tree: ast.Module) -> bool:
    """Whether what a call gives is called in turn: then it must be kept where it is."""
    return any(isinstance(node, ast.Call) and isinstance(node.func, ast.Call) for node in ast.walk(tree))


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
    if form not in (None, "stdin"):
        raise ProblemError(f"tests with stdin and stdout cannot be judged in the form {form}: ask for none")
    return JudgePlan(form="stdin", names=tuple(map(str, range(len(tests)))), tests=tuple(tests))


def _instead(tree: ast.Module) -> str:
    calls = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    methods = sorted({f.attr for f in calls if isinstance(f, ast.Attribute) and f.attr.startswith("assert")})
    if methods:
        return f"methods such as {methods[0]} are not read; write `assert f(1) == 2` for `self.assertEqual(f(1), 2)`"
    return "write what must hold as `assert f(1) == 2`"


def _tree(number: int, code: str) -> ast.Module:
    try:
        return parse_quietly(code, compiles=True)
    except SyntaxError as error:
        where = f" (line {error.lineno})" if error.lineno else ""
        raise ProblemError(f"test {number} cannot be parsed{where}: {error.msg}") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise ProblemError(f"test {number} cannot be parsed: {error or 'it is nested too deeply'}") from None


def _setup_tree(setup: str) -> ast.Module:
    try:
        return parse_quietly(setup, compiles=True)
    except SyntaxError as error:
        raise ProblemError(f"the setup of the tests cannot be parsed (line {error.lineno}): {error.msg}") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise ProblemError(f"the setup of the tests cannot be parsed: {error or 'it is nested too deeply'}") from None


def _check_names(number: int, tree: ast.Module, code: CandidateUses, entry_point: str | None) -> None:
    uses = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    if entry_point is None and (find_check_function(tree) or ("candidate" in uses and "candidate" in code.callees)):
        raise ProblemError(f"test {number} calls `candidate`, and the problem names no entry_point: name it")
    if not find_check_function(tree) and not uses & {*code.callees, "candidate"}:
        raise ProblemError(f"test {number} does not call the code: use its entry point")
