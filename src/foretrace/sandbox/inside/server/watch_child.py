"""One run: fork a child, pass on what it says, kill it where it breaks a limit, reap it, and report its exit."""

from __future__ import annotations

import _socket
import os
import select
import signal
import time
from typing import Any

from foretrace.sandbox.inside import child
from foretrace.sandbox.inside.child import Confinement
from foretrace.sandbox.inside.server.parent_connection import CHUNK_SIZE, ParentConnection, kill_descendants
from foretrace.sandbox.inside.wire.messages import EXIT, FROM_CHILD, KILL, STDERR, STDOUT

_READ_ONCE_S = 0.002
"""A run that ends within this time is read once, at its end; a longer one is read as it goes."""
_MAX_DATA_MB = 64
"""How much a child may say over its channel, MiB."""
_POLL_S = 0.05
"""How long to wait for an event before the limits are looked at again."""


def read_cpu_s(pid: int) -> float:
    """Processor time that a process has used; 0 where the system does not say, or it has ended."""
    try:
        return time.clock_gettime(~pid << 3 | 2)  # the number of its clock, on Linux
    except OSError:
        return 0.0


class ChildStreams:
    """What connects a child with the fork server, how much it has said, and when it must end."""

    def __init__(self, parent: ParentConnection, limits: dict[str, Any], wall_s: float) -> None:
        self.parent = parent
        self.max_output, self.max_cpu_s = int(limits["output_mb"]) << 20, float(limits["cpu_s"])
        self.output_bytes = 0
        self.kill_reason: str | None = None
        # The plain kind: what the socket module builds around it is expensive after each fork.
        self.channel, self._their_channel = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_STREAM)
        self.out, their_out = os.pipe()
        self.err, their_err = os.pipe()
        self.theirs = (their_out, their_err, self._their_channel.fileno())
        """The child's stdout, stderr and channel."""
        for descriptor in (self.channel.fileno(), self.out, self.err):
            os.set_blocking(descriptor, False)
        self.started = time.monotonic()
        self.deadline = self.started + wall_s

    def close_theirs(self) -> None:
        """Close the child's ends here: it has them now."""
        self._their_channel.close()
        for descriptor in self.theirs[:2]:
            os.close(descriptor)

    def kill(self, why: str) -> None:
        """Have the child killed; the first reason is the one that counts."""
        self.kill_reason = self.kill_reason or why

    def check_limits(self, pid: int) -> None:
        """Have the child killed where its time is over."""
        if time.monotonic() >= self.deadline:
            self.kill("timeout")
        elif pid and read_cpu_s(pid) >= self.max_cpu_s:
            self.kill("cpu")

    def handle_messages(self) -> None:
        """Do what the parent asks for: forward bytes to the child, or have it killed."""
        while self.parent.forward_stream(self.channel.fileno()):
            message = self.parent.take()
            if message is None:
                return
            self.handle_message(message[0])

    def handle_message(self, kind: bytes) -> None:
        """Do what the parent asks for by a message without bytes for the child."""
        if kind == KILL:
            self.kill("ended")

    def read_printed(self) -> bool:
        """Queue what the child has printed; return whether there was anything."""
        before = self.output_bytes
        for descriptor, kind in ((self.out, STDOUT), (self.err, STDERR)):
            while self.output_bytes <= self.max_output and (chunk := self.parent.queue_from(descriptor, kind)):
                self.output_bytes += len(chunk)
        if self.output_bytes > self.max_output:
            self.kill("output")
        return self.output_bytes > before

    def close_printed(self) -> None:
        """Close stdout and stderr."""
        os.close(self.out)
        os.close(self.err)


