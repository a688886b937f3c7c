"""One run of the fork server: a fresh child from its fork to its end, with all that it says passed on."""

from __future__ import annotations

import _socket
import os
import select
import signal
import time
from typing import Any

from foretrace.sandbox.inside import child
from foretrace.sandbox.inside.child import Guards
from foretrace.sandbox.inside.control import Control, kill_all

_LAZY_S = 0.002
"""A run that ends within this time is read once, at its end; a longer one is read as it goes."""
_WATCH_S = 0.05


class Run:
    """One child: its descriptors, what it has said, and when it must end."""

    def __init__(self, control: Control, guards: Guards, asked: dict[str, Any], stdin: int | None) -> None:
        limits = asked["limits"]
        self.most_output = int(limits["output_mb"]) << 20
        self.most_data = int(asked.get("data_mb", 64)) << 20
        self.most_threads = int(limits["processes"])
        self.printed = self.said = 0
        self.killed: str | None = None
        self._control = control
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
            child.start(guards, asked["mode"], asked["most"], (stdin, out_theirs, err_theirs, theirs.fileno()))
        theirs.close()
        for descriptor in (stdin, out_theirs, err_theirs):
            os.close(descriptor)
        self.channel, self.out, self.err = channel, out, err
        for descriptor in (channel.fileno(), out, err):
            os.set_blocking(descriptor, False)
        try:
            self.handle = os.pidfd_open(self.pid)
        except (OSError, AttributeError):
            self.handle = -1
        self.usage: Any = None
        self.status = 0

    def kill(self, why: str) -> None:
        """End the child; what it says after this is not read."""
        if self.killed is None and self.usage is None:
            self.killed = why
            os.kill(self.pid, signal.SIGKILL)

    def threads(self) -> int:
        """How many threads the child has, where the system says."""
        try:
            return os.stat(f"/proc/{self.pid}/task").st_nlink - 2
        except OSError:
            return 0

    def reap(self, block: bool) -> bool:
        """Whether the child has ended."""
        if self.usage is None:
            pid, status, usage = os.wait4(self.pid, 0 if block else os.WNOHANG)
            if pid:
                self.status, self.usage = status, usage
        return self.usage is not None

    def obey(self) -> None:
        """Do what the parent has sent: bytes for the child, or its end."""
        control = self._control
        while control.pump(self.channel.fileno()):
            message = control.take()
            if message is None:
                return
            if message[0] == b"K":
                self.kill("ended")

    def read(self) -> bool:
        """Line up what the child has printed and said, in this order; return whether there was anything."""
        found = self._print(self.out, b"O") | self._print(self.err, b"E")
        while self.killed is None:
            chunk = self._control.pass_on(self.channel.fileno(), b"D", time.monotonic() - self.started)
            if not chunk:
                break
            found = True
            self.said += len(chunk)
            if self.said > self.most_data:
                self.kill("reply")
        return found

    def _print(self, descriptor: int, kind: bytes) -> bool:
        found = False
        while self.printed <= self.most_output and (chunk := self._control.pass_on(descriptor, kind)):
            found = True
            self.printed += len(chunk)
            if self.printed > self.most_output:
                self.kill("output")
        return found

    def close(self) -> None:
        """Close what leads to the child."""
        self.channel.close()
        for descriptor in (self.out, self.err, self.handle):
            if descriptor >= 0:
                os.close(descriptor)

    def ending(self) -> bytes:
        """How it ended, as this process saw it; JSON, put together by hand, since forks make detours dear."""
        killed = f'"{self.killed}"' if self.killed else "null"
        seconds, cpu_s = time.monotonic() - self.started, self.usage.ru_utime + self.usage.ru_stime
        text = f'{{"killed":{killed},"status":{self.status},"seconds":{seconds:.6f},"cpu_s":{cpu_s:.6f}}}'
        return text.encode("ascii")

    def wait(self, eager: bool) -> None:
        """Sleep until something happens: the child ended or (when `eager`) said something, or the parent did."""
        control = self._control
        poller = select.poll()
        if not control.stuck:
            poller.register(control.socket, select.POLLIN)
        if self.handle >= 0:
            poller.register(self.handle, select.POLLIN)
        if eager:
            for descriptor in (self.out, self.err):
                poller.register(descriptor, select.POLLIN)
        if eager or control.stuck:
            events = (select.POLLIN if eager else 0) | (select.POLLOUT if control.stuck else 0)
            poller.register(self.channel.fileno(), events)
        left = min(self.deadline - time.monotonic(), _WATCH_S if eager else _LAZY_S)
        if self.handle < 0:
            left = min(left, 0.005)
        happened = poller.poll(max(0, left) * 1000 + (0 if eager else 0.5))
        if any(descriptor == control.socket.fileno() for descriptor, _ in happened):
            control.fill()
        # A closed end stays ready for ever: with nothing else to wait for, wait for the child a little.
        closed = [d for d, what in happened if what & (select.POLLHUP | select.POLLERR) and d != self.handle]
        if closed and len(closed) == len(happened) and self.handle >= 0:
            quiet = select.poll()
            quiet.register(self.handle, select.POLLIN)
            quiet.register(control.socket, select.POLLIN)
            quiet.poll(5)


def serve(control: Control, guards: Guards, asked: dict[str, Any], stdin: int | None) -> None:
    """Run one request from fork to clean-up."""
    run = Run(control, guards, asked, stdin)
    eager = bool(asked.get("interactive"))
    watched = guards.level in (1, 2)  # where the system has no limit that counts this child alone
    while not run.reap(block=False):
        run.obey()
        if run.killed is None:
            run.wait(eager)
        if watched and eager and run.threads() > run.most_threads:
            run.kill("threads")
        if time.monotonic() >= run.deadline:
            run.kill("timeout")
        eager = eager or time.monotonic() - run.started >= _LAZY_S
        if eager and run.read():
            control.flush()
        if run.killed:
            run.reap(block=True)
    if guards.level in (0, 3):  # at the others a child cannot make processes
        kill_all()
    run.read()
    control.put(b"X", run.ending())
    run.close()
