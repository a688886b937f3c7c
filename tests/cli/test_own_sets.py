"""Problem sets in the forms of MBPP, and of APPS and LiveCodeBench, from file to verdict.

Every reference and every other right answer passes, every wrong one fails, and the check of the set says how it is
judged. `tests/problems/sets/` holds the problems.
"""

from __future__ import annotations

import asyncio
import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from foretrace.core.problem import Problem
from foretrace.episodes.workspace import judge_with_retry
from foretrace.registry import make_problem_set
from foretrace.sandbox.base import Limits, SandboxSettings
from foretrace.sandbox.local import LocalSandbox

FOLDER = Path(__file__).resolve().parents[1] / "problems" / "sets"
LIMITS = Limits(wall_s=20, cpu_s=10)
"""For a machine that is busy."""


def read(name: str) -> list[dict[str, Any]]:
    return tomllib.loads((FOLDER / f"{name}.toml").read_text(encoding="utf-8"))["row"]


def write_set(folder: Path, name: str) -> tuple[str, Path]:
    """The set as its users have it: a JSONL file, without the answers that only the tests know."""
    rows = []
    for number, row in enumerate(read(name), 1):
        given = {key: value for key, value in row.items() if key not in ("right", "wrong")}
        if name == "mbpp_like":
            given |= {"task_id": number, "test_setup_code": given.get("test_setup_code", "")}
        else:
            given["cases"] = [
                {key.removesuffix("_code"): eval(text) if key.endswith("_code") else text for key, text in case.items()}
                for case in row["cases"]
            ]
        rows.append(given)
    path = folder / f"{name}.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return ("mbpp" if name == "mbpp_like" else "jsonl"), path


@pytest.fixture(scope="module")
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as running:
        yield running


@pytest.fixture(scope="module")
def sandbox(runner: asyncio.Runner) -> Iterator[LocalSandbox]:
    box = LocalSandbox(SandboxSettings(workers=2, limits=LIMITS, allow_weak_isolation=True))
    yield box
    runner.run(box.close())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mbpp_like", "programs"])
def test_right_answers_pass_and_wrong_ones_fail(
    name: str, runner: asyncio.Runner, sandbox: LocalSandbox, tmp_path: Path
) -> None:
    kind, path = write_set(tmp_path, name)
    problems = list(make_problem_set(kind).load(path))
    wrong: list[str] = []

    async def judge(problem: Problem, code: str) -> bool:
        verdicts = [
            await judge_with_retry(sandbox, problem, code, tests)
            for tests in (problem.public_tests, problem.hidden_tests)
            if tests
        ]
        return all(verdict.passed for verdict in verdicts)

    async def all_of_them() -> None:
        for problem, row in zip(problems, read(name), strict=True):
            assert isinstance(problem, Problem), problem
            assert problem.reference is not None
            for code in (problem.reference, *row["right"]):
                if not await judge(problem, code):
                    wrong.append(f"{problem.id} refuses a right answer:\n{code}")
            for code in row["wrong"]:
                if await judge(problem, code):
                    wrong.append(f"{problem.id} lets a wrong answer pass:\n{code}")

    runner.run(all_of_them())
    assert wrong == []
    assert len(problems) >= (20 if name == "mbpp_like" else 10)
