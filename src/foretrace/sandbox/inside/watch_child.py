"""Watch one child from start to end: forward its output, and kill it if it exceeds a limit.

A child is a run, or a block of a session (see `watch_session`).
"""

from __future__ import annotations

import _socket
import contextlib
import os
import select
import signal
import time
from collections.abc import Callable
from typing import Any

from foretrace.sandbox.inside import child
from foretrace.sandbox.inside.child import Confinement
from foretrace.sandbox.inside.parent_connection import CHUNK_SIZE, ParentConnection, kill_descendants
from foretrace.sandbox.inside.wire import CANCEL, EXIT, FROM_CHILD, KEEP, KILL, STDERR, STDOUT

_MAX_DATA = 64 << 20
"""Most bytes that a child may send over its channel."""
_POLL_S = 0.05
"""Longest time between two checks of the limits."""
_KILLED_BY = {KILL: "ended", CANCEL: "cancelled"}


class WatchedChild:
    """A child's streams, how much it has sent, and why it was killed."""

    def __init__(
        self, parent: ParentConnection, limits: dict[str, Any], wall_s: float, keep_wait_s: float = 0.0
    ) -> None:
        self._parent, self._keep_wait_s = parent, keep_wait_s
        self._max_output, self._max_cpu_s = int(limits["output_mb"]) << 20, float(limits["cpu_s"])
        self._output_bytes = self._data_bytes = 0
        self.kill_reason: str | None = None
        self.is_kept = False
        """Whether the parent has confirmed that its block completed, so that it stays as a state of its session."""
        self.pid, self._pidfd = 0, -1
        # The plain socket class: the wrapper of the socket module is expensive after each fork.
        self.channel, self._their_channel = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_STREAM)
        self._out, their_out = os.pipe()
        self._err, their_err = os.pipe()
        self.theirs = (their_out, their_err, self._their_channel.fileno())
        """The child's stdout, stderr and channel."""
        self._streams = {self._out: STDOUT, self._err: STDERR, self.channel.fileno(): FROM_CHILD}
        """The streams that have not ended, with the kind of message for what is read from each."""
        self._ready: set[int] = set()
        """Descriptors that were readable, or whose other end was closed, at the last look."""
        for descriptor in self._streams:
            os.set_blocking(descriptor, False)
        self._poller = select.poll()
        self._poller.register(parent.incoming, select.POLLIN)
        self._has_ended = False
        self.started = time.monotonic()
        self._deadline = self.started + wall_s

    def begin(self, pid: int) -> None:
        """Start watching: the child has started and has its ends of the streams."""
        self.pid = pid
        self.close_theirs()
        with contextlib.suppress(OSError, AttributeError):
            self._pidfd = os.pidfd_open(pid)
            self._poller.register(self._pidfd, select.POLLIN)
        for descriptor in self._streams:
            self._poller.register(descriptor, select.POLLIN)

    def close_theirs(self) -> None:
        self._their_channel.close()
        for descriptor in self.theirs[:2]:
            os.close(descriptor)

    def watch(
        self,
        has_ended: Callable[[], bool],
        *,
        max_threads: int | None = None,
        others: dict[int, Callable[[], None]] | None = None,
    ) -> None:
        """Return when the child has ended, has been killed, or is kept.

        Args:
            has_ended: tells whether the child has ended; called when it may have.
            max_threads: most threads that it may have; None if the system limits them.
            others: further descriptors to wait for, with what to call when they are readable.
        """
        others = others or {}
        for descriptor in others:
            self._poller.register(descriptor, select.POLLIN)
        may_have_ended = False
        while not (may_have_ended and has_ended()):
            while self._parent.forward_stream(self.channel.fileno()) and (message := self._parent.take()):
                if message[0] in _KILLED_BY:
                    self.kill(_KILLED_BY[message[0]])
                self.is_kept = self.is_kept or (message[0] == KEEP and self.kill_reason is None)
            if self.kill_reason is None and not self.is_kept:
                may_have_ended = self._wait_for_event(others)
            if max_threads is not None and self._count_threads() > max_threads:
                self.kill("threads")
            # A block that has said that it came to its end waits for the parent, which may be busy, to keep it.
            if time.monotonic() >= self._deadline + (self._keep_wait_s if self._data_bytes else 0.0):
                self.kill("timeout")
            elif self.read_cpu_s() >= self._max_cpu_s:
                self.kill("cpu")
            if self._read_output():
                self._parent.flush()
            if self.kill_reason or self.is_kept:
                break
        else:
            self._has_ended = True

    def finish(self) -> None:
        """Queue the rest of the child's output, and close its streams."""
        self._read_output(to_the_end=True)
        for descriptor in (self._out, self._err, self._pidfd):
            if descriptor >= 0:
                os.close(descriptor)

    def kill(self, why: str) -> None:
        """Kill the child; what it sends after this is not read."""
        if not (self.kill_reason or self.is_kept or self._has_ended):
            self.kill_reason = why
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def has_gone(self) -> bool:
        """Whether a child that another process reaps has ended, when it may have. Without a descriptor of the process
        (a Python that was built without `pidfd_open`) its closed channel says so."""
        return self._pidfd >= 0 or self.channel.fileno() not in self._streams

    def read_cpu_s(self) -> float:
        """CPU seconds that the child has used; 0 if the system does not say, or the child has been reaped."""
        try:
            return time.clock_gettime(~self.pid << 3 | 2)  # the number of its clock, on Linux
        except OSError:
            return 0.0

    def _count_threads(self) -> int:
        try:
            return os.stat(f"/proc/{self.pid}/task").st_nlink - 2
        except OSError:
            return 0

    def _read_output(self, *, to_the_end: bool = False) -> bool:
        """Queue what the child has printed, then what it has sent; return whether there was anything.

        Args:
            to_the_end: read everything, for a child that has ended; otherwise some may be left for the next call.
        """
        before = self._output_bytes + self._data_bytes
        for descriptor, kind in [*self._streams.items()]:
            is_data = kind == FROM_CHILD
            while to_the_end or descriptor in self._ready:
                if (self.kill_reason or self.is_kept) if is_data else self._output_bytes > self._max_output:
                    break
                stamp = time.monotonic() - self.started if is_data else None
                chunk = self._parent.queue_from(descriptor, kind, stamp)
                if not chunk:
                    if chunk is not None:  # look at it no more: its end would wake us every time
                        del self._streams[descriptor]
                        with contextlib.suppress(KeyError):  # not watched: the block could not be forked
                            self._poller.unregister(descriptor)
                    break
                self._output_bytes += 0 if is_data else len(chunk)
                self._data_bytes += len(chunk) if is_data else 0
                if self._output_bytes > self._max_output:
                    self.kill("output")
                elif self._data_bytes > _MAX_DATA:
                    self.kill("reply")
                if len(chunk) < CHUNK_SIZE and not to_the_end:
                    break  # there is rarely more
        return self._output_bytes + self._data_bytes > before

    def _wait_for_event(self, others: dict[int, Callable[[], None]]) -> bool:
        """Wait for an event or the next check of the limits; return whether the child may have ended."""
        parent, poller = self._parent, self._poller
        blocked = parent.stream_blocked
        poller.modify(parent.incoming, 0 if blocked else select.POLLIN)
        if self.channel.fileno() in self._streams:
            poller.modify(self.channel.fileno(), select.POLLIN | (select.POLLOUT if blocked else 0))
        left = min(self._deadline - time.monotonic(), _POLL_S if self._pidfd >= 0 else 0.005)
        happened = poller.poll(max(0, left) * 1000)
        self._ready = {descriptor for descriptor, what in happened if what != select.POLLOUT}
        if parent.incoming in self._ready:
            parent.fill()
        for descriptor in self._ready & others.keys():
            others[descriptor]()
        return self._pidfd < 0 or self._pidfd in self._ready