class RunningChild(ChildStreams):
    """The child of one run."""

    def __init__(
        self, parent: ParentConnection, confinement: Confinement, request: dict[str, Any], stdin: int | None
    ) -> None:
        limits = request["limits"]
        super().__init__(parent, limits, float(limits["wall_s"]))
        self.max_data = _MAX_DATA_MB << 20
        self.max_threads = int(limits["processes"])
        self.data_bytes = 0
        self.channel_ended = False
        """Whether the child has said all that it will ever say."""
        self.may_have_ended = True
        """Whether it is worth asking for the child's exit status."""
        if stdin is None:
            stdin = os.open("/dev/null", os.O_RDONLY)  # anew: what is shared would carry marks from run to run
        self.pid = os.fork()
        if self.pid == 0:
            child.main(confinement, request["mode"], request["rlimits"], (stdin, *self.theirs))
        self.close_theirs()
        os.close(stdin)
        try:
            self.pidfd = os.pidfd_open(self.pid)
        except (OSError, AttributeError):
            self.pidfd = -1
        self.is_read = False
        """Whether it is read as it goes; what ends at once is read at its end."""
        self._streams = {self.channel.fileno(), self.out, self.err}
        self._poller = select.poll()
        for descriptor in (parent.incoming, self.pidfd):
            if descriptor >= 0:
                self._poller.register(descriptor, select.POLLIN)
        if request.get("interactive"):
            self.watch_output()
        self.usage: Any = None
        self.status = 0

    def kill(self, why: str) -> None:
        """Kill the child; what it says after this is not read."""
        if self.kill_reason is None and self.usage is None:
            self.kill_reason = why
            os.kill(self.pid, signal.SIGKILL)

    def count_threads(self) -> int:
        """How many threads the child has, where the system says."""
        try:
            return os.stat(f"/proc/{self.pid}/task").st_nlink - 2
        except OSError:
            return 0

    def reap(self, block: bool) -> bool:
        """Take the exit status of the child if it has ended (wait for that where `block`); return whether it has."""
        if self.usage is None:
            pid, status, usage = os.wait4(self.pid, 0 if block else os.WNOHANG)
            if pid:
                self.status, self.usage = status, usage
        return self.usage is not None

    def read_output(self, *, to_the_end: bool = False) -> bool:
        """Queue what the child has printed and sent, in this order; return whether there was anything.

        Args:
            to_the_end: for a child that has ended; else what comes while this reads may be left for the next time.
        """
        found = self.read_printed()
        while self.kill_reason is None:
            chunk = self.parent.queue_from(self.channel.fileno(), FROM_CHILD, time.monotonic() - self.started)
            if not chunk:
                self.channel_ended = chunk is not None
                break
            found = True
            self.data_bytes += len(chunk)
            if self.data_bytes > self.max_data:
                self.kill("reply")
            if len(chunk) < CHUNK_SIZE and not to_the_end:
                break  # the rule: one frame at a time, and then nothing
        return found

    def close(self) -> None:
        """Close the descriptors."""
        self.channel.close()
        self.close_printed()
        if self.pidfd >= 0:
            os.close(self.pidfd)

    def describe_exit(self) -> dict[str, Any]:
        """The `EXIT` message."""
        seconds, cpu_s = time.monotonic() - self.started, self.usage.ru_utime + self.usage.ru_stime
        return {"killed": self.kill_reason, "status": self.status, "seconds": seconds, "cpu_s": cpu_s}

    def wait_for_event(self) -> None:
        """Sleep until the child has ended, it or the parent has said something, or a limit is to be looked at."""
        parent, poller = self.parent, self._poller
        blocked, parent_fd, channel = parent.stream_blocked, parent.incoming, self.channel.fileno()
        poller.modify(parent_fd, 0 if blocked else select.POLLIN)
        if self.is_read and channel in self._streams:
            reads = 0 if self.channel_ended else select.POLLIN  # one that is half closed is readable for ever
            poller.modify(channel, reads | (select.POLLOUT if blocked else 0))
        left = min(self.deadline - time.monotonic(), _POLL_S if self.is_read else _READ_ONCE_S)
        happened = poller.poll(max(0, left if self.pidfd >= 0 else min(left, 0.005)) * 1000 + (not self.is_read))
        self.may_have_ended = self.pidfd < 0
        for descriptor, what in happened:
            if descriptor == parent_fd:
                parent.fill()
            elif descriptor == self.pidfd:
                self.may_have_ended = True
            elif not what & (select.POLLIN | select.POLLOUT) or (what & select.POLLHUP and self.channel_ended):
                poller.unregister(descriptor)  # its other end is closed, which would wake us for ever
                self._streams.discard(descriptor)
        if not self.is_read and time.monotonic() - self.started >= _READ_ONCE_S:
            self.watch_output()

    def watch_output(self) -> None:
        """From now on read what the child says as it comes."""
        self.is_read = True
        for descriptor in self._streams:
            self._poller.register(descriptor, select.POLLIN)


def serve_run(parent: ParentConnection, confinement: Confinement, request: dict[str, Any], stdin: int | None) -> None:
    """Serve one run, from the fork of its child until nothing of it is left.

    Args:
        stdin: what the run reads, None for nothing; this closes it.
    """
    running = RunningChild(parent, confinement, request, stdin)
    watched = confinement.level in (1, 2)  # where the system has no limit that counts only this child
    while not (running.may_have_ended and running.reap(block=False)):
        running.handle_messages()
        if running.kill_reason is None:
            running.wait_for_event()
        if watched and running.is_read and running.count_threads() > running.max_threads:
            running.kill("threads")
        running.check_limits(running.pid)
        if running.is_read and running.read_output():
            parent.flush()
        if running.kill_reason:
            running.may_have_ended = running.reap(block=True)
    if confinement.level in (0, 3):  # at the others a child cannot make processes
        kill_descendants()
    running.read_output(to_the_end=True)
    parent.send_json(EXIT, running.describe_exit())
    running.close()
