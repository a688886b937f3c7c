"""How things end: rule-breakers at once, by their own name, and a closed sandbox without a trace."""

from __future__ import annotations

import asyncio
import sys
import time
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

from foretrace.core.problem import Test, Verdict
from foretrace.sandbox.base import Limits
from foretrace.sandbox.forkserver.server_process import ForkServer, LaunchSpec
from foretrace.sandbox.inside.parent_connection import MESSAGE_HEADER
from sandbox.boxes import Box, box_at
from timing import AT_ONCE_S

PATIENT = Limits(wall_s=30.0, cpu_s=5.0)
HANGS_AT_ITS_END = (
    "import sys, time\nclass S:\n  closed = False\n  flush = lambda s: time.sleep(60)\nsys.stdout = S()\n"
)
RIGHT = "def f(x): return 7 * x\n"
ASSERTS = [Test(code="assert f(1) == 7"), Test(code="assert f(2) == 14")]
CHECK = [Test(code="def check(candidate):\n    for x in (1, 2):\n        assert candidate(x) == x * 7\n")]


@pytest.fixture(scope="module", params=[3, 2, 1, 0], ids=["L3", "L2", "L1", "L0"])
def any_level(request: pytest.FixtureRequest, runner: asyncio.Runner) -> Iterator[Box]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield from box_at(request.param, runner)


def judge(box: Box, code: str, tests: list[Test], **more: Any) -> Verdict:
    return box.do(box.sandbox.judge(code, tests, entry_point="f", limits=PATIENT, **more))


@pytest.mark.parametrize("form", ["values", "calls"])
def test_who_does_not_leave_is_ended_soon(jailed: Box, form: Any) -> None:
    """What it answered before counts, since it was right."""
    verdict = judge(jailed, HANGS_AT_ITS_END + RIGHT, ASSERTS if form == "values" else CHECK)
    assert verdict.passed and verdict.integrity == form and verdict.seconds < AT_ONCE_S
    if form == "values":
        assert verdict.ending == "killed" and verdict.error and "did not end" in verdict.error.message


def test_a_candidate_that_cannot_be_loaded_does_not_keep_the_tests_running(any_level: Box) -> None:
    slow = [Test(code="def check(candidate):\n    import time; time.sleep(60)\n    assert candidate(1) == {1: 2}[1]")]
    began = time.monotonic()
    verdict = judge(any_level, "1/0", slow)
    assert not verdict.passed and verdict.ending == "error" and time.monotonic() - began < AT_ONCE_S


def test_a_run_that_breaks_its_channel_is_killed_for_it(any_level: Box) -> None:
    result = any_level.run("import os, time\nos.write(3, b'xxxxxxxxx')\ntime.sleep(60)", wall_s=30.0)
    assert result.ending == "killed" and result.error and result.error.kind == "OutOfTurn"
    assert result.seconds < AT_ONCE_S


def test_a_session_that_cannot_start_says_why(jailed: Box) -> None:
    async def use() -> Any:
        async with await jailed.sandbox.session(limits=Limits(open_files=4)) as session:
            return await session.run("x = 1")

    result = jailed.do(use())
    assert result.ending == "killed" and result.error and "open_files" in result.error.message, result
    assert jailed.out("print(1)") == "1\n"


def test_an_input_that_is_too_long(any_level: Box) -> None:
    result = any_level.run("print(1)", stdin="x" * 16_000_001)
    assert result.ending == "error" and result.error and result.error.kind == "InputTooLarge"
    assert "16,000,001" in result.error.message and "16,000,000" in result.error.message and not result.stdout
    code = "import sys; print(len(sys.stdin.read()))"
    assert any_level.out(code, stdin="x" * 10_000_000, wall_s=20.0, cpu_s=5.0) == "10000000\n"


def test_a_message_that_was_waited_for_in_vain_is_not_torn() -> None:
    """A block's time may be up when half of a message is there."""

    async def use() -> list[tuple[bytes, bytes]]:
        server = ForkServer(LaunchSpec(interpreter=sys.executable, level=0))
        server._reader = asyncio.StreamReader()
        data = MESSAGE_HEADER.pack(b"O", 6) + b"abcdef" + MESSAGE_HEADER.pack(b"X", 0)
        for part in (data[:2], data[2:7]):
            server._reader.feed_data(part)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(server.receive(), 0.01)
        server._reader.feed_data(data[7:])
        return [await asyncio.wait_for(server.receive(), 5) for _ in range(2)]

    assert asyncio.run(use()) == [(b"O", b"abcdef"), (b"X", b"")]
