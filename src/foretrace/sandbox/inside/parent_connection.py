"""The fork server's connection to its parent: messages (see `wire`) both ways, and streams of bytes to children.

Everything that is sent to or by a run passes through memory that no child inherits. A child of this process must not
find anything of an earlier run, be it code, arguments, answers or tests.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import mmap
import os
import signal
from typing import Any, NoReturn

from foretrace.sandbox.inside.wire import MESSAGE_HEADER, STDIN, TIMESTAMP, TO_CHILD

CHUNK_SIZE = 1 << 16
"""Most bytes that are read from a descriptor at a time."""
_BUFFER_SIZE = 1 << 20
_STREAM_KINDS = (TO_CHILD, STDIN)
"""Messages whose bytes are forwarded as they arrive, and never held as a whole."""
_WIPE_ON_FORK = 18  # MADV_WIPEONFORK; Linux 4.14


def make_wiped_memory() -> tuple[memoryview, bool]:
    """Memory of `_BUFFER_SIZE` bytes, and whether the kernel fills it with zeros in every child."""
    if not hasattr(mmap, "MADV_DONTFORK"):  # macOS: no such advice
        return memoryview(bytearray(_BUFFER_SIZE)), False
    memory = mmap.mmap(-1, _BUFFER_SIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    try:
        memory.madvise(_WIPE_ON_FORK)
    except OSError:
        return memoryview(memory), False
    return memoryview(memory), True


class ParentConnection:
    """The connection to the parent: a socket, or the two pipes of a container."""

    def __init__(self, incoming: int, outgoing: int) -> None:
        self.incoming, self._outgoing = incoming, outgoing
        self.scratch: str | None = None
        """A folder of the host that is removed when this process ends."""
        self.stream_left = 0
        """Bytes of a stream message that are not forwarded yet (see `forward_stream`)."""
        self._in, self.wiped = make_wiped_memory()
        self._start = self._end = 0
        self._out, _ = make_wiped_memory()
        self._queued = 0

    # From the parent.

    def receive(self) -> tuple[bytes, bytes]:
        """Kind and body of the next message; exits the process if the parent has gone."""
        while (message := self.take()) is None:
            self.fill()
        return message

    def fill(self) -> None:
        """Read what is available; blocks if nothing is."""
        if self._start == self._end:
            self._start = self._end = 0
        elif self._end == _BUFFER_SIZE:
            length = self._end - self._start
            self._in[:length] = self._in[self._start : self._end]
            self._start, self._end = 0, length
        try:
            count = os.readv(self.incoming, [self._in[self._end :]])
        except OSError:  # the parent died with unread data
            count = 0
        if not count:
            self.exit()
        self._end += count

    def take(self) -> tuple[bytes, bytes] | None:
        """The next complete message, or None; for a stream message, only its kind (see `stream_left`)."""
        if self.stream_left or self._end - self._start < MESSAGE_HEADER.size:
            return None
        kind, length = MESSAGE_HEADER.unpack_from(self._in, self._start)
        body = self._start + MESSAGE_HEADER.size
        if kind in _STREAM_KINDS:
            self._start, self.stream_left = body, length
            return kind, b""
        if self._end - body < length:
            return None
        self._start = body + length
        return kind, bytes(self._in[body : self._start])

    def forward_stream(self, descriptor: int | None) -> bool:
        """Forward what has arrived of a stream message (discard it if there is no `descriptor`, or it is closed at the
        other end); true once all of it has been written."""
        while self.stream_left and self._start < self._end:
            part = self._in[self._start : min(self._end, self._start + self.stream_left)]
            try:
                count = len(part) if descriptor is None else os.write(descriptor, part)
            except BlockingIOError:
                return False
            except OSError:
                count = len(part)
            self._start += count
            self.stream_left -= count
        return not self.stream_left

    @property
    def stream_blocked(self) -> bool:
        """Whether bytes are waiting for a child that does not read them."""
        return bool(self.stream_left) and self._start < self._end

    # To the parent.

    def send_json(self, kind: bytes, message: Any) -> None:
        """Send a JSON message, after everything in the queue."""
        body = json.dumps(message).encode("ascii")
        if _BUFFER_SIZE - self._queued < MESSAGE_HEADER.size + len(body):
            self.flush()
        MESSAGE_HEADER.pack_into(self._out, self._queued, kind, len(body))
        start = self._queued + MESSAGE_HEADER.size
        self._queued = start + len(body)
        self._out[start : self._queued] = body
        self.flush()

    def queue_from(self, descriptor: int, kind: bytes, stamp: float | None = None) -> memoryview | None:
        """Queue a message with what can be read from a descriptor, and return that: empty at the end of the stream,
        None if there is nothing to read now."""
        head = MESSAGE_HEADER.size + (TIMESTAMP.size if stamp is not None else 0)
        if _BUFFER_SIZE - self._queued < head + CHUNK_SIZE:
            self.flush()
        start = self._queued + head
        try:
            count = os.readv(descriptor, [self._out[start : start + CHUNK_SIZE]])
        except BlockingIOError:
            return None
        except OSError:
            count = 0
        if count:
            MESSAGE_HEADER.pack_into(self._out, self._queued, kind, count + head - MESSAGE_HEADER.size)
            if stamp is not None:
                TIMESTAMP.pack_into(self._out, self._queued + MESSAGE_HEADER.size, stamp)
            self._queued = start + count
        return self._out[start : start + count]

    def flush(self) -> None:
        left = self._out[: self._queued]
        while left:
            try:
                left = left[os.write(self._outgoing, left) :]
            except OSError:
                self.exit()
        self._queued = 0

    def exit(self) -> NoReturn:
        """Kill all processes that this one started, remove the scratch folder, and exit."""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second SIGTERM must not restart this halfway
        kill_descendants()
        if self.scratch is not None:
            remove_contents(self.scratch)
            with contextlib.suppress(OSError):
                os.rmdir(self.scratch)
        os._exit(0)


def read_input(parent: ParentConnection) -> int:
    """Store the input that the parent is sending, and return a descriptor to read it from."""
    if hasattr(os, "memfd_create"):
        handle = os.memfd_create("stdin")
    else:
        import tempfile

        with tempfile.TemporaryFile() as file:
            handle = os.dup(file.fileno())
    while not parent.forward_stream(handle):
        parent.fill()
    os.lseek(handle, 0, os.SEEK_SET)
    return handle


def move_descriptor_up(descriptor: int) -> int:
    """Move a descriptor to a number above 9, so that a child's descriptors 0 to 3 do not overwrite it."""
    high = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 10)
    os.close(descriptor)
    return high


def remove_contents(folder: str) -> None:
    """Remove a folder's contents as far as possible; `shutil` would make each fork map six more libraries."""
    for above, folders, files in os.walk(folder, topdown=False):
        for path in (os.path.join(above, name) for name in (*files, *folders)):
            with contextlib.suppress(OSError):
                (os.rmdir if os.path.isdir(path) and not os.path.islink(path) else os.unlink)(path)


def kill_descendants() -> None:
    """Kill and reap every process that a run left; in a pid namespace this is one call."""
    is_first = os.getpid() == 1
    for _ in range(1000):
        for pid in [-1] if is_first else _find_children():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        try:
            while os.waitpid(-1, 0 if is_first else os.WNOHANG)[0]:
                pass
            if not _find_children():
                return
        except ChildProcessError:
            return


def _find_children() -> list[int]:
    try:
        with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as file:
            return [int(pid) for pid in file.read().split()]
    except (OSError, ValueError):
        return []
