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
_POLL_S = 0.05
"""How long to wait for an event before the limits are looked at again."""


class RunningChild:
    """One child: its descriptors, how much it has said, and when it must end."""

    def __init__(
        self,
        parent: ParentConnection,
        confinement: Confinement,
        request: dict[str, Any],
        stdin: int | None,
        link: int | None,
    ) -> None:
        limits = request["limits"]
        self.max_output = int(limits["output_mb"]) << 20
        self.max_data = int(request.get("data_mb", 64)) << 20
        self.max_threads = int(limits["processes"])
        self.output_bytes = self.data_bytes = 0
        self.kill_reason: str | None = None
        self.channel_ended = False
        """Whether the child has said all that it will ever say."""
        self.may_have_ended = True
        """Whether it is worth asking for the child's exit status."""
        self._parent = parent
        # The plain kind: what the socket module builds around it is dear after each fork.
        channel, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_STREAM)
        out, out_theirs = os.pipe()
        err, err_theirs = os.pipe()
        if stdin is None:
            stdin = os.open("/dev/null", os.O_RDONLY)  # anew: what is shared would carry marks from run to run
        self.started = time.monotonic()
        self.deadline = self.started + float(limits["wall_s"])
        self.pid = os.fork()
        if self.pid == 0:
            descriptors = (stdin, out_theirs, err_theirs, theirs.fileno())
            child.main(
                confinement, request["mode"], request["rlimits"], descriptors if link is None else (*descriptors, link)
            )
        theirs.close()
        for descriptor in (stdin, out_theirs, err_theirs, link):
            if descriptor is not None:
                os.close(descriptor)
        self.channel, self.out, self.err = channel, out, err
        for descriptor in (channel.fileno(), out, err):
            os.set_blocking(descriptor, False)
        try:
            self.pidfd = os.pidfd_open(self.pid)
        except (OSError, AttributeError):
            self.pidfd = -1
        self._pollers: dict[Any, Any] = {}
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

    def handle_messages(self) -> None:
        """Do what the parent asks for: forward bytes to the child, or kill it."""
        parent = self._parent
        while parent.forward_stream(self.channel.fileno()):
            message = parent.take()
            if message is None:
                return
            if message[0] == KILL:
                self.kill("ended")

    def read_output(self, *, to_the_end: bool = False) -> bool:
        """Queue what the child has printed and sent, in this order; return whether there was anything.

        Args:
            to_the_end: for a child that has ended; else what comes while this reads may be left for the next time.
        """
        found = self._read_stream(self.out, STDOUT) | self._read_stream(self.err, STDERR)
        while self.kill_reason is None:
            chunk = self._parent.queue_from(self.channel.fileno(), FROM_CHILD, time.monotonic() - self.started)
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

    def _read_stream(self, descriptor: int, kind: bytes) -> bool:
        found = False
        while self.output_bytes <= self.max_output and (chunk := self._parent.queue_from(descriptor, kind)):
            found = True
            self.output_bytes += len(chunk)
            if self.output_bytes > self.max_output:
                self.kill("output")
        return found

    def close(self) -> None:
        """Close the descriptors."""
        self.channel.close()
        for descriptor in (self.out, self.err, self.pidfd):
            if descriptor >= 0:
                os.close(descriptor)

    def describe_exit(self) -> bytes:
        """The body of the `EXIT` message. It is JSON put together by hand, since forks make detours dear."""
        killed = f'"{self.kill_reason}"' if self.kill_reason else "null"
        seconds, cpu_s = time.monotonic() - self.started, self.usage.ru_utime + self.usage.ru_stime
        text = f'{{"killed":{killed},"status":{self.status},"seconds":{seconds:.6f},"cpu_s":{cpu_s:.6f}}}'
        return text.encode("ascii")

    def _make_poller(self, eager: bool) -> Any:
        """What waits for the events that may come now; made once for each kind of wait, since a call is two of them."""
        parent = self._parent
        key = (eager, parent.stream_blocked, self.channel_ended)
        poller = self._pollers.get(key)
        if poller is not None:
            return poller
        poller = self._pollers[key] = select.poll()
        if not parent.stream_blocked:
            poller.register(parent.socket, select.POLLIN)
        if self.pidfd >= 0:
            poller.register(self.pidfd, select.POLLIN)
        if eager:
            for descriptor in (self.out, self.err):
                poller.register(descriptor, select.POLLIN)
        if eager or parent.stream_blocked:
            # An end that the child has half closed would be readable for ever.
            events = select.POLLIN if eager and not self.channel_ended else 0
            poller.register(self.channel.fileno(), events | (select.POLLOUT if parent.stream_blocked else 0))
        return poller

    def wait_for_event(self, eager: bool) -> bool:
        """Sleep until the child has ended or (when `eager`) said something, or the parent has sent something.

        Returns:
            Whether there may be more than what the parent has sent.
        """
        parent, poller = self._parent, self._make_poller(eager)
        left = min(self.deadline - time.monotonic(), _POLL_S if eager else _READ_ONCE_S)
        if self.pidfd < 0:
            left = min(left, 0.005)
        happened = poller.poll(max(0, left) * 1000 + (0 if eager else 0.5))
        self.may_have_ended = self.pidfd < 0 or any(descriptor == self.pidfd for descriptor, _ in happened)
        parent_fd = parent.socket.fileno()
        if any(descriptor == parent_fd for descriptor, _ in happened):
            parent.fill()
            if len(happened) == 1 and self.pidfd >= 0:
                return False
        # A closed end stays ready for ever: with nothing else to wait for, wait for the child a little.
        closed = [d for d, what in happened if what & (select.POLLHUP | select.POLLERR) and d != self.pidfd]
        if closed and len(closed) == len(happened) and self.pidfd >= 0:
            quiet = select.poll()
            quiet.register(self.pidfd, select.POLLIN)
            quiet.register(parent.socket, select.POLLIN)
            quiet.poll(5)
        return True


def serve_run(
    parent: ParentConnection,
    confinement: Confinement,
    request: dict[str, Any],
    stdin: int | None,
    link: int | None = None,
) -> None:
    """Serve one run, from the fork of its child until nothing of it is left.

    Args:
        stdin: what the run reads, None for nothing; this closes it.
        link: a descriptor that the child gets as `direct_channel.LINK_FD`; this closes it here.
    """
    running = RunningChild(parent, confinement, request, stdin, link)
    eager = bool(request.get("interactive"))
    watched = confinement.level in (1, 2)  # where the system has no limit that counts this child alone
    may_have_more = True
    while not (running.may_have_ended and running.reap(block=False)):
        running.handle_messages()
        if running.kill_reason is None:
            may_have_more = running.wait_for_event(eager)
        if watched and eager and running.count_threads() > running.max_threads:
            running.kill("threads")
        if time.monotonic() >= running.deadline:
            running.kill("timeout")
        eager = eager or time.monotonic() - running.started >= _READ_ONCE_S
        if eager and may_have_more and running.read_output():
            parent.flush()
        if running.kill_reason:
            running.may_have_ended = running.reap(block=True)
    if confinement.level in (0, 3):  # at the others a child cannot make processes
        kill_descendants()
    running.read_output(to_the_end=True)
    parent.send(EXIT, running.describe_exit())
    running.close()
