"""The parent's side of one fork server: start it, hold one conversation with a child at a time, notice when it dies."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import msgspec

from foretrace.core.errors import SandboxError
from foretrace.core.problem import Ending
from foretrace.sandbox.base import Limits
from foretrace.sandbox.forkserver.channel import Ended
from foretrace.sandbox.inside.control import MESSAGE, STAMP
from foretrace.sandbox.inside.wire import frames

_ROOT = Path(__file__).resolve().parents[3]
_BOOT = "import sys; sys.path.insert(0, sys.argv[1]); from foretrace.sandbox.inside.server import main; main()"
FLAGS = ("-P", "-s", "-S", "-B", "-X", "utf8")
_START_S = 20.0
_END_S = 10.0
_LEAVE_S = 0.3
"""How long a fork server gets to end by itself."""
_GRACE_S = 2.0
"""How long after its deadline a fork server may still be busy with a run before it is given up."""
ENVIRONMENT = {
    "PATH": "/usr/bin:/bin",
    "HOME": "/tmp",
    "TMPDIR": "/tmp",
    "LANG": "C.UTF-8",
    "PYTHONHASHSEED": "0",
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "MALLOC_ARENA_MAX": "2",
}
"""All that code sees of an environment: none of the user's variables."""


NAME = "{name}"


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """What tells one kind of fork server from another."""

    interpreter: str
    level: int
    preload: tuple[str, ...] = ()
    path: tuple[str, ...] = ()
    """Folders in which the preloaded packages are installed."""
    command: tuple[str, ...] | None = None
    """What to start instead of the interpreter (a container engine's command); it must end in the fork server. `NAME`
    in it stands for a name of this one's own."""
    first: bytes = b""
    """What the command is sent before anything else."""
    end: tuple[str, ...] = ()
    """A command that ends what the other one started, where killing its process does not; with `NAME` too."""
    scratch: str | None = None
    """Folder in which code may write, where the fork server runs; null makes one here for levels that have none."""


class StartError(SandboxError):
    """A fork server that could not start; `call` names the system call that was refused, where one was."""

    def __init__(self, call: str, message: str) -> None:
        super().__init__(message)
        self.call = call


