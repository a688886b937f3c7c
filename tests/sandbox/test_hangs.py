"""Answers that never come to an end or exhaust what they can reach.

Each is ended, costs this process nothing to speak of, and leaves a sandbox that judges on."""

from __future__ import annotations

import asyncio
import gc
import resource
import signal
import time
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from foretrace.core.problem import Test, Verdict
from foretrace.sandbox.base import Limits
from portions import in_portions_of, take
from sandbox.boxes import Box, box_at

HANGS = tomllib.loads(Path(__file__).with_name("hostile").joinpath("hangs.toml").read_text(encoding="utf-8"))["hang"]
LIMITS = Limits(wall_s=0.3, cpu_s=1.0, memory_mb=256, output_mb=2)
AT_ONCE = 6
LONGEST_S = 60.0
"""Of one judging, on a machine that is busy: several processes, each with a little time to end."""
BLOCKED_S = 0.05
GROWN_MB = 64
RIGHT = "def f(x): return x * 7"
FORMS = {
    "values": Test(code="assert f(1) == 7"),
    "calls": Test(code="for n in (1, 2):\n    assert f(n) == n * 7"),
    "program": Test(stdin="", stdout="7\n"),
}


class Job(NamedTuple):
    name: str
    code: str
    test: Test


def jobs() -> Iterator[Job]:
    for hang in HANGS:
        code = hang["code"]
        for form in hang.get("forms", FORMS):
            yield Job(f"{hang['name']}: {form}", f"{code}\nprint(f(1))" if form == "program" else code, FORMS[form])
        for number, test in enumerate(hang.get("tests", ())):
            yield Job(f"{hang['name']}: test {number}", code, Test(code=test))


@contextmanager
def watching_the_loop(seconds: float) -> Iterator[list[tuple[float, str]]]:
    """How long each callback of the event loop computes, where that is long. Whatever blocks it is interrupted."""
    slow: list[tuple[float, str]] = []
    run = asyncio.Handle._run

    def measure(handle: Any) -> None:
        began = time.thread_time()
        run(handle)
        took = time.thread_time() - began
        if took > BLOCKED_S:
            slow.append((took, repr(handle)[:300]))

    def interrupt(*_: Any) -> None:
        raise AssertionError(f"the event loop was blocked for {seconds:g} s")

    asyncio.Handle._run = measure  # type: ignore[method-assign]
    before = signal.signal(signal.SIGALRM, interrupt)
    signal.alarm(int(seconds))
    gc.collect()
    gc.freeze()
    try:
        yield slow
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
        asyncio.Handle._run = run  # type: ignore[method-assign]
        gc.unfreeze()


@pytest.fixture(scope="module")
def wide(runner: asyncio.Runner) -> Iterator[Box]:
    """A sandbox for several judgings at one time."""
    yield from box_at(3, runner, workers=AT_ONCE, limits=LIMITS)


async def judge(box: Box, job: Job, limits: Limits | None = None) -> Verdict:
    entry_point = None if job.test.stdin is not None else "f"
    given = box.sandbox.judge(job.code, [job.test], entry_point=entry_point, limits=limits)
    verdict: Verdict = await asyncio.wait_for(given, LONGEST_S)
    return verdict


@in_portions_of(20)
def test_every_hang_is_ended_and_nothing_raises(wide: Box, portion: int) -> None:
    wrong: dict[str, str] = {}

    async def work(queue: Iterator[Job]) -> None:
        for job in queue:
            try:
                verdict = await judge(wide, job)
            except Exception as error:
                wrong[job.name] = f"raised {type(error).__name__}: {error}"[:200]
                continue
            if verdict.passed or verdict.ending == "lost":
                wrong[job.name] = f"{verdict.ending}, passed: {verdict.passed}"

    async def all_of_them() -> None:
        queue = iter(take(list(jobs()), portion))
        await asyncio.gather(*(work(queue) for _ in range(AT_ONCE)))

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with watching_the_loop(400) as slow:
        wide.do(all_of_them())
    assert wrong == {}
    assert slow == []
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < GROWN_MB << 10
