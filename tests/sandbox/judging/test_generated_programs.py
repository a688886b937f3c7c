"""The law of judging, for programs from a grammar: the verdict is plain Python's."""

from __future__ import annotations

import random
import re
import warnings
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretrace.core.problem import Verdict
from sandbox.judge_fixture import Judge
from sandbox.judging.generated_programs import make_program

_EXPECT = re.compile(r"EXPECT\(((?:[^()]|\((?:[^()]|\([^()]*\))*\))*)\)")


def fill_in(code: str, test: str) -> str:
    """A test with what plain Python gives in the place of `EXPECT(...)`: None where it raises, or is no literal."""

    def find(match: re.Match[str]) -> str:
        world: dict[str, Any] = {}
        exec(compile(code, "solution.py", "exec", dont_inherit=True), world)
        try:
            text = repr(eval(match[1], world))
        except Exception:
            return "None"
        return "None" if "<" in text or "C(" in text else text

    return _EXPECT.sub(find, test)


def passes(code: str, test: str) -> bool:
    world: dict[str, Any] = {"__name__": "solution"}
    exec(compile(code, "solution.py", "exec", dont_inherit=True), world)
    try:
        exec(compile(test, "test.py", "exec", dont_inherit=True), world)
    except Exception:
        return False
    return True


@pytest.mark.slow
@settings(max_examples=300)
@given(st.integers(0, 1 << 40))
def test_the_verdict_on_a_generated_program_is_that_of_plain_python(judged: Judge, seed: int) -> None:
    code, tests = make_program(random.Random(seed))
    with warnings.catch_warnings(action="ignore"):
        tests = [fill_in(code, test) for test in tests]
        expected = [passes(code, test) for test in tests]
    assert passed(judged(code, *tests), len(tests)) == expected, (code, tests)


def passed(verdict: Verdict, count: int) -> list[bool]:
    """Whether each of several tests passed: a test may have several results, which are named `number:line`."""
    return [
        all(result.passed for result in verdict.tests if result.name.partition(":")[0] == str(number))
        for number in range(count)
    ]
