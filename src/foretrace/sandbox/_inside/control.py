"""The fork server's connection to its parent, and what it does about processes and descriptors.

Binary messages: a kind (one byte), a length (4 bytes, big-endian), and that many bytes. From the parent: C
(configuration), R (run), S (bytes for the child's channel), K (end the run). To the parent: A (ready) or F (failed),
and for each run D (seconds since its start as a double, then bytes of the child's channel), O and E (stdout and
stderr), and X (how it ended).
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import socket
import struct
from typing import Any

MESSAGE = struct.Struct(">cI")
STAMP = struct.Struct(">d")
CHUNK = 1 << 18


class Control:
    """The connection to the parent."""

    def __init__(self, descriptor: int) -> None:
        self.socket = socket.socket(fileno=descriptor)
        self._buffer = bytearray()
        self._out: list[bytes] = []

    def receive(self) -> tuple[bytes, bytes]:
        """The next message; leaves the process when the parent has gone."""
        while (message := self.take()) is None:
            self.fill()
        return message

    def fill(self) -> None:
        """Read what is there (blocks when nothing is)."""
        chunk = self.socket.recv(CHUNK)
        if not chunk:
            end_everything()
        self._buffer += chunk

    def take(self) -> tuple[bytes, bytes] | None:
        """A message that was read already."""
        if len(self._buffer) < MESSAGE.size:
            return None
        kind, length = MESSAGE.unpack_from(self._buffer)
        end = MESSAGE.size + length
        if len(self._buffer) < end:
            return None
        body = bytes(self._buffer[MESSAGE.size : end])
        del self._buffer[:end]
        return kind, body

    def put(self, kind: bytes, body: bytes) -> None:
        """Line up a message; `flush` sends all of them at once."""
        self._out.append(MESSAGE.pack(kind, len(body)) + body)

    def say(self, kind: bytes, message: Any) -> None:
        """Send a message of JSON."""
        self.put(kind, json.dumps(message).encode("ascii"))
        self.flush()

    def flush(self) -> None:
        if self._out:
            try:
                self.socket.sendall(b"".join(self._out))
            except OSError:
                end_everything()
            self._out.clear()


def end_everything() -> None:
    """Leave, and take all children along: in a pid namespace they die with their first process."""
    kill_all()
    os._exit(0)


def kill_all() -> None:
    """Kill and reap every process that a run left; in a pid namespace that is one call."""
    for _ in range(1000):
        if os.getpid() == 1:
            with contextlib.suppress(ProcessLookupError):
                os.kill(-1, signal.SIGKILL)
        else:
            for pid in _children():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG if os.getpid() != 1 else 0)[0]:
                pass
            if not _children():
                return
        except ChildProcessError:
            return


def _children() -> list[int]:
    try:
        with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as file:
            return [int(pid) for pid in file.read().split()]
    except (OSError, ValueError):
        return []


def _nameless_file() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("stdin")
    import tempfile

    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def open_input(text: str) -> int:
    """A descriptor from which `text` can be read."""
    if not text:
        return os.open("/dev/null", os.O_RDONLY)
    data = text.encode("utf-8", "surrogatepass")
    handle = _nameless_file()
    left = memoryview(data)
    while left:
        left = left[os.write(handle, left) :]
    os.lseek(handle, 0, os.SEEK_SET)
    return handle


def move_up(descriptor: int) -> int:
    """The same thing on a descriptor that a child's 0 to 3 do not run over."""
    if descriptor > 9:
        return descriptor
    high = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 10)
    os.close(descriptor)
    return high
