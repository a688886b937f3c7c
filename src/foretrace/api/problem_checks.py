"""Prove a problem set without a model: in a sandbox of this machine, or in those of a cluster."""

from __future__ import annotations

import asyncio
import math
import socket
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from foretrace.core.errors import SandboxError
from foretrace.core.problem import Problem
from foretrace.core.progress import ProgressFunc
from foretrace.core.trace import Isolation
from foretrace.engines.engine import Pool
from foretrace.engines.ray_tasks import RayTasks
from foretrace.episodes.validate import Fault, ProblemResult, ValidationReport, judge_problems, make_report
from foretrace.problems.harbor_job import TaskRewards, judge_tasks
from foretrace.registry import make_sandbox
from foretrace.sandbox.base import SandboxSettings

_GROUPS_EACH = 4
"""Groups of problems for each task that runs at one time: the fewer, the less often a sandbox is started."""
_MAX_GROUP = 64


class CheckedProblems(NamedTuple):
    """How well the code was isolated, and what was found."""

    isolation: Isolation
    """The weakest of the nodes."""
    nodes: dict[str, Isolation]
    """By host name; one entry where the work was done on this machine."""
    report: ValidationReport


class _Group(NamedTuple):
    """What a task gives back."""

    node: str
    isolation: Isolation
    results: list[ProblemResult]


def check_problems(
    problems: Sequence[Problem],
    sandbox: str,
    settings: SandboxSettings,
    *,
    workers: int,
    cluster: RayTasks | None = None,
    tasks: Sequence[Path] = (),
    environment: str = "",
    progress: ProgressFunc,
    doing: str,
) -> CheckedProblems:
    """Judge the reference and an empty answer of every problem (see `validate_problems`).

    Args:
        sandbox: Names of sandboxes, in order of preference.
        workers: Problems at one time, on this machine.
        cluster: Where the work is done instead: each of its tasks has a sandbox of its own, on its node.
        tasks: Harbor tasks, which Harbor judges in `environment`.
        doing: What `progress` is told.

    Raises:
        SandboxError: a sandbox cannot serve; names the node, on a cluster.
        UsageError: no such sandbox, or no such cluster.
    """
    started = time.monotonic()
    if cluster is None:
        groups = [_judge(problems, sandbox, settings, workers, lambda done: progress(doing, done, len(problems)))]
    else:
        with cluster.open_pool(useful=len(problems), small=False) as pool:
            groups = _judge_on_nodes(pool, problems, sandbox, settings, progress, doing)
    rewards = judge_tasks(tasks, environment, workers) if tasks else []
    results = [*(result for group in groups for result in group.results), *map(_make_task_result, rewards)]
    report = make_report(results, time.monotonic() - started)
    nodes = {group.node: group.isolation for group in sorted(groups, key=lambda group: -group.isolation.level)}
    return CheckedProblems(min(nodes.values(), key=lambda isolation: isolation.level), nodes, report)


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


def _judge_on_nodes(
    pool: Pool, problems: Sequence[Problem], sandbox: str, settings: SandboxSettings, progress: ProgressFunc, doing: str
) -> list[_Group]:
    size = max(1, min(_MAX_GROUP, math.ceil(len(problems) / (pool.workers * _GROUPS_EACH))))
    own = msgspec.structs.replace(settings, workers=1)
    futures = [
        pool.submit(_judge_here, list(problems[first : first + size]), sandbox, own)
        for first in range(0, max(1, len(problems)), size)
    ]
    groups: list[_Group] = []
    for future in futures:
        groups.append(future.result())
        progress(doing, sum(len(group.results) for group in groups), len(problems))
    return groups


def _judge_here(problems: list[Problem], sandbox: str, settings: SandboxSettings) -> _Group:
    """In a worker of the cluster: some problems, in a sandbox of its node."""
    try:
        return _judge(problems, sandbox, settings, 1, lambda done: None)
    except SandboxError as error:
        raise SandboxError(f"node {socket.gethostname()}: ", *error.parts) from None


def _judge(
    problems: Sequence[Problem], sandbox: str, settings: SandboxSettings, workers: int, note_done: Callable[[int], None]
) -> _Group:
    judge = make_sandbox(sandbox, settings)

    async def run() -> _Group:
        async with judge:
            isolation = await judge.start()
            results = await judge_problems(problems, judge, workers=workers, progress=note_done)
            return _Group(socket.gethostname(), isolation, results)

    return asyncio.run(run())
