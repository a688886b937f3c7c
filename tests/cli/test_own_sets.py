"""Problem sets in the forms of MBPP, and of APPS and LiveCodeBench, from file to verdict.

Every reference and every other right answer passes, every wrong one fails, and the check of the set says how it is
judged. `tests/problems/sets/` holds the problems.
"""

from __future__ import annotations

import asyncio
import tomllib
from pathlib import Path
from typing import Any

import pytest

from cli.conftest import write_rows
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
    rows: list[dict[str, Any]] = []
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
    return ("mbpp" if name == "mbpp_like" else "jsonl"), write_rows(folder / f"{name}.jsonl", rows)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mbpp_like", "programs"])
def test_right_answers_pass_and_wrong_ones_fail(name: str, tmp_path: Path) -> None:
    kind, path = write_set(tmp_path, name)
    problems = list(make_problem_set(kind).load(path))
    assert len(problems) >= (20 if name == "mbpp_like" else 10)
    mistaken: list[str] = []

    async def judge_all() -> None:
        async with LocalSandbox(SandboxSettings(workers=2, limits=LIMITS, allow_weak_isolation=True)) as sandbox:
            for problem, row in zip(problems, read(name), strict=True):
                assert isinstance(problem, Problem), problem
                assert problem.reference is not None
                right = [problem.reference, *row["right"]]
                tests = [each for each in (problem.public_tests, problem.hidden_tests) if each]
                for code in (*right, *row["wrong"]):
                    verdicts = [await judge_with_retry(sandbox, problem, code, each) for each in tests]
                    if all(verdict.passed for verdict in verdicts) != (code in right):
                        mistaken.append(f"{problem.id} refuses this, or lets it pass:\n{code}")

    asyncio.run(judge_all())
    assert mistaken == []
