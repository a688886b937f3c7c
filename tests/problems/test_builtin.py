"""The built-in problems: sound, and hard on answers that only look right."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from foretrace.core.errors import UsageError
from foretrace.episodes.validate import judge_problems, make_report
from foretrace.problems.builtin import Builtin
from foretrace.sandbox.base import Limits
from protocols.play import open_sandbox
from sandbox.boxes import Box, Job

WRONG: dict[str, dict[str, str]] = tomllib.loads(Path(__file__).with_name("wrong_answers.toml").read_text("utf-8"))
"""By problem and name: answers that look right, pass what the statement shows, and are wrong."""
PROBLEMS = {problem.id.removeprefix("builtin/"): problem for problem in Builtin().load()}
NAMED = {"two_sum", "is_palindrome", "max_subarray", "valid_parentheses", "merge_sorted_lists", "climbing_stairs"}
NAMED |= {"binary_search", "reverse_string"}


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


def test_answers_that_look_right_fail_the_hidden_tests() -> None:
    """They pass what the statement shows. Each problem has two of them."""
    assert set(WRONG) == set(PROBLEMS) and all(len(answers) == 2 for answers in WRONG.values())
    limits = Limits(cpu_s=1.0, wall_s=4.0)
    jobs = [
        Job(f"{own}: {name}: {kind}", code, [*tests], {"entry_point": problem.entry_point, "limits": limits})
        for own, problem in PROBLEMS.items()
        for name, code in WRONG[own].items()
        for kind, tests in (("public", problem.public_tests), ("hidden", problem.hidden_tests))
    ]
    with open_sandbox(2) as (runner, sandbox):
        found = Box(runner, sandbox, 0).judge_all(jobs)
    assert not [name for name, verdict in found.items() if isinstance(verdict, Exception) or verdict.ending == "lost"]
    assert {name for name, verdict in found.items() if verdict.passed} == {n for n in found if n.endswith("public")}


def test_the_set_is_sound() -> None:
    with open_sandbox(2) as (runner, sandbox):
        found = make_report(runner.run(judge_problems(PROBLEMS.values(), sandbox)), 0)
    assert found.sound, found.faults
    assert (found.references_passed, found.empty_passed) == (18, 0)


def test_a_path_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="leave path out"):
        Builtin().load(tmp_path)