class Worker:
    """One fork server."""

    def __init__(self, launch: Launch) -> None:
        self.launch = launch
        self.runs = 0
        self.alive = False
        self.facts: dict[str, Any] = {}
        """What the fork server said of itself when it was ready."""
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._head: tuple[bytes, int] | None = None
        """Kind and length of the message whose rest is still to come."""
        self._scratch: str | None = None
        name = f"foretrace-{os.getpid()}-{secrets.token_hex(6)}"
        self._command = tuple(part.replace(NAME, name) for part in launch.command or ())
        self._end = tuple(part.replace(NAME, name) for part in launch.end)

    @property
    def pid(self) -> int:
        """Process id of what was started (the fork server itself may be its child)."""
        assert self._process is not None
        return self._process.pid

    async def start(self) -> None:
        """Start it and wait until it is warm.

        Raises:
            StartError: which call was refused, or what the interpreter said.
        """
        # Levels 0 and 1 let code write where it likes: this is where it shall. At 2 it may write nowhere. The fork
        # server makes the folder, and so takes it along whenever this process is killed.
        if self.launch.level < 2 and self.launch.scratch is None:
            self._scratch = os.path.join(tempfile.gettempdir(), f"foretrace-scratch-{secrets.token_hex(8)}")
        ours, theirs = socket.socketpair()
        command = self._command or (self.launch.interpreter, *FLAGS, "-c", _BOOT, str(_ROOT))
        try:
            self._process = subprocess.Popen(
                command,
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                stderr=subprocess.PIPE,
                env=None if self._command else ENVIRONMENT,
                cwd="/",
                start_new_session=True,
            )
        except OSError as error:
            ours.close()
            self.kill()
            raise StartError("execve", f"cannot start {self._what()}: {error.strerror}") from None
        finally:
            theirs.close()
        self._socket = ours
        settings = {
            "level": self.launch.level,
            "preload": self.launch.preload,
            "path": self.launch.path,
            "scratch": self.launch.scratch or self._scratch,
            "makes_scratch": self._scratch is not None,
        }
        try:
            self._reader, self._writer = await asyncio.open_connection(sock=ours, limit=1 << 20)
            self._writer.write(self.launch.first)
            self.post(b"C", json.dumps(settings).encode())
            self.alive = True
            kind, body = await asyncio.wait_for(self.message(), _START_S)
        except (EOFError, TimeoutError):
            said = self._last_words()
            self.kill()
            raise StartError("", f"{self._what()} does not start: {said}") from None
        except BaseException:
            self.kill()
            raise
        said = json.loads(body)
        if kind != b"A":
            self.kill()
            raise StartError(said["call"], said["message"])
        self.facts = said

    def _what(self) -> str:
        return f"{self._command[0]} run" if self._command else f"the interpreter {self.launch.interpreter}"

    def _last_words(self) -> str:
        assert self._process is not None and self._process.stderr is not None
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(0.5)
        os.set_blocking(self._process.stderr.fileno(), False)
        lines = (self._process.stderr.read() or b"").decode("utf-8", "replace").splitlines()
        lines = [line for line in lines if line.strip() and not line.startswith(("Run '", "See '"))]  # engines' hints
        return lines[-1] if lines else f"no answer within {_START_S:.0f} s"

    async def message(self) -> tuple[bytes, bytes]:
        """The next message of the fork server; may be cancelled and called again.

        Raises:
            EOFError: it has gone.
        """
        try:
            if self._head is None:
                self._head = MESSAGE.unpack(await self._reader.readexactly(MESSAGE.size))
            kind, length = self._head
            body = await self._reader.readexactly(length) if length else b""
            self._head = None
            return kind, body
        except (asyncio.IncompleteReadError, ConnectionError, OSError):
            self.alive = False
            raise EOFError from None

    def post(self, kind: bytes, body: bytes) -> None:
        """Send a message."""
        if not self._writer.is_closing():
            self._writer.write(MESSAGE.pack(kind, len(body)) + body)

    async def drain(self) -> None:
        """Wait until what was sent has left, where much was sent."""
        with contextlib.suppress(ConnectionError):
            await self._writer.drain()

    @contextlib.asynccontextmanager
    async def open(self, request: dict[str, Any], limits: Limits) -> AsyncGenerator[Talk]:
        """Start a child for `request` and talk with it; a talk that is left early costs the fork server."""
        self.runs += 1
        talk = Talk(self, request, limits)
        try:
            yield talk
            await talk.finish()
        finally:
            talk.cancel_watch()
            if not talk.over:
                self.kill()

    def still_there(self) -> bool:
        """False when the fork server has died since it was last used."""
        return self.alive and self._process is not None and self._process.poll() is None

    def hang_up(self) -> None:
        """Close the connection: with that it ends by itself, and takes all that it has started along."""
        self.alive = False
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
        if hasattr(self, "_writer"):
            self._writer.close()
        elif self._socket is not None:
            self._socket.close()

    def kill(self) -> None:
        """End it and all its children, at once."""
        self.hang_up()
        if self._process is not None:
            self._end_process(self._process)
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)

    def _end_process(self, process: subprocess.Popen[bytes]) -> None:
        end, self._end = self._end, ()
        # Killed from here, its own children would be left for others to wait for.
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_LEAVE_S)
        if process.poll() is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
        if end:
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                null = subprocess.DEVNULL
                subprocess.run(end, stdin=null, stdout=null, stderr=null, timeout=_END_S, check=False)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(5)
        if process.stderr is not None:
            process.stderr.close()


