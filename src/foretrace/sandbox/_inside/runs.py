"""One run of the fork server: a fresh child from its fork to its end, with all that it says passed on."""

from __future__ import annotations

import os
import select
import signal
import socket
import time
from typing import Any

from foretrace.sandbox._inside import child
from foretrace.sandbox._inside.child import Guards
from foretrace.sandbox._inside.control import CHUNK, STAMP, Control, kill_all, open_input

_LAZY_S = 0.002
"""A run that ends within this time is read once, at its end; a longer one is read as it goes."""
_WATCH_S = 0.05


class Run:
    """One child: its descriptors, what it has said, and when it must end."""

    def __init__(self, guards: Guards, request: dict[str, Any]) -> None:
        limits = request["limits"]
        self.most_output = int(limits["output_mb"]) << 20
        self.most_data = int(request.get("data_mb", 64)) << 20
        self.most_threads = int(limits["processes"])
        self.printed = self.said = 0
        self.killed: str | None = None
        self.unsent = b""
        channel, theirs = socket.socketpair()
        out, out_theirs = os.pipe()
        err, err_theirs = os.pipe()
        stdin = open_input(request.get("stdin", ""))
        self.started = time.monotonic()
        self.deadline = self.started + float(limits["wall_s"])
        most = child.limits_of(limits, guards)
        self.pid = os.fork()
        if self.pid == 0:
            child.start(guards, request, most, (stdin, out_theirs, err_theirs, theirs.fileno()))
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

    def read(self, control: Control) -> bool:
        """Pass on what the child has printed and said, in this order; return whether there was anything."""
        found = self._read_output(control, self.out, b"O") | self._read_output(control, self.err, b"E")
        while self.killed is None:
            try:
                chunk = self.channel.recv(CHUNK)
            except BlockingIOError:
                break
            except OSError:
                chunk = b""
            if not chunk:
                break
            found = True
            self.said += len(chunk)
            if self.said > self.most_data:
                self.kill("reply")
                break
            control.put(b"D", STAMP.pack(time.monotonic() - self.started) + chunk)
        return found

    def _read_output(self, control: Control, descriptor: int, kind: bytes) -> bool:
        found = False
        while True:
            try:
                chunk = os.read(descriptor, CHUNK)
            except BlockingIOError:
                break
            if not chunk:
                break
            found = True
            self.printed += len(chunk)
            if self.printed > self.most_output:
                self.kill("output")
                break
            control.put(kind, chunk)
        return found

    def feed(self, data: bytes) -> None:
        """Send bytes to the child, keeping what it does not take yet."""
        self.unsent += data
        try:
            while self.unsent:
                self.unsent = self.unsent[self.channel.send(self.unsent) :]
        except BlockingIOError:
            pass
        except OSError:
            self.unsent = b""

    def close(self) -> None:
        self.channel.close()
        for descriptor in (self.out, self.err, self.handle):
            if descriptor >= 0:
                os.close(descriptor)

    def ending(self) -> dict[str, Any]:
        """How it ended, as this process saw it."""
        return {
            "killed": self.killed,
            "status": self.status,
            "seconds": time.monotonic() - self.started,
            "cpu_s": self.usage.ru_utime + self.usage.ru_stime,
            "memory_kb": self.usage.ru_maxrss,
        }


def serve(control: Control, guards: Guards, request: dict[str, Any]) -> None:
    """Run one request from fork to clean-up."""
    run = Run(guards, request)
    eager = bool(request.get("interactive"))
    watched = guards.level in (1, 2)  # where the system has no limit that counts this child alone
    while not run.reap(block=False):
        while (message := control.take()) is not None:
            if message[0] == b"S":
                run.feed(message[1])
            elif message[0] == b"K":
                run.kill("ended")
        wait_for(run, control, eager)
        if watched and eager and run.threads() > run.most_threads:
            run.kill("threads")
        if time.monotonic() >= run.deadline:
            run.kill("timeout")
        eager = eager or time.monotonic() - run.started >= _LAZY_S
        if eager and run.read(control):
            control.flush()
        if run.killed:
            run.reap(block=True)
    if guards.level in (0, 3):  # at the others a child cannot make processes
        kill_all()
    run.read(control)
    control.say(b"X", run.ending())
    run.close()


def wait_for(run: Run, control: Control, eager: bool) -> None:
    """Sleep until something happens: the child ended or (when `eager`) said something, or the parent did."""
    poller = select.poll()
    poller.register(control.socket, select.POLLIN)
    if run.handle >= 0:
        poller.register(run.handle, select.POLLIN)
    if eager:
        for descriptor in (run.out, run.err):
            poller.register(descriptor, select.POLLIN)
        poller.register(run.channel, select.POLLIN | (select.POLLOUT if run.unsent else 0))
    left = run.deadline - time.monotonic()
    if not eager:
        left = min(left, _LAZY_S)
    if eager:
        left = min(left, _WATCH_S)
    if run.handle < 0:
        left = min(left, 0.005)
    events = poller.poll(max(0, left) * 1000 + (0 if eager else 0.5))
    ready = {descriptor for descriptor, _ in events}
    if control.socket.fileno() in ready:
        control.fill()
    if run.unsent and run.channel.fileno() in ready:
        run.feed(b"")
    # A closed end stays ready for ever: with nothing else to wait for, wait for the child a little.
    closed = [d for d, what in events if what & (select.POLLHUP | select.POLLERR) and d != run.handle]
    if closed and len(closed) == len(events) and run.handle >= 0:
        quiet = select.poll()
        quiet.register(run.handle, select.POLLIN)
        quiet.register(control.socket, select.POLLIN)
        quiet.poll(5)
