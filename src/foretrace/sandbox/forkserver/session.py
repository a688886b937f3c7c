"""Sessions of accumulating blocks: with forked checkpoints if there is a pid namespace, else by replaying blocks."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any, Self

import msgspec

from foretrace.core.errors import SandboxError
from foretrace.core.problem import RunError, RunResult
from foretrace.core.trace import Isolation
from foretrace.sandbox.base import Limits, Session
from foretrace.sandbox.forkserver.child_channel import ChildChannel
from foretrace.sandbox.forkserver.pool import ForkServerPool
from foretrace.sandbox.forkserver.run_result import ChildExit, find_size_error, make_run_result, read_child_exit
from foretrace.sandbox.forkserver.server_process import ForkServer
from foretrace.sandbox.inside.wire import BLOCK, CANCEL, EXIT, FORGET, KEEP, KILL, RUN, TO_CHILD, pack_frame

_MAX_STATES = 256
_CANNOT_START = "no session can start within these limits: raise memory_mb, open_files or processes"
_END_S = 3.0
"""Seconds that a fork server gets to end a block or a session."""


class _BlockSession(Session):
    """What both kinds of session share: numbered states, one block at a time, and closing."""

    mode = ""

    def __init__(self, pool: ForkServerPool, limits: Limits, isolation: Isolation) -> None:
        self.head = 0
        self._pool, self._limits, self._isolation = pool, limits, isolation
        self._lock = asyncio.Lock()
        self._stack = contextlib.AsyncExitStack()
        self._closed_reason: str | None = None
        self._ended = False
        self._states: set[int] = {0}
        self._next_numbers = {0: 1}
        """For each state, the number in the file name of the next block on it."""

    async def run(self, block: str, *, at: int | None = None, early: bool = False) -> RunResult:
        """Run a block on the state `at` (see `base.Session`)."""
        async with self._lock:
            if self._closed_reason is not None:
                raise SandboxError(self._closed_reason)
            start = self.head if at is None else at
            if start not in self._states:
                some = sorted(self._states)
                states = ", ".join(map(str, some if len(some) <= 20 else [*some[:10], "...", *some[-9:]]))
                raise SandboxError(f"the session has no state {start}: choose one of {states}")
            if len(self._states) >= _MAX_STATES:
                raise SandboxError(f"the session has {_MAX_STATES} states, which is the most: open a new one")
            if error := find_size_error(block):
                return RunResult(ending="error", error=error, isolation=self._isolation)
            result = msgspec.structs.replace(await self._run(block, start), mode=self.mode)
            if result.step is not None:
                self._states.add(result.step)
                self._next_numbers[result.step] = self._next_numbers[start] + 1
            if not early:
                self.keep(result, start)
            return result

    def next_number(self, at: int) -> int:
        return self._next_numbers[at]

    def keep(self, result: RunResult, at: int) -> None:
        self._next_numbers[at] += 1
        self.head = self.head if result.step is None else result.step

    async def forget(self, result: RunResult, at: int) -> None:
        async with self._lock:
            if result.step in self._states and self._closed_reason is None:
                self._states.remove(result.step)
                self._forget(at, result.step)

    def _forget(self, at: int, step: int) -> None:
        """End the process of a state."""

    async def open(self) -> Self:
        """Start what is needed before the first block."""
        return self

    async def _run(self, block: str, at: int) -> RunResult:
        raise NotImplementedError

    async def _end(self) -> None:
        """End all processes. No block is running."""

    def _interrupt(self) -> None:
        raise NotImplementedError

    async def close(self) -> None:
        self._closed_reason = self._closed_reason or "the session is closed: open a new one"
        if self._lock.locked():
            self._interrupt()
        async with self._lock:
            if self._ended:
                return
            self._ended = True
            try:
                await self._end()
            finally:
                await self._stack.aclose()


class ForkSession(_BlockSession):
    """Each block runs in a fork of the process that ran the blocks before it."""

    mode = "fork"

    async def open(self) -> Self:
        """Take a fork server for the session."""
        self._server: ForkServer = await self._stack.enter_async_context(self._pool.lend("session"))
        self._server.runs += 1
        request = {"mode": "session", "limits": msgspec.to_builtins(self._limits)}
        self._server.send((RUN, json.dumps(request).encode()))
        return self

    async def _run(self, block: str, at: int) -> RunResult:
        order = {"at": at, "number": self._next_numbers[at], "wall_s": self._limits.wall_s}
        start = (BLOCK, json.dumps(order).encode()), (TO_CHILD, pack_frame(["block", block]))
        channel = ChildChannel(self._server, self._limits, *start, stop=CANCEL)
        try:
            said = await channel.receive()
            said_at = channel.elapsed
            if said == ["ended", None]:
                self._server.send((KEEP, b""))
            elif said is not None and not (isinstance(said, list) and said[:1] == ["ended"] and len(said) == 2):
                channel.stop()
            child_exit = await channel.wait()
        except BaseException:
            await self._cancel_block(channel, at)
            raise
        finally:
            channel.cancel_watchdog()
        report, printed = channel.report, channel.printed()
        if report.get("lost", True):
            return self._end_lost(child_exit, report)
        if report["step"] is not None:
            report["seconds"] = said_at  # without the time that it waited to be kept
        # If a block reports its end and then dies, the report does not count.
        frame = None if report["killed"] or (said == ["ended", None] and report["step"] is None) else said
        child_exit = read_child_exit(report | ({"status": 0} if frame else {}), self._limits, printed)
        result = make_run_result(child_exit, frame, self._limits, self._isolation)
        return msgspec.structs.replace(result, step=report["step"])

    def _end_lost(self, child_exit: ChildExit, report: dict[str, Any]) -> RunResult:
        """End the session because its processes have died; return the result of the running block."""
        why = "its code killed or stopped its own processes" if report else "its fork server has gone"
        self._closed_reason = f"the session was lost: {why}; open a new one"
        self._server.kill()
        if report and child_exit.ending != "timeout":
            child_exit = msgspec.structs.replace(child_exit, ending="killed", signal=None, exit_code=None)
        result = make_run_result(child_exit, None, self._limits, self._isolation)
        if report and "lost" not in report:  # the session ended before its first block
            return msgspec.structs.replace(result, error=RunError(kind="NoSession", message=_CANNOT_START))
        return result

    async def _cancel_block(self, channel: ChildChannel, at: int) -> None:
        """End the running block and leave the session as it was before it; if that fails, end the session."""
        with contextlib.suppress(asyncio.CancelledError):
            await channel.end(_END_S)
        if channel.report.get("lost", True):
            self._interrupt()
            self._closed_reason = "the session was interrupted: open a new one"
        elif channel.report["step"] is not None:  # it completed first
            self._forget(at, channel.report["step"])

    def _forget(self, at: int, step: int) -> None:
        self._server.send((FORGET, json.dumps({"at": at, "step": step}).encode()))

    def _interrupt(self) -> None:
        self._server.kill()

    async def _end(self) -> None:
        if self._server.alive:
            self._server.send((KILL, b""))
            try:
                async with asyncio.timeout(_END_S):
                    while (await self._server.receive())[0] != EXIT:
                        pass
            except (EOFError, TimeoutError):
                self._server.kill()
            except BaseException:
                self._server.kill()
                raise


class ReplaySession(_BlockSession):
    """Each block runs in a fresh process, after the earlier blocks are run again with their output discarded."""

    mode = "replay"

    def __init__(self, pool: ForkServerPool, limits: Limits, isolation: Isolation) -> None:
        super().__init__(pool, limits, isolation)
        self._made_by: list[tuple[int, str]] = [(0, "")]
        """For each state, the state before it and the block that led from that to it."""
        self._child: ChildChannel | None = None

    async def _run(self, block: str, at: int) -> RunResult:
        blocks, state = [block], at
        while state:
            state, before = self._made_by[state]
            blocks.insert(0, before)
        limits, count = self._limits, len(blocks)
        longer = msgspec.structs.replace(limits, wall_s=limits.wall_s * count, cpu_s=limits.cpu_s * count)
        said, began = list[Any](), 0.0
        async with self._pool.start_child({"mode": "replay", "blocks": blocks}, longer) as self._child:
            while (message := await self._child.receive()) is not None:
                began, said = (self._child.elapsed, []) if message == ["begins"] else (began, [*said, message])
            child_exit = await self._child.wait()
        child_exit = msgspec.structs.replace(child_exit, seconds=child_exit.seconds - began)
        # A block sends one message; if there are more, its code has written to the channel.
        frame = said[-1] if len(said) == 1 or (said and not began) else None
        result = make_run_result(child_exit, frame, limits, self._isolation)
        if result.ending != "ok":
            return result
        self._made_by.append((at, block))
        return msgspec.structs.replace(result, step=len(self._made_by) - 1)

    def _interrupt(self) -> None:
        if self._child is not None:
            self._child.stop()