class Talk:
    """A conversation with one child (see `_conversation.Conversation`)."""

    def __init__(self, worker: Worker, request: dict[str, Any], limits: Limits) -> None:
        self._worker, self._limits = worker, limits
        self.broken: str | None = None
        self.over = False
        self.elapsed = 0.0
        """Seconds from the child's start to the last frame that came."""
        self._frames = frames.Frames(limits.reply_kb * 1024 + 4096)
        self._out, self._err = Kept(limits.stdout_kb), Kept(limits.stdout_kb)
        self._ended: Ended | None = None
        given = {**request, "limits": msgspec.to_builtins(limits)}
        if stdin := given.pop("stdin", ""):
            worker.post(b"I", stdin.encode("utf-8", "surrogatepass"))
        # The fork server reads only this; the request itself goes to the child, past its memory.
        asked = {key: given[key] for key in ("mode", "limits", "interactive") if key in given}
        worker.post(b"R", json.dumps(asked).encode("ascii"))
        worker.post(b"S", frames.pack(given))
        self._watch = asyncio.get_running_loop().call_later(limits.wall_s + _GRACE_S, worker.kill)

    async def send(self, message: list[Any]) -> None:
        """Send the child a frame."""
        self._worker.post(b"S", frames.pack(message))
        await self._worker.drain()

    async def receive(self) -> Any | None:
        """The child's next frame; None when it has ended, or has said what is no frame."""
        while True:
            if self.broken is None:
                try:
                    message = self._frames.take()
                except frames.BrokenFrame as error:
                    self.broken = f"the process answered with {error}"
                    message = None
                if message is not None:
                    return message
            if self.broken is not None or self.over:
                return None
            await self._hear()

    async def finish(self, within: float | None = None) -> Ended:
        """Wait for the child's end, or bring it about, and say how it ended (see `_conversation`)."""
        if self.broken is not None:
            self.stop()
        timer = None if within is None else asyncio.get_running_loop().call_later(within, self.stop)
        while not self.over:
            await self._hear()
        if timer is not None:
            timer.cancel()
        self.cancel_watch()
        assert self._ended is not None
        if self.broken is None and self._frames.rest:
            self.broken = "the process ended in the middle of an answer"
        return self._ended

    def stop(self) -> None:
        """Have the child ended; `finish` then says so."""
        if not self.over:
            self._worker.post(b"K", b"")

    def cancel_watch(self) -> None:
        self._watch.cancel()

    async def _hear(self) -> None:
        started = time.monotonic()
        try:
            kind, body = await self._worker.message()
        except EOFError:
            self.over = True
            self._ended = Ended(ending="lost", seconds=time.monotonic() - started, **self.output())
            return
        if kind == b"D":
            (self.elapsed,) = STAMP.unpack_from(body)
            self._frames.feed(body[STAMP.size :])
        elif kind == b"O":
            self._out.add(body)
        elif kind == b"E":
            self._err.add(body)
        elif kind == b"X":
            self.over = True
            self._ended = ended(json.loads(body), self._limits, self.output())

    def output(self) -> dict[str, Any]:
        """What the child has printed so far, as fields of `Ended`."""
        truncated = self._out.cut or self._err.cut
        return {"stdout": self._out.text(), "stderr": self._err.text(), "truncated": truncated}

    def start_output(self, most_kb: int) -> None:
        """Forget what was printed so far: a new block begins."""
        self._out, self._err = Kept(most_kb), Kept(most_kb)


class Kept:
    """The first part of a stream."""

    def __init__(self, most_kb: int) -> None:
        self._left = most_kb * 1024
        self._chunks: list[bytes] = []
        self.cut = False

    def add(self, chunk: bytes) -> None:
        self.cut = self.cut or len(chunk) > self._left
        if self._left:
            self._chunks.append(chunk[: self._left])
            self._left -= len(self._chunks[-1])

    def text(self) -> str:
        return b"".join(self._chunks).decode("utf-8", "replace")


def ended(said: dict[str, Any], limits: Limits, output: dict[str, Any]) -> Ended:
    """How a child ended, from what the fork server saw."""
    status, killed, cpu = int(said["status"]), said["killed"], said.get("cpu_s")
    exit_code = os.waitstatus_to_exitcode(status) if not killed else None
    ending: Ending = "ok"
    number = None
    if killed in ("timeout", "output"):
        ending = killed
    elif killed == "reply":
        ending = "output"
    elif killed in ("threads", "fork"):
        ending = "memory"
    elif killed:
        ending = "killed"
    elif exit_code is not None and exit_code < 0:
        number, exit_code = -exit_code, None
        out_of_cpu = number in (signal.SIGXCPU, signal.SIGKILL) and (cpu or limits.cpu_s) >= limits.cpu_s / 2
        ending = "timeout" if out_of_cpu else "killed"
    elif exit_code:
        ending = "exit"
    return Ended(ending=ending, exit_code=exit_code, signal=number, seconds=float(said["seconds"]), cpu_s=cpu, **output)
