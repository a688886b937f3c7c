"""Right and wrong answers in many styles: the judge's verdict against plain Python's.

`corpus/*.toml` hold the cases: tests as people write them, right answers and wrong ones. Plain Python, with answer and
tests in one process, is the oracle.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from foretrace.core.problem import Test
from foretrace.sandbox.base import Limits
from portions import in_portions_of, take
from sandbox.boxes import Box, Job
from sandbox.plain_python import verdicts

CORPUS = Path(__file__).with_name("corpus")


class Answer(NamedTuple):
    name: str
    """File, case, `right` or `wrong`, and which one."""
    right: bool
    job: dict[str, Any]
    """As `plain_python.verdicts` takes it."""


def answers() -> Iterator[Answer]:
    for file in sorted(CORPUS.glob("*.toml")):
        for case in tomllib.loads(file.read_text(encoding="utf-8"))["case"]:
            rest = {key: case[key] for key in ("prompt", "setup", "entry_point") if key in case}
            tests = [program(test) if isinstance(test, dict) else test for test in case["tests"]]
            for kind in ("right", "wrong"):
                for number, code in enumerate(case[kind]):
                    name = f"{file.stem}: {case['name']}: {kind} {number}"
                    yield Answer(name, kind == "right", {"code": code, "tests": tests, **rest})


def program(test: dict[str, str]) -> dict[str, str]:
    """A test of a program; a long output is written as the expression that makes it."""
    return {"stdin": test["stdin"], "stdout": test["stdout"] if "stdout" in test else eval(test["stdout_code"])}


ANSWERS = list(answers())


@in_portions_of(20)
def test_the_corpus_is_what_it_says(portion: int) -> None:
    answers = take(ANSWERS, portion)
    found = verdicts([answer.job for answer in answers])
    assert [a.name for a, passed in zip(answers, found, strict=True) if passed != a.right] == []


def make_job(answer: Answer) -> Job:
    job = answer.job
    tests = [Test(**test) if isinstance(test, dict) else Test(code=test) for test in job["tests"]]
    given = {key: job.get(key, "") for key in ("setup", "prompt")} | {"entry_point": job.get("entry_point")}
    return Job(answer.name, job["code"], tests, {**given, "limits": Limits(wall_s=8, cpu_s=8)})


@in_portions_of(20)
def test_the_judge_agrees_with_plain_python(jailed: Box, portion: int) -> None:
    answers = take(ANSWERS, portion)
    found = jailed.judge_all(map(make_job, answers))
    assert [a.name for a in answers if getattr(found[a.name], "passed", None) is not a.right] == []
