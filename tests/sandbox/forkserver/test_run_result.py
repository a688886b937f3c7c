"""How things end: rule-breakers at once, by their own name, and a closed sandbox without a trace."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
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
from timing import AT_ONCE_S, assert_quick, thrice_if_late

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


# A process that inherits all orphans below it: whatever a sandbox leaves is then its child.
LEFT = """
import asyncio, ctypes, json, os, sys, time, warnings
from foretrace.sandbox.base import SandboxSettings
from foretrace.sandbox.local import LocalSandbox
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)
level = int(sys.argv[1])
warnings.simplefilter("ignore")
def children():
    with open(f"/proc/self/task/{os.getpid()}/children") as file: return file.read().split()
async def main():
    sandbox = LocalSandbox(SandboxSettings(workers=2, level=level, min_level=level, allow_weak_isolation=level < 2))
    await sandbox.start()
    run = asyncio.create_task(sandbox.run("import time; time.sleep(30)"))
    await asyncio.sleep(0.1)
    run.cancel()  # costs a fork server
    await asyncio.gather(run, return_exceptions=True)
    session = await sandbox.session()
    await session.run("x = 1")
    runs = [asyncio.create_task(sandbox.run("import time; time.sleep(30)")) for _ in range(2)]
    await asyncio.sleep(1)  # their fork servers have started
    before, began = len(children()), time.monotonic()
    await sandbox.close()
    took = time.monotonic() - began
    await asyncio.gather(*runs, return_exceptions=True)
    return [before, children(), took]
print(json.dumps(asyncio.run(main())))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="orphans are caught on Linux")
@pytest.mark.parametrize("level", [3, 2, 1, 0])
@thrice_if_late
def test_a_closed_sandbox_leaves_nothing_for_others_to_wait_for(level: int, tmp_path: Any) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p), "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-c", LEFT, str(level)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    before, left, took = json.loads(done.stdout)
    assert before >= 2 and left == [], (before, left)
    assert list(tmp_path.iterdir()) == []
    assert_quick(took, 1)