def serve_run(parent: ParentConnection, confinement: Confinement, request: dict[str, Any], stdin: int | None) -> None:
    """Serve one run, from forking its child until all its processes are gone. `stdin` is closed; None is an empty
    input."""
    limits = request["limits"]
    watched = WatchedChild(parent, limits, float(limits["wall_s"]))
    if stdin is None:
        stdin = os.open("/dev/null", os.O_RDONLY)  # opened anew, so that runs do not share its state
    pid = os.fork()
    if pid == 0:
        child.main(confinement, request["mode"], request["rlimits"], (stdin, *watched.theirs))
    os.close(stdin)
    watched.begin(pid)
    ended: list[Any] = [0]

    def has_ended() -> bool:
        ended[:] = os.wait4(pid, os.WNOHANG)
        return ended[0] != 0

    # At levels 1 and 2 the system has no limit on the threads of this child alone.
    watched.watch(has_ended, max_threads=int(limits["processes"]) if confinement.level in (1, 2) else None)
    _, status, usage = ended if ended[0] else os.wait4(pid, 0)
    if confinement.level in (0, 3):  # at other levels a child cannot start processes
        kill_descendants()
    watched.finish()
    watched.channel.close()
    report = {"killed": watched.kill_reason, "status": status, "seconds": time.monotonic() - watched.started}
    parent.send_json(EXIT, report | {"cpu_s": usage.ru_utime + usage.ru_stime})
