"""One fork server, seen from the parent: start it, exchange messages with it, notice its death, and kill it."""

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
from pathlib import Path

import msgspec

from foretrace.core.errors import SandboxError
from foretrace.sandbox.inside.wire import CONFIGURE, MESSAGE_HEADER, READY

_ROOT = Path(__file__).resolve().parents[3]
IMPORT_WITHOUT_FORK_HOOKS = (
    "import os; register, os.register_at_fork = os.register_at_fork, lambda **_: None\n"
    "import random, threading, logging; os.register_at_fork = register\n"
)
"""The fork hooks of these three modules take a fifth of a run's time, and would give each child other random numbers.
They are not needed: a fork server has one thread, and a session takes care of its threads itself."""
_BOOT = (
    f"{IMPORT_WITHOUT_FORK_HOOKS}import sys; sys.path.insert(0, sys.argv[1])\n"
    "from foretrace.sandbox.inside.fork_server import main; main()"
)
PYTHON_FLAGS = ("-P", "-s", "-S", "-B", "-X", "utf8")
_START_TIMEOUT_S = 20.0
_END_COMMAND_TIMEOUT_S = 10.0
_EXIT_TIMEOUT_S = 0.3
"""Seconds that a fork server gets to exit on its own."""
BIND_AT_START = "LD_BIND_NOW"
"""Has functions of libraries looked up once in the fork server, and not in each child. Code does not see it."""
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
"""The complete environment of code, without any of the user's variables."""
NAME_PLACEHOLDER = "{name}"
"""Placeholder in the commands of a `LaunchSpec` for the unique name of each fork server."""


class LaunchSpec(msgspec.Struct, frozen=True, kw_only=True):
    """How the fork servers of one pool are started."""

    interpreter: str
    level: int
    preload: tuple[str, ...] = ()
    command: tuple[str, ...] | None = None
    """What to start instead of the interpreter (a container engine's command); it must run the fork server. It may
    contain `NAME_PLACEHOLDER`."""
    first_input: bytes = b""
    """Bytes that the command is sent first."""
    end_command: tuple[str, ...] = ()
    """Ends what `command` started, if killing `command` does not. It may contain `NAME_PLACEHOLDER`."""
    scratch: str | None = None
    """Folder that code may write to, on the fork server's machine; None makes one here for levels without one."""


class ForkServerStartError(SandboxError):
    """A fork server could not start; `call` names the system call that was refused, if any."""

    def __init__(self, call: str, message: str) -> None:
        super().__init__(message)
        self.call = call


