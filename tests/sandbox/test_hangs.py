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
from typing import Any

import pytest

from foretrace.core.problem import Test
from foretrace.sandbox.base import Limits
from portions import in_portions_of, take
from sandbox.boxes import Box, Job, box_at

HANGS = tomllib.loads(Path(__file__).with_name("hostile").joinpath("hangs.toml").read_text(encoding="utf-8"))["hang"]
LIMITS = Limits(wall_s=0.3, cpu_s=1.0, memory_mb=256, output_mb=2)
AT_ONCE = 6
BLOCKED_S = 0.05
GROWN_MB = 64
RIGHT = "def f(x): return x * 7"
FORMS = {
    "values": Test(code="assert f(1) == 7"),
    "calls": Test(code="for n in (1, 2):\n    assert f(n) == n * 7"),
    "program": Test(stdin="", stdout="7\n"),
}


def jobs() -> Iterator[Job]:
    for hang in HANGS:
        code = hang["code"]
        for form in hang.get("forms", FORMS):
            is_program = form == "program"
            whole, asked = (f"{code}\nprint(f(1))", {}) if is_program else (code, {"entry_point": "f"})
            yield Job(f"{hang['name']}: {form}", whole, [FORMS[form]], asked)
        for number, test in enumerate(hang.get("tests", ())):
            yield Job(f"{hang['name']}: test {number}", code, [Test(code=test)], {"entry_point": "f"})


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


@in_portions_of(20)
def test_every_hang_is_ended_and_nothing_raises(wide: Box, portion: int) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with watching_the_loop(400) as slow:
        found = wide.judge_all(take(list(jobs()), portion), AT_ONCE)
    wrong = [(k, v) for k, v in found.items() if isinstance(v, Exception) or v.passed or v.ending == "lost"]
    assert wrong == []
    assert slow == []
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < GROWN_MB << 10
