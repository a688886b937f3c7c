"""The parent's end of the channel to one child of a fork server: frames both ways, its output, and its exit."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import msgspec
from msgspec.structs import replace

from foretrace.core.problem import RunResult
from foretrace.core.trace import Isolation
from foretrace.sandbox.base import Limits, count_cpu
from foretrace.sandbox.forkserver.run_result import (
    PROTOCOL_ERROR,
    ChildExit,
    find_size_error,
    make_run_result,
    read_child_exit,
)
from foretrace.sandbox.forkserver.server_process import ForkServer
from foretrace.sandbox.inside import wire

_MAX_UNREAD = 1 << 20
"""Most bytes that a child may send after its last frame was received."""
_GRACE_S = 1.0
"""Seconds after a run's deadline until its fork server is killed if it has not ended the run."""


class ChildChannel:
    """Communicates with one child, from its start to its exit.

    What the child sends is parsed as JSON of a limited size, and is trusted no more than its code.

    Args:
        messages: start the child.
        stop: the kind of message that ends it.
    """

    def __init__(
        self, server: ForkServer, limits: Limits, *messages: tuple[bytes, bytes], stop: bytes = wire.KILL
    ) -> None:
        self._server, self._limits, self._stop = server, limits, stop
        self.broken: str | None = None
        """What was wrong, if the child's bytes were not valid frames; nothing is received after that."""
        self.elapsed = 0.0
        """Seconds from the child's start to the arrival of the last frame received."""
        self.report: dict[str, Any] = {}
        """The fork server's report of the child's exit; empty before that, and if the fork server has died."""
        self._frames = wire.FrameReader(limits.reply_kb * 1024 + 4096)
        self._output = {wire.STDOUT: bytearray(), wire.STDERR: bytearray()}
        self._truncated = False
        self._exit: ChildExit | None = None
        server.send(*messages)
        self._watchdog = asyncio.get_running_loop().call_later(limits.wall_s + _GRACE_S, server.kill)

    @property
    def ended(self) -> bool:
        return self._exit is not None

    async def send(self, body: bytes) -> None:
        self._server.send((wire.TO_CHILD, wire.HEADER.pack(len(body)) + body))
        await self._server.drain()

    async def receive(self) -> Any | None:
        """The child's next frame; None if its channel has ended or is broken."""
        return await self._receive(self._frames.take)

    async def receive_bytes(self) -> bytes | None:
        """The undecoded bytes of the child's next frame; None if its channel has ended or is broken."""
        return await self._receive(self._frames.take_bytes)

    async def _receive(self, take: Callable[[], Any]) -> Any | None:
        while self.broken is None:
            try:
                if (message := take()) is not None:
                    return message
            except wire.FrameError as error:
                self.broken = f"the process answered with {error}"
                break
            if self.ended:
                break
            await self._receive_message()
        return None

    async def wait(self, timeout_s: float | None = None) -> ChildExit:
        """Wait for the child's exit, at most `timeout_s` seconds (None: its time limit), and return how it ended. It is
        killed if its channel is `broken`, as by more output than `_MAX_UNREAD` or an incomplete frame at the end."""
        if self.broken is not None:
            self.stop()
        timer = None if timeout_s is None else asyncio.get_running_loop().call_later(timeout_s, self.stop)
        while self._exit is None:
            await self._receive_message()
            if self.broken is None and self._frames.pending_bytes > _MAX_UNREAD:
                self.broken = "the process went on talking"
                self.stop()
        if timer is not None:
            timer.cancel()
        self.cancel_watchdog()
        if self.broken is None and self._frames.pending_bytes:
            self.broken = "the process ended in the middle of an answer"
        return self._exit

    def stop(self) -> None:
        """Have the fork server kill the child; `wait` then reports it. What the child sends after this may be lost."""
        if not self.ended:
            self._server.send((self._stop, b""))

    async def end(self, timeout_s: float = _GRACE_S) -> None:
        """Have the child killed and discard its result, so that its fork server can serve the next one."""
        self.stop()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while not self.ended:
                    await self._receive_message()

    def cancel_watchdog(self) -> None:
        self._watchdog.cancel()

    async def _receive_message(self) -> None:
        started = time.monotonic()
        try:
            kind, body = await self._server.receive()
        except EOFError:
            self._exit = ChildExit(ending="lost", seconds=time.monotonic() - started, **self.printed())
            return
        if kind == wire.FROM_CHILD:
            (self.elapsed,) = wire.TIMESTAMP.unpack_from(body)
            self._frames.feed(body[wire.TIMESTAMP.size :])
        elif kind == wire.EXIT:
            self.report = json.loads(body)
            self._exit = read_child_exit(self.report, self._limits, self.printed())
            count_cpu(self._exit.cpu_s)
        else:
            stream = self._output[kind]
            room = self._limits.stdout_kb * 1024 - len(stream)
            self._truncated = self._truncated or len(body) > room
            stream += body[:room]

    def printed(self) -> dict[str, Any]:
        """`stdout`, `stderr` and `truncated`, as in `ChildExit`."""
        out, err = (stream.decode("utf-8", "replace") for stream in self._output.values())
        return {"stdout": out, "stderr": err, "truncated": self._truncated}


StartChild = Callable[[dict[str, Any], Limits], AbstractAsyncContextManager[ChildChannel]]
"""Starts a child for a request (`mode`, `code`, ...) under limits."""


@functools.lru_cache
def _pack_run(mode: str, limits: Limits) -> bytes:
    """What the fork server parses of a request. The rest is forwarded to the child without staying in its memory."""
    return json.dumps({"mode": mode, "limits": msgspec.to_builtins(limits)}).encode("ascii")


@contextlib.asynccontextmanager
async def open_channel(server: ForkServer, request: dict[str, Any], limits: Limits) -> AsyncGenerator[ChildChannel]:
    """Start a child on `server` for `request`. Leaving the block before the child has exited kills the server, unless
    the task was cancelled and ending the child alone succeeds."""
    server.runs += 1
    request = {**request, "reply_kb": limits.reply_kb}
    if stdin := request.pop("stdin", ""):
        server.send((wire.STDIN, stdin.encode("utf-8", "surrogatepass")))
    run = (wire.RUN, _pack_run(request.pop("mode"), limits))
    channel = ChildChannel(server, limits, run, (wire.TO_CHILD, wire.pack_frame(request)))
    try:
        yield channel
        await channel.wait()
    except asyncio.CancelledError:
        await channel.end()
        raise
    finally:
        channel.cancel_watchdog()
        if not channel.ended:
            server.kill()


async def run_program(
    start_child: StartChild, code: str, stdin: str, limits: Limits, isolation: Isolation
) -> RunResult:
    if error := find_size_error(code, stdin):
        return RunResult(ending="error", error=error, isolation=isolation)
    async with start_child({"mode": "run", "code": code, "stdin": stdin}, limits) as child:
        frame = await child.receive()
        child_exit = await child.wait()
    result = make_run_result(child_exit, frame, limits, isolation)
    return replace(result, error=PROTOCOL_ERROR) if child.broken and result.ending == "killed" else result
