"""The fork server's connection to its parent, and what it does about processes and descriptors.

Binary messages: a kind (one byte), a length (4 bytes, big-endian), and that many bytes. From the parent: C
(configuration), I (input: what the next run reads from stdin), R (run), B (a session's block), S (bytes for the child's
channel), K (end the run). To the parent: A (ready) or F (failed), and for each run D (seconds since its start as a
double, then bytes of the child's channel), O and E (stdout and stderr), and X (how it ended).

What a run is told and what it says passes through memory that no child inherits: a child of this process must find
nothing of an earlier run, be it code, arguments, answers, or a test.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import mmap
import os
import shutil
import signal
import socket
import struct
from typing import Any, NoReturn

MESSAGE = struct.Struct(">cI")
STAMP = struct.Struct(">d")
CHUNK = 1 << 16
_VAULT = 1 << 20
_STREAMED = (b"S", b"I")
_WIPE_ON_FORK = 18  # MADV_WIPEONFORK; Linux 4.14


def vault() -> tuple[memoryview, bool]:
    """Memory, and whether it is all zeros in every child."""
    if not hasattr(mmap, "MAP_ANONYMOUS") or not hasattr(mmap, "MADV_DONTFORK"):  # macOS: no such advice
        return memoryview(bytearray(_VAULT)), False
    memory = mmap.mmap(-1, _VAULT, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    try:
        memory.madvise(_WIPE_ON_FORK)
    except OSError:
        return memoryview(memory), False
    return memoryview(memory), True


class Control:
    """The connection to the parent."""

    def __init__(self, descriptor: int) -> None:
        self.socket = socket.socket(fileno=descriptor)
        self.scratch: str | None = None
        """A folder of the host that goes when this process ends."""
        self.left = 0
        """Bytes of a streamed message (S, I) that have not been passed on yet; `pump` passes them on."""
        self._in, self.wiped = vault()
        self._start = self._end = 0
        self._out, _ = vault()
        self._put = 0

    # What comes from the parent.

    def receive(self) -> tuple[bytes, bytes]:
        """The next message; leaves the process when the parent has gone."""
        while (message := self.take()) is None:
            self.fill()
        return message

    def fill(self) -> None:
        """Read what is there (blocks when nothing is)."""
        if self._start == self._end:
            self._start = self._end = 0
        elif self._end == _VAULT:
            kept = self._end - self._start
            self._in[:kept] = self._in[self._start : self._end]
            self._start, self._end = 0, kept
        try:
            count = self.socket.recv_into(self._in[self._end :])
        except OSError:  # the parent died with something unread
            count = 0
        if not count:
            self.leave()
        self._end += count

    def take(self) -> tuple[bytes, bytes] | None:
        """The next message that is there as a whole; of a streamed one only its kind, and `left` is set."""
        if self.left or self._end - self._start < MESSAGE.size:
            return None
        kind, length = MESSAGE.unpack_from(self._in, self._start)
        body = self._start + MESSAGE.size
        if kind in _STREAMED:
            self._start, self.left = body, length
            return kind, b""
        if self._end - body < length:
            return None
        self._start = body + length
        return kind, bytes(self._in[body : self._start])

    def pump(self, descriptor: int | None) -> bool:
        """Pass on what has come of a streamed message; true when it has been passed on as a whole.

        Args:
            descriptor: where to; null throws it away, as does a descriptor that nobody reads any more.
        """
        while self.left and self._start < self._end:
            part = self._in[self._start : min(self._end, self._start + self.left)]
            try:
                count = len(part) if descriptor is None else os.write(descriptor, part)
            except BlockingIOError:
                return False
            except OSError:
                count = len(part)
            self._start += count
            self.left -= count
        return not self.left

    @property
    def stuck(self) -> bool:
        """Whether bytes wait here for a child that does not take them."""
        return bool(self.left) and self._start < self._end

    # What goes to the parent.

    def say(self, kind: bytes, message: Any) -> None:
        """Send a message of JSON, after all that was lined up."""
        self.put(kind, json.dumps(message).encode("ascii"))

    def put(self, kind: bytes, body: bytes) -> None:
        """Send a message, after all that was lined up."""
        if _VAULT - self._put < MESSAGE.size + len(body):
            self.flush()
        MESSAGE.pack_into(self._out, self._put, kind, len(body))
        start = self._put + MESSAGE.size
        self._out[start : start + len(body)] = body
        self._put = start + len(body)
        self.flush()

    def pass_on(self, descriptor: int, kind: bytes, stamp: float | None = None) -> memoryview | None:
        """Line up a message of what can be read from a descriptor.

        Returns:
            What was read: empty at the end of the stream, None when there is nothing now.
        """
        head = MESSAGE.size + (STAMP.size if stamp is not None else 0)
        if _VAULT - self._put < head + CHUNK:
            self.flush()
        start = self._put + head
        try:
            count = os.readv(descriptor, [self._out[start : start + CHUNK]])
        except BlockingIOError:
            return None
        except OSError:
            count = 0
        if count:
            MESSAGE.pack_into(self._out, self._put, kind, count + head - MESSAGE.size)
            if stamp is not None:
                STAMP.pack_into(self._out, self._put + MESSAGE.size, stamp)
            self._put = start + count
        return self._out[start : start + count]

    def flush(self) -> None:
        """Send all that was lined up."""
        if self._put:
            try:
                self.socket.sendall(self._out[: self._put])
            except OSError:
                self.leave()
            self._put = 0

    def leave(self) -> NoReturn:
        """End this process, with all that was started here and what lies in the scratch folder."""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # told so more than once, it must not begin anew in the middle
        kill_all()
        if self.scratch is not None:
            shutil.rmtree(self.scratch, ignore_errors=True)
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


def read_input(control: Control) -> int:
    """A descriptor from which the input that the parent sends now can be read."""
    if hasattr(os, "memfd_create"):
        handle = os.memfd_create("stdin")
    else:
        import tempfile

        with tempfile.TemporaryFile() as file:
            handle = os.dup(file.fileno())
    while not control.pump(handle):
        control.fill()
    os.lseek(handle, 0, os.SEEK_SET)
    return handle


def move_up(descriptor: int) -> int:
    """The same thing on a descriptor that a child's 0 to 3 do not run over."""
    if descriptor > 9:
        return descriptor
    high = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 10)
    os.close(descriptor)
    return high
