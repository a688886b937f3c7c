"""Sessions of accumulating blocks: by forked checkpoints where there is a pid namespace, else by running again."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from typing import Any, Self

import msgspec

from foretrace.core.errors import SandboxError
from foretrace.core.problem import Ending, RunError, RunResult
from foretrace.core.trace import Isolation
from foretrace.sandbox.base import Limits
from foretrace.sandbox.forkserver.channel import Ended
from foretrace.sandbox.forkserver.client import Kept, Talk, Worker, ended
from foretrace.sandbox.forkserver.pool import Pool
from foretrace.sandbox.forkserver.result import MOST_SOURCE, run_result, too_large
from foretrace.sandbox.inside.control import STAMP
from foretrace.sandbox.inside.wire.frames import BrokenFrame, Frames, pack

_MOST_STATES = 256
_NO_SESSION = "no session can start within these limits: raise memory_mb, open_files or processes"
_NO_END_S = 7 * 24 * 3600.0


class _Blocks:
    """What both kinds of session share: numbered states, one block at a time, and the end."""

    mode = ""

    def __init__(self, pool: Pool, limits: Limits, isolation: Isolation) -> None:
        self.head = 0
        self._pool, self._limits, self._isolation = pool, limits, isolation
        self._turn = asyncio.Lock()
        self._stack = contextlib.AsyncExitStack()
        self._closed: str | None = None
        self._over = False
        self._states: set[int] = {0}

    async def run(self, block: str, *, at: int | None = None) -> RunResult:
        """Run a block on the state `at` (see `base.Session`)."""
        async with self._turn:
            if self._closed is not None:
                raise SandboxError(self._closed)
            start = self.head if at is None else at
            if start not in self._states:
                some = sorted(self._states)
                known = ", ".join(map(str, some if len(some) <= 20 else [*some[:10], "...", *some[-9:]]))
                raise SandboxError(f"the session has no state {start}: choose one of {known}")
            if len(self._states) >= _MOST_STATES:
                raise SandboxError(f"the session has {_MOST_STATES} states, which is the most: open a new one")
            if len(block) > MOST_SOURCE:
                return too_large(block, self._isolation)
            result = await self._run(block, start)
            if result.step is not None:
                self._states.add(result.step)
                self.head = result.step
            return result

    async def open(self) -> Self:
        """Get ready for the first block."""
        return self

    async def _run(self, block: str, at: int) -> RunResult:
        raise NotImplementedError

    async def _end(self) -> None:
        raise NotImplementedError

    def _interrupt(self) -> None:
        """End the block that runs."""
        raise NotImplementedError

    async def close(self) -> None:
        """End all processes of the session."""
        self._closed = self._closed or "the session is closed: open a new one"
        if self._turn.locked():
            self._interrupt()
        async with self._turn:
            if self._over:
                return
            self._over = True
            try:
                await self._end()
            finally:
                await self._stack.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()


class ForkSession(_Blocks):
    """Each block runs in a fork of the process that ran the blocks before it."""

    mode = "fork"

    async def open(self) -> Self:
        """Take a fork server for the session."""
        self._worker: Worker = await self._stack.enter_async_context(self._pool.lend("session"))
        self._worker.runs += 1
        request = {"mode": "session", "limits": msgspec.to_builtins(self._limits)}
        self._worker.post(b"R", json.dumps(request).encode())
        return self

    async def _run(self, block: str, at: int) -> RunResult:
        out, err = Kept(self._limits.stdout_kb), Kept(self._limits.stdout_kb)
        frames = Frames()
        self._worker.post(b"B", json.dumps({"at": at, "wall_s": self._limits.wall_s}).encode())
        self._worker.post(b"S", pack(["block", block]))
        try:
            async with asyncio.timeout(self._limits.wall_s + 3):
                while (message := await self._worker.message())[0] != b"X":
                    if message[0] == b"D":
                        frames.feed(message[1][STAMP.size :])
                    else:
                        {b"O": out, b"E": err}[message[0]].add(message[1])
        except (EOFError, TimeoutError):
            return self._lost({}, out, err, "lost")
        except BaseException:
            self._worker.kill()  # half a block may still be running there
            self._closed = "the session was interrupted: open a new one"
            raise
        said = json.loads(message[1])
        if "lost" not in said:  # the session ended before its first block
            result = self._lost({}, out, err, "killed")
            return msgspec.structs.replace(result, error=RunError(kind="NoSession", message=_NO_SESSION))
        if said["lost"]:
            return self._lost(said, out, err, "killed")
        frame = _last(frames) if said["said"] and not said["killed"] else None
        result = self._result(said, frame, out, err)
        return msgspec.structs.replace(result, step=said["step"], mode="fork")

    def _result(self, said: dict[str, Any], frame: Any, out: Kept, err: Kept) -> RunResult:
        output = {"stdout": out.text(), "stderr": err.text(), "truncated": out.cut or err.cut}
        how = ended(said | {"status": 0 if frame else said["status"]}, self._limits, output)
        return run_result(how, frame, self._limits, self._isolation)

    def _lost(self, said: dict[str, Any], out: Kept, err: Kept, ending: Ending) -> RunResult:
        why = "its code killed or stopped its own processes" if ending == "killed" else "its fork server has gone"
        self._closed = f"the session was lost: {why}; open a new one"
        self._worker.kill()
        if said.get("killed") == "timeout":
            ending = "timeout"
        how = Ended(
            ending=ending,
            seconds=said.get("seconds", 0.0),
            stdout=out.text(),
            stderr=err.text(),
            truncated=out.cut or err.cut,
        )
        return msgspec.structs.replace(run_result(how, None, self._limits, self._isolation), mode="fork")

    def _interrupt(self) -> None:
        self._worker.kill()

    async def _end(self) -> None:
        if self._worker.alive:
            self._worker.post(b"K", b"")
            try:
                async with asyncio.timeout(3):
                    while (await self._worker.message())[0] != b"X":
                        pass
            except (EOFError, TimeoutError):
                self._worker.kill()
            except BaseException:
                self._worker.kill()
                raise


def _last(frames: Frames) -> Any:
    """What a block said at its end, from the two frames that it may send."""
    try:
        first, second = frames.take(), frames.take()
    except BrokenFrame:
        return None
    return second or first


class ReplaySession(_Blocks):
    """One process runs the blocks as they come; after an error or for a branch, a fresh one runs them again."""

    mode = "replay"

    def __init__(self, pool: Pool, limits: Limits, isolation: Isolation) -> None:
        super().__init__(pool, limits, isolation)
        self._made: list[tuple[int, str]] = [(0, "")]
        """By state: the state before it, and the block that made it."""
        self._live: tuple[Talk, contextlib.AsyncExitStack] | None = None
        self._live_at = 0

    async def _run(self, block: str, at: int) -> RunResult:
        try:
            return await self._run_on(block, at)
        except BaseException:
            await self._drop()  # half a block may still be running there
            raise

    async def _run_on(self, block: str, at: int) -> RunResult:
        if self._live is None or self._live_at != at:
            await self._drop()
            for code in self._blocks_to(at):
                again = await self._step(code)
                if again.ending != "ok":
                    await self._drop()
                    return msgspec.structs.replace(again, mode="replay")
            self._live_at = at
        result = await self._step(block)
        if result.ending != "ok":  # a block that left the process took the state along
            await self._drop()
            return msgspec.structs.replace(result, mode="replay")
        self._made.append((at, block))
        self._live_at = len(self._made) - 1
        return msgspec.structs.replace(result, step=self._live_at, mode="replay")

    def _blocks_to(self, state: int) -> list[str]:
        chain: list[str] = []
        while state:
            state, block = self._made[state]
            chain.append(block)
        return chain[::-1]

    async def _step(self, block: str) -> RunResult:
        if self._live is None:
            stack = contextlib.AsyncExitStack()
            # The clock runs for each block and is watched here; the process may live longer than that.
            lasting = msgspec.structs.replace(self._limits, wall_s=_NO_END_S, cpu_s=3600.0)
            request = {"mode": "live", "interactive": True}
            worker = await stack.enter_async_context(self._pool.lend("session"))
            self._live = (await stack.enter_async_context(worker.open(request, lasting)), stack)
            self._sent = 0
        talk = self._live[0]
        talk.start_output(self._limits.stdout_kb)
        before = time.monotonic()
        frame, late = None, False
        self._sent += 1
        await talk.send(["block", block])
        try:
            async with asyncio.timeout(self._limits.wall_s):
                frame = await talk.receive()
        except TimeoutError:
            late = True
            talk.stop()
        if frame is not None and not (isinstance(frame, list) and frame[:1] == ["ended"] and frame[2:] == [self._sent]):
            frame = None  # out of turn: a block has spoken for itself
            talk.stop()
        if frame is not None:
            how = ended(
                {"killed": None, "status": 0, "seconds": time.monotonic() - before}, self._limits, talk.output()
            )
        else:
            how = await talk.finish()
            how = msgspec.structs.replace(
                how, seconds=time.monotonic() - before, ending="timeout" if late else how.ending
            )
        return run_result(how, frame, self._limits, self._isolation)

    async def _drop(self) -> None:
        if self._live is not None:
            talk, stack = self._live
            self._live = None
            talk.stop()
            await stack.aclose()

    def _interrupt(self) -> None:
        if self._live is not None:
            self._live[0].stop()

    async def _end(self) -> None:
        await self._drop()
