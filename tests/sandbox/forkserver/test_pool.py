"""Fork servers that die, cancelled runs, closed sandboxes: a clear result, and nothing left behind."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import warnings
from pathlib import Path
from typing import Any

import psutil
import pytest

from foretrace.core.errors import SandboxError
from foretrace.core.problem import Test
from foretrace.sandbox.base import Limits
from foretrace.sandbox.local import LocalSandbox
from sandbox.boxes import Box, box_at, marked, own_descriptors, own_zombies, settings, start_sleeping, until
from timing import AT_ONCE_S

pytestmark = pytest.mark.usefixtures("nothing_left")


def test_a_fork_server_killed_in_the_middle_of_a_run(box: Box) -> None:
    async def kill() -> Any:
        before = marked()
        run = await start_sleeping(box.sandbox)
        for pid in marked() | before:
            with contextlib.suppress(ProcessLookupError):  # the first one's end is the others'
                os.kill(pid, signal.SIGKILL)
        return await asyncio.wait_for(run, AT_ONCE_S)

    result = box.do(kill())
    assert result.ending in ("lost", "killed") and not result.ok  # whoever of them died first
    assert result.error and (result.ending == "killed" or "again" in result.error.message)
    # The outer process may be about to notice still that the inner one has gone.
    assert box.run("print(1)").ending in ("ok", "lost")
    assert box.out("print(1)") == "1\n"


def test_a_fork_server_that_died_while_it_was_idle_is_replaced(box: Box) -> None:
    assert box.out("print(1)") == "1\n"
    ours = marked() & {process.pid for process in psutil.Process().children()}
    for pid in marked():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    assert until(lambda: ours <= {*own_zombies()})
    assert box.out("print(1)") == "1\n"


def test_a_fork_server_that_stops_answering_is_given_up(jailed: Box) -> None:
    async def stop() -> Any:
        run = await start_sleeping(jailed.sandbox, limits=Limits(wall_s=0.5))
        for pid in marked():
            os.kill(pid, signal.SIGSTOP)
        return await asyncio.wait_for(run, 2 * AT_ONCE_S)

    assert jailed.do(stop()).ending in ("lost", "timeout")
    assert jailed.out("print(1)") == "1\n"


def test_a_cancelled_run_leaves_its_fork_server_to_the_next(box: Box) -> None:
    async def cancel() -> None:
        await box.sandbox.run("1")
        before = marked()
        run = await start_sleeping(box.sandbox)
        run.cancel()
        await asyncio.gather(run, return_exceptions=True)
        assert run.cancelled() and (await box.sandbox.run("print(1)")).stdout == "1\n"
        assert until(lambda: marked() == before)

    box.do(cancel())


def test_a_closed_sandbox_says_so(runner: asyncio.Runner) -> None:
    for box in box_at(3, runner):
        box.do(box.sandbox.close())
        for call in (box.sandbox.run("1"), box.sandbox.session()):
            with pytest.raises(SandboxError, match="closed"):
                box.do(call)


def test_closing_ends_runs_at_once(runner: asyncio.Runner) -> None:
    async def close(box: Box) -> None:
        runs = [asyncio.create_task(box.sandbox.run("import time; time.sleep(30)")) for _ in range(4)]
        await asyncio.sleep(0.15)
        await box.sandbox.close()
        done = await asyncio.wait_for(asyncio.gather(*runs, return_exceptions=True), AT_ONCE_S)
        assert all(isinstance(d, SandboxError) or d.ending == "lost" for d in done)

    before = marked()
    for box in box_at(3, runner, workers=2):
        box.do(close(box))
    assert until(lambda: marked() <= before)


def test_two_hundred_runs_and_verdicts_leak_nothing(runner: asyncio.Runner) -> None:
    tests = Test(code="assert f(1) == 2"), Test(code="for n in (1, 2):\n    assert f(n) == n + 1")

    async def work(box: Box, count: int) -> None:
        for i in range(count):
            result = await box.sandbox.run(f"x = {i}\n{('1/0', 'exit(3)', 'print(x)')[i % 3]}", stdin="x" * (i % 2))
            assert result.ending == ("error", "exit", "ok")[i % 3]
            if i % 5 == 0:
                assert (await box.sandbox.judge("def f(n): return n + 1", [tests[i % 2]], entry_point="f")).passed

    before = set(own_zombies())  # what other tests have left in this process
    for box in box_at(3, runner):
        box.do(work(box, 10))
        servers = marked()
        mounts = Path("/proc/self/mountinfo").read_text()
        counts = own_descriptors(), len(own_zombies()), [*map(_looked_up, sorted(servers))]
        box.do(work(box, 200))
        assert marked() == servers  # the same fork servers served all of them
        assert (own_descriptors(), len(own_zombies()), [*map(_looked_up, sorted(servers))]) == counts
        assert Path("/proc/self/mountinfo").read_text() == mounts
    assert until(lambda: not set(own_zombies()) - before)


def _looked_up(pid: int) -> tuple[int, int] | None:
    """How many descriptors and mounts a fork server has; null where we may not look."""
    try:
        return len(os.listdir(f"/proc/{pid}/fd")), len(Path(f"/proc/{pid}/mountinfo").read_text().splitlines())
    except OSError:
        return None


@pytest.mark.parametrize("level", [2, 1, 0])
def test_no_run_outlives_its_fork_server(runner: asyncio.Runner, level: int) -> None:
    """Where there is a filter, not even one that takes back that it shall die with its parent."""
    back = "import ctypes\nctypes.CDLL(None).prctl(1, 0, 0, 0, 0)\n" if level else ""

    async def end(sandbox: Any) -> None:
        run = asyncio.create_task(sandbox.run(f"{back}import time\ntime.sleep(30)"))
        assert await asyncio.to_thread(until, lambda: len(marked() - before) >= 2)
        await sandbox.close()
        await run

    before = marked()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for box in box_at(level, runner):
            box.do(end(box.sandbox))
    assert until(lambda: marked() <= before), marked() - before


def test_the_first_run_does_not_wait_for_servers_that_it_does_not_need(runner: asyncio.Runner) -> None:
    async def run_one() -> int:
        async with LocalSandbox(settings(workers=6)) as sandbox:
            assert (await sandbox.run("print(1)")).ok
            return len(marked() - before)

    before = marked()
    assert runner.run(run_one()) <= 2  # one fork server, which is two processes at level 3
