"""Have Harbor's own runner judge tasks in their images, in any environment it supports: docker, modal, ..."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from foretrace.core.errors import ProblemError, Setting, UsageError

_AGENTS = ("oracle", "nop")
"""Harbor's agents that need no model: one runs the task's solution, the other does nothing."""


class TaskRewards(NamedTuple):
    """The results of a task's own tests; `None` if there is no reward."""

    task: Path
    solution: float | None = None
    nothing: float | None = None
    """The reward of an attempt that did nothing."""
    error: str = ""
    """Why there is no reward."""


def judge_tasks(tasks: Sequence[Path], environment: str, workers: int) -> list[TaskRewards]:
    """The rewards of each task's solution and of doing nothing, in the order of the tasks.

    Args:
        environment: A name that `harbor run --env` takes, or `module:Class`.

    Raises:
        UsageError: Harbor is not installed.
        ProblemError: Harbor could not run them.
    """
    harbor = shutil.which("harbor")
    if harbor is None:
        raise UsageError(Setting("environment", environment), " needs Harbor: install it with `uv tool install harbor`")
    with tempfile.TemporaryDirectory() as folder:
        config = {
            "job_name": "job",
            "jobs_dir": folder,
            "n_concurrent_trials": workers,
            "environment": {"import_path" if ":" in environment else "type": environment},
            "agents": [{"name": name} for name in _AGENTS],
            "tasks": [{"path": str(task.resolve())} for task in tasks],
        }
        file = Path(folder, "config.json")
        file.write_text(json.dumps(config), encoding="utf-8")
        command = [harbor, "run", "--config", str(file), "--yes", "--quiet"]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL)
        results = [json.loads(one.read_bytes()) for one in sorted(Path(folder, "job").glob("*/result.json"))]
    if not results:
        lines = (done.stderr.strip() or done.stdout.strip() or f"exit code {done.returncode}").splitlines()
        raise ProblemError(f"harbor run failed: {lines[-1].strip('│ ')[:300]}")
    return [_read_rewards(task, results) for task in tasks]


def _read_rewards(task: Path, results: list[dict[str, Any]]) -> TaskRewards:
    rewards: dict[str, float | None] = dict.fromkeys(_AGENTS)
    error = ""
    for result in results:
        config = result["config"]
        if Path(config["task"]["path"]) != task.resolve():
            continue
        found = (result.get("verifier_result") or {}).get("rewards") or {}
        rewards[config["agent"]["name"]] = min(found.values(), default=None)
        if failure := result.get("exception_info"):
            error = f"{failure['exception_type']}: {failure['exception_message']}"
    return TaskRewards(task, rewards["oracle"], rewards["nop"], error)