class ForkServer:
    """One fork server: a process that forks a fresh child for each run, one at a time."""

    def __init__(self, launch: LaunchSpec) -> None:
        self.launch = launch
        self.runs = 0
        self.alive = False
        self.namespaces: dict[str, int] = {}
        """Inode numbers of its namespaces, by kind, once it is ready."""
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._next_header: tuple[bytes, int] | None = None
        """Kind and length of the message that is still incomplete."""
        self._scratch: str | None = None
        name = f"foretrace-{os.getpid()}-{secrets.token_hex(6)}"
        self._command = tuple(part.replace(NAME_PLACEHOLDER, name) for part in launch.command or ())
        self._end_command = tuple(part.replace(NAME_PLACEHOLDER, name) for part in launch.end_command)

    async def start(self) -> None:
        """Start it and wait until it is ready. A ForkServerStartError says which call was refused, or what the
        interpreter printed."""
        # At levels 0 and 1 code may write anywhere, and should write here; at level 2 it may write nowhere. The fork
        # server makes the folder, and so removes it whenever this process is killed.
        if self.launch.level < 2 and self.launch.scratch is None:
            self._scratch = os.path.join(tempfile.gettempdir(), f"foretrace-scratch-{secrets.token_hex(8)}")
        ours, theirs = socket.socketpair()
        command = self._command or (self.launch.interpreter, *PYTHON_FLAGS, "-c", _BOOT, str(_ROOT))
        try:
            self._process = subprocess.Popen(
                command,
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                stderr=subprocess.PIPE,
                env=None if self._command else {**ENVIRONMENT, BIND_AT_START: "1"},
                cwd="/",
                start_new_session=True,
            )
        except OSError as error:
            ours.close()
            self.kill()
            raise ForkServerStartError("execve", f"cannot start {self._describe_command()}: {error.strerror}") from None
        finally:
            theirs.close()
        self._socket = ours
        settings = {
            "level": self.launch.level,
            "preload": self.launch.preload,
            "scratch": self.launch.scratch or self._scratch,
            "makes_scratch": self._scratch is not None,
        }
        try:
            self._reader, self._writer = await asyncio.open_connection(sock=ours, limit=1 << 20)
            self._writer.write(self.launch.first_input)
            self.send((CONFIGURE, json.dumps(settings).encode()))
            self.alive = True
            kind, body = await asyncio.wait_for(self.receive(), _START_TIMEOUT_S)
        except (EOFError, TimeoutError):
            reason = self._read_last_error()
            self.kill()
            raise ForkServerStartError("", f"{self._describe_command()} does not start: {reason}") from None
        except BaseException:
            self.kill()
            raise
        report = json.loads(body)
        if kind != READY:
            self.kill()
            raise ForkServerStartError(report["call"], report["message"])
        self.namespaces = report["spaces"]

    def _describe_command(self) -> str:
        return f"{self._command[0]} run" if self._command else f"the interpreter {self.launch.interpreter}"

    def _read_last_error(self) -> str:
        assert self._process is not None and self._process.stderr is not None
        if self._process.stderr.closed:
            return "it was killed meanwhile"
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(0.5)
        os.set_blocking(self._process.stderr.fileno(), False)
        lines = (self._process.stderr.read() or b"").decode("utf-8", "replace").splitlines()
        lines = [line for line in lines if line.strip() and not line.startswith(("Run '", "See '"))]  # engines' hints
        return lines[-1] if lines else f"no answer within {_START_TIMEOUT_S:.0f} s"

    async def receive(self) -> tuple[bytes, bytes]:
        """Kind and body of the fork server's next message; EOFError if it has died. Can be cancelled and called
        again."""
        try:
            if self._next_header is None:
                header = await self._reader.readexactly(MESSAGE_HEADER.size)
                self._next_header = MESSAGE_HEADER.unpack(header)
            kind, length = self._next_header
            body = await self._reader.readexactly(length) if length else b""
            self._next_header = None
            return kind, body
        except (asyncio.IncompleteReadError, ConnectionError, OSError):
            self.alive = False
            raise EOFError from None

    def send(self, *messages: tuple[bytes, bytes]) -> None:
        """Send messages, each a kind and a body, at once."""
        if not self._writer.is_closing():
            self._writer.write(b"".join(MESSAGE_HEADER.pack(kind, len(body)) + body for kind, body in messages))

    async def drain(self) -> None:
        """Wait until most of what was sent has left the buffer, if it is a lot."""
        with contextlib.suppress(ConnectionError):
            await self._writer.drain()

    def check_alive(self) -> bool:
        """False if the fork server has died since it was last used."""
        return self.alive and self._process is not None and self._process.poll() is None

    def disconnect(self) -> None:
        """Close the connection. The fork server then kills everything that it started, and exits."""
        self.alive = False
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
        if hasattr(self, "_writer"):
            self._writer.close()
        elif self._socket is not None:
            self._socket.close()

    def kill(self) -> None:
        self.disconnect()
        if self._process is not None:
            self._end_process(self._process)
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)

    def _end_process(self, process: subprocess.Popen[bytes]) -> None:
        end, self._end_command = self._end_command, ()
        # If it were killed from here, its children would be left for others to reap.
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_EXIT_TIMEOUT_S)
        if process.poll() is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
        if end:
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                null = subprocess.DEVNULL
                subprocess.run(end, stdin=null, stdout=null, stderr=null, timeout=_END_COMMAND_TIMEOUT_S, check=False)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(5)
        if process.stderr is not None:
            process.stderr.close()
