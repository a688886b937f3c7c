"""A sandbox driven from plain test functions, and a look at the processes that fork servers leave."""

from __future__ import annotations

import asyncio
import gc
import os
import time
import uuid
from collections.abc import Callable, Coroutine, Iterable, Iterator
from typing import Any, NamedTuple

import psutil
import pytest

from foretrace.core.errors import SandboxError
from foretrace.core.problem import RunResult, Test, Verdict
from foretrace.sandbox.base import Limits, SandboxSettings
from foretrace.sandbox.forkserver import server_process
from foretrace.sandbox.local import LocalSandbox
from timing import AT_ONCE_S

MARK = f"mark={uuid.uuid4().hex}"
"""Stands in the command line of every process that this test run's sandboxes start."""


def mark_fork_servers(mark: str = MARK) -> None:
    """Let all fork servers from here on be found by their command line, wherever they end up."""
    server_process.PYTHON_FLAGS = (*server_process.PYTHON_FLAGS, "-X", mark)


def marked(mark: str = MARK) -> set[int]:
    """Live processes of this run's sandboxes, orphans too (a zombie runs nothing)."""
    found: set[int] = set()
    for process in psutil.process_iter():
        try:
            if mark in process.cmdline() and process.status() != psutil.STATUS_ZOMBIE:
                found.add(process.pid)
        except psutil.Error:
            continue
    return found


def own_zombies() -> list[int]:
    return [p.pid for p in psutil.Process().children() if p.status() == psutil.STATUS_ZOMBIE]


def own_descriptors() -> int:
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


def until(condition: Callable[[], bool], seconds: float = AT_ONCE_S) -> bool:
    """Whether the condition comes true within that time."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.04)  # a look at all processes is no small work
    return True


async def start_sleeping(sandbox: Any, **more: Any) -> asyncio.Task[RunResult]:
    """A run of half a minute, of which the process is there: what comes now comes in the middle of it."""
    before = marked()
    run = asyncio.create_task(sandbox.run("import time; time.sleep(30)", **more))
    await asyncio.to_thread(until, lambda: bool(marked() - before))
    return run


def settings(level: int | None = None, **changes: Any) -> SandboxSettings:
    given: dict[str, Any] = {"workers": 1, "level": level}
    if level is not None and level < 2:
        given |= {"min_level": level, "allow_weak_isolation": True}
    elif level is not None:
        given["min_level"] = level
    return SandboxSettings(**(given | changes))


LONGEST_S = 60.0
"""Of one judging, on a machine that is busy: several processes, each with a little time to end."""


Judge = Callable[..., Verdict]
"""Judges code against tests (texts of asserts, or `Test`s), with the options of a plan and the limits by name."""
LOOP = "for x in (1, 2):\n    assert f(x) == x * 7"


def outcome(verdict: Verdict) -> list[bool]:
    return [test.passed for test in verdict.tests]


class Job(NamedTuple):
    """What is judged."""

    name: str
    code: str
    tests: list[Test]
    options: dict[str, Any]


class Box:
    """One sandbox and the loop that it lives in."""

    def __init__(self, runner: asyncio.Runner, sandbox: Any, level: int) -> None:
        self.runner, self.sandbox, self.level = runner, sandbox, level

    def do(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.runner.run(work)

    def run(self, code: str, *, stdin: str = "", **limits: Any) -> RunResult:
        given = Limits(**limits) if limits else None
        return self.runner.run(self.sandbox.run(code, stdin=stdin, limits=given))

    def judge(self, code: str, tests: list[Any], **more: Any) -> Any:
        return self.runner.run(self.sandbox.judge(code, tests, **more))

    def judge_all(self, jobs: Iterable[Job], at_once: int = 3) -> dict[str, Verdict | Exception]:
        """The verdict of each job, by its name, or what was raised; several are judged at a time."""
        found: dict[str, Verdict | Exception] = {}

        async def work(queue: Iterator[Job]) -> None:
            for job in queue:
                judging = self.sandbox.judge(job.code, job.tests, **job.options)
                try:
                    found[job.name] = await asyncio.wait_for(judging, LONGEST_S)
                except Exception as error:
                    found[job.name] = error

        async def all_of_them() -> None:
            queue = iter(jobs)
            await asyncio.gather(*(work(queue) for _ in range(at_once)))

        self.do(all_of_them())
        return found

    def out(self, code: str, **more: Any) -> str:
        """What a program prints that comes to its end."""
        result = self.run(code, **more)
        assert result.ok, result
        return result.stdout


def skip_if_refused(error: Exception) -> None:
    """Skip the test where the machine refuses the isolation level; a fork server that does not start is our fault."""
    if str(error).startswith("isolation level "):
        pytest.skip(str(error))


def box_at(level: int, runner: asyncio.Runner, **changes: Any) -> Iterator[Box]:
    """A sandbox at that level, closed afterwards; the test is skipped where the machine cannot have it."""
    sandbox = LocalSandbox(settings(level, **changes))
    try:
        isolation = runner.run(sandbox.start())
    except SandboxError as error:
        skip_if_refused(error)
        raise
    assert isolation.level == level
    try:
        yield Box(runner, sandbox, level)
    finally:
        runner.run(sandbox.close())


QUICK = Limits(wall_s=0.6, cpu_s=1.0, output_mb=1)
PATIENT = Limits(wall_s=8.0, output_mb=1)
"""For what comes to its end, on a machine that is busy."""


class Blocks:
    """A session, driven from plain functions."""

    def __init__(self, box: Box, limits: Limits = PATIENT) -> None:
        self.box = box
        self.session = box.do(box.sandbox.session(limits=limits))

    def run(self, block: str, at: int | None = None) -> RunResult:
        return self.box.do(self.session.run(block, at=at))

    def out(self, block: str, at: int | None = None) -> str:
        result = self.run(block, at)
        assert result.ending == "ok" and result.step == self.session.head, result
        return result.stdout

    def close(self) -> None:
        self.box.do(self.session.close())
