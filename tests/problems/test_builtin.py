"""The built-in problems: sound, and hard on answers that only look right."""

from __future__ import annotations

import asyncio
import tomllib
from pathlib import Path

import pytest

from foretrace.core.errors import UsageError
from foretrace.core.plugins import load_plugin
from foretrace.core.problem import Verdict
from foretrace.episodes.validate import ValidationReport, judge_problems, make_report
from foretrace.problems.builtin import Builtin
from foretrace.sandbox.base import Limits, SandboxSettings

WRONG: dict[str, dict[str, str]] = tomllib.loads(Path(__file__).with_name("wrong_answers.toml").read_text("utf-8"))
"""By problem and name: answers that look right, pass what the statement shows, and are wrong."""
PROBLEMS = {problem.id.removeprefix("builtin/"): problem for problem in Builtin().load()}
NAMED = {"two_sum", "is_palindrome", "max_subarray", "valid_parentheses", "merge_sorted_lists", "climbing_stairs"}
NAMED |= {"binary_search", "reverse_string"}
ANSWERS = [(own, name) for own, answers in WRONG.items() for name in answers]


Verdicts = dict[tuple[str, str], tuple[Verdict, Verdict]]


@pytest.fixture(scope="module")
def verdicts() -> Verdicts:
    """Public and hidden verdict of every wrong answer, by problem and name."""

    async def judge_all() -> Verdicts:
        found: Verdicts = {}
        async with load_plugin("sandbox", "local")(SandboxSettings(workers=2)) as sandbox:
            for own, name in ANSWERS:
                problem, code = PROBLEMS[own], WRONG[own][name]
                options = {"entry_point": problem.entry_point, "limits": Limits(cpu_s=1.0, wall_s=4.0)}
                public = await sandbox.judge(code, problem.public_tests, **options)
                found[own, name] = (public, await sandbox.judge(code, problem.hidden_tests, **options))
        return found

    return asyncio.run(judge_all())


def test_what_is_in_the_set() -> None:
    assert len(PROBLEMS) == Builtin.count == 18 and set(PROBLEMS) >= NAMED
    assert sum(problem.entry_point is None for problem in PROBLEMS.values()) == 2
    assert all(p.reference and p.license and p.source == "builtin" for p in PROBLEMS.values())


@pytest.mark.parametrize("own", PROBLEMS)
def test_hidden_tests_are_no_public_ones(own: str) -> None:
    problem = PROBLEMS[own]
    assert problem.public_tests and len(problem.hidden_tests) >= 6
    assert not set(problem.public_tests) & set(problem.hidden_tests)
    assert len(set(problem.hidden_tests)) == len(problem.hidden_tests)
    for test in problem.hidden_tests:
        assert not test.code or test.code not in problem.statement
        assert len(test.stdin or "") < 4 or (test.stdin or "") not in problem.statement.replace("    ", "")


def test_every_problem_has_answers_that_look_right() -> None:
    assert set(WRONG) == set(PROBLEMS) and all(len(answers) == 2 for answers in WRONG.values())


@pytest.mark.parametrize(("own", "name"), ANSWERS)
def test_an_answer_that_looks_right_fails_the_hidden_tests(own: str, name: str, verdicts: Verdicts) -> None:
    public, hidden = verdicts[own, name]
    assert public.passed, f"it does not even look right: {[t for t in public.tests if not t.passed]}"
    assert hidden.tests and not hidden.passed and hidden.ending != "lost"


def test_the_set_is_sound() -> None:
    async def prove() -> ValidationReport:
        async with load_plugin("sandbox", "local")(SandboxSettings(workers=2)) as sandbox:
            return make_report(await judge_problems(PROBLEMS.values(), sandbox), 0)

    found = asyncio.run(prove())
    assert found.sound, found.faults
    assert (found.references_passed, found.empty_passed) == (18, 0)


def test_a_path_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="leave path out"):
        Builtin().load(tmp_path)
