"""Check a problem set in a sandbox without a model; tasks that need their own image are judged by Harbor."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path

from foretrace.core.problem import Problem
from foretrace.core.progress import ProgressFunc
from foretrace.core.trace import Isolation
from foretrace.engines.processes import usable_cores
from foretrace.episodes.validate import Fault, ProblemResult, ValidationReport, judge_problems, make_report
from foretrace.problems.harbor_job import TaskRewards, judge_tasks
from foretrace.registry import make_sandbox
from foretrace.sandbox.base import SandboxSettings


def check_problems(
    problems: Sequence[Problem],
    sandbox: str,
    settings: SandboxSettings,
    *,
    tasks: Sequence[Path] = (),
    environment: str = "",
    progress: ProgressFunc,
    doing: str,
) -> tuple[ValidationReport, Isolation]:
    """Judge the reference and an empty answer of every problem (see `judge_problems`).

    Args:
        sandbox: Names of sandboxes, in order of preference.
        tasks: Harbor tasks, which Harbor judges in `environment`.
        doing: Text for `progress`.

    Returns:
        The report, and how well the code was isolated.

    Raises:
        SandboxError: no sandbox can start.
        UsageError: there is no such sandbox.
    """
    started, workers = time.monotonic(), settings.workers or usable_cores()
    judge = make_sandbox(sandbox, settings)

    async def run() -> tuple[list[ProblemResult], Isolation]:
        async with judge:
            isolation = await judge.start()
            results = await judge_problems(
                problems, judge, workers=workers, progress=lambda done: progress(doing, done, len(problems))
            )
            return results, isolation

    results, isolation = asyncio.run(run())
    rewards = judge_tasks(tasks, environment, workers) if tasks else []
    return make_report([*results, *map(_make_task_result, rewards)], time.monotonic() - started), isolation


def _make_task_result(rewards: TaskRewards) -> ProblemResult:
    """The result of a Harbor task: a reward of 1 passes."""
    name, solution = rewards.task.name, rewards.task / "solution"
    reference = str(solution) if solution.is_dir() else None
    problem = Problem(id=name, statement="", reference=reference)
    passed, empty = (rewards.solution or 0) >= 1, (rewards.nothing or 0) >= 1
    result = ProblemResult(problem, [], hidden=1, reference_passed=passed and reference is not None, empty_passed=empty)
    if rewards.nothing is None or (reference and rewards.solution is None):
        result.faults.append(Fault(problem=name, kind="lost", detail=rewards.error[:300] or "no reward was written"))
    elif reference and not passed:
        detail = f"the reward of its solution is {rewards.solution:g}"
        result.faults.append(Fault(problem=name, kind="reference_failed", detail=detail))
    if empty:
        result.faults.append(Fault(problem=name, kind="empty_passed", detail="doing nothing has the reward 1"))
    return result
