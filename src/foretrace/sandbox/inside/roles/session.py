"""A session that forks: the process that ran the blocks so far is forked for the next one, and stays as a checkpoint.

Messages of the parent: B with JSON {"at", "wall_s"} and then S with a frame ["block", code] for a block; K to end the
session. For each block it gets O, E, D (the block's frames) and X {"step", "killed", "status", "seconds", "said",
"lost"}; at the end one more X.
Only in a pid namespace: everything of the session dies with it. Its code cannot fork: the fork server is asked for each
new process, and agrees to the one that it has just ordered.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import select
import signal
import socket
import sys
import time
from typing import Any

from foretrace.sandbox.inside import child
from foretrace.sandbox.inside.channel import Channel
from foretrace.sandbox.inside.child import Guards
from foretrace.sandbox.inside.confine.seccomp import Forks
from foretrace.sandbox.inside.control import Control, kill_all, move_up
from foretrace.sandbox.inside.roles import program
from foretrace.sandbox.inside.wire.frames import HEADER

_SPARE = 16
"""Threads and processes that a block may make beside the checkpoints."""
_MOST_STATES = 512
_GRACE_S = 0.3
_START_S = 5.0
_FRAME = 1 << 16
_BEGINNING = 20


# The process of the session's code.


def hold(guards: Guards, request: dict[str, Any], descriptor: int) -> None:
    """Be the empty state, then, in forks, the state after each block. Never returns."""
    code = 1
    try:
        child.take_one(descriptor)
        asked = child.enter(guards, child.limits_of(request["limits"], guards, states=_MOST_STATES), forks=True)
        channel: Any = socket.socket(fileno=child.CHANNEL)
        socket.send_fds(channel, [b"a"], [asked])
        os.close(asked)
        namespace = program.main_module()
        number = 0
        while True:
            word, descriptors, _, _ = socket.recv_fds(channel, 64, 4)
            if not word:
                code = 0
                break
            if word[:1] == b"p":
                channel.sendall(b"0.")
                continue
            if word[:1] == b"w":
                _report_status(channel, int(word[1:]))
                continue
            number += 1
            try:
                block = os.fork()
            except OSError:
                block = -1  # the channel that is closed now says so
            if block:
                for given in descriptors:
                    os.close(given)
                continue
            sys.modules["threading"]._after_fork()  # type: ignore[attr-defined]  # threads of earlier blocks are not here
            channel.detach()
            child.take(tuple(descriptors))  # type: ignore[arg-type]
            for given in descriptors:
                os.close(given)
            frames = Channel(child.CHANNEL)
            frames.send(["ready", os.getpid()])
            message = frames.receive()
            if message is None or not program.run_block(frames, message[1], number, namespace):
                break
            channel = socket.socket(fileno=child.CHANNEL)
    finally:
        child.leave(code)


def _report_status(channel: Any, pid: int) -> None:
    try:
        status = os.waitpid(pid, 0)[1]
    except OSError:
        status = -1
    channel.sendall(b"%d." % status)


# The fork server's side.


class _Ear:
    """Hears from a block's frames what the fork server must know, and keeps no more of them than their beginning."""

    def __init__(self) -> None:
        self.pid = 0
        self.good: bool | None = None
        """Whether the block came to its end; null while it has not said."""
        self.broken = False
        self._head = b""
        self._left = 0
        self._start = b""

    def hear(self, chunk: memoryview) -> None:
        """Take in bytes of the channel."""
        at = 0
        while at < len(chunk) and not self.broken and self.good is None:
            if not self._left:
                part = bytes(chunk[at : at + HEADER.size - len(self._head)])
                self._head += part
                at += len(part)
                if len(self._head) == HEADER.size:
                    (self._left,) = HEADER.unpack(self._head)
                    self._head = self._start = b""
                    self.broken = not 0 < self._left <= _FRAME
                continue
            part = chunk[at : at + self._left]
            self._start += bytes(part[: _BEGINNING - len(self._start)])
            at += len(part)
            self._left -= len(part)
            if not self._left:
                self._frame(self._start)

    def _frame(self, start: bytes) -> None:
        if start.startswith(b'["ready",') and not self.pid and start[9:-1].isdigit() and 1 < int(start[9:-1]) < 1 << 31:
            self.pid = int(start[9:-1])
        elif start.startswith(b'["ended",'):
            self.good = start == b'["ended",null]'
        else:
            self.broken = True


class _Block:
    """One block that runs: its channel, its output, and what was heard."""

    def __init__(self, control: Control, forks: Forks, wall_s: float, most_output: int) -> None:
        self.control, self.forks, self.most_output = control, forks, most_output
        self.channel, self.theirs = socket.socketpair()
        self.out, self.out_theirs = os.pipe()
        self.err, self.err_theirs = os.pipe()
        self.started = time.monotonic()
        self.deadline = self.started + wall_s
        self.ear = _Ear()
        self.printed = 0
        self.gone = False
        self.killed: str | None = None
        for descriptor in (self.channel.fileno(), self.out, self.err):
            os.set_blocking(descriptor, False)

    def send_to(self, head: socket.socket) -> bool:
        """Have the head fork; false when it does not listen."""
        null = os.open("/dev/null", os.O_RDONLY)
        given = [null, self.out_theirs, self.err_theirs, self.theirs.fileno()]
        try:
            socket.send_fds(head, [b"f"], given)
        except OSError:
            return False
        finally:
            self.theirs.close()
            for descriptor in (null, self.out_theirs, self.err_theirs):
                os.close(descriptor)
        return True

    def listen(self) -> None:
        """Wait a little for the block, and take in what it says and what the parent sends."""
        control = self.control
        self._obey()
        poller = select.poll()
        for descriptor in (self.out, self.err):
            poller.register(descriptor, select.POLLIN)
        poller.register(self.channel, select.POLLIN | (select.POLLOUT if control.stuck else 0))
        poller.register(self.forks.descriptor, select.POLLIN)
        if not control.stuck:
            poller.register(control.socket, select.POLLIN)
        timeout = max(0.0, min(self.deadline - time.monotonic(), 0.25)) * 1000
        happened = dict(poller.poll(timeout))
        if control.socket.fileno() in happened:
            control.fill()
        if happened.get(self.forks.descriptor, 0) & select.POLLIN:
            self.forks.answer()
        self._obey()
        self.read_output()
        chunk = control.pass_on(self.channel.fileno(), b"D", time.monotonic() - self.started)
        if chunk is not None:
            self.ear.hear(chunk)
            self.gone = not chunk
            if self.ear.broken:
                self.killed = self.killed or "junk"
        if self.ear.good is not None:
            self.read_output()

    def _obey(self) -> None:
        while self.control.pump(self.channel.fileno()):
            message = self.control.take()
            if message is None:
                return
            if message[0] == b"K":
                self.killed = self.killed or "ended"

    def read_output(self) -> None:
        """Line up what was printed."""
        for descriptor, kind in ((self.out, b"O"), (self.err, b"E")):
            while self.printed <= self.most_output and (chunk := self.control.pass_on(descriptor, kind)):
                self.printed += len(chunk)
                if self.printed > self.most_output:
                    self.killed = self.killed or "output"

    def kill(self) -> bool:
        """End the block's process; false where it cannot be found."""
        if self.ear.pid:
            with contextlib.suppress(OSError):
                os.kill(self.ear.pid, signal.SIGKILL)
        until = time.monotonic() + _GRACE_S
        while not self.gone and time.monotonic() < until:
            try:
                self.gone = not self.channel.recv(_FRAME)
            except BlockingIOError:
                time.sleep(0.002)
            except OSError:
                self.gone = True
        return self.gone

    def close_output(self) -> None:
        """Close what it printed to."""
        os.close(self.out)
        os.close(self.err)


def serve(control: Control, guards: Guards, asked: dict[str, Any]) -> None:
    """Serve one session until the parent ends it; afterwards none of its processes is left."""
    ours, theirs = socket.socketpair()
    holder = os.fork()
    if holder == 0:
        hold(guards, asked, theirs.fileno())
    theirs.close()
    states: dict[int, tuple[int, socket.socket]] = {0: (holder, ours)}
    ours.settimeout(_START_S)
    try:
        forks = Forks(move_up(socket.recv_fds(ours, 1, 1)[1][0]))
    except (OSError, IndexError):
        forks = Forks(-1)
    ours.settimeout(None)
    lost = forks.descriptor < 0
    number = 0
    while not lost:
        if not control.pump(None):
            control.fill()
            continue
        kind, body = control.receive()
        if kind == b"K":
            break
        if kind == b"B":
            number += 1
            lost = _run_block(control, asked["limits"], states, forks, number, json.loads(body))
    if forks.descriptor >= 0:
        os.close(forks.descriptor)
    for _, channel in states.values():
        channel.close()
    kill_all()
    control.say(b"X", {"session": "ended"})


def _run_block(
    control: Control,
    limits: dict[str, Any],
    states: dict[int, tuple[int, socket.socket]],
    forks: Forks,
    number: int,
    asked: Any,
) -> bool:
    """Run one block; return whether the session is lost."""
    pid, head = states[asked["at"]]
    block = _Block(control, forks, float(asked["wall_s"]), int(limits["output_mb"]) << 20)
    forks.allowed = 1
    _allow_processes(pid, len(states) + 1 + min(_SPARE, int(limits["processes"])))
    lost = not block.send_to(head)
    while not (lost or block.gone or block.ear.good is not None or block.killed):
        block.listen()
        if time.monotonic() >= block.deadline:
            block.killed = "timeout"
    seconds = time.monotonic() - block.started
    good = block.ear.good is True and not block.killed
    status = 0
    if block.killed and not lost:
        lost = not block.kill()
    elif block.gone and not block.ear.pid:
        block.killed = "fork"
        lost = _ask(head, b"p")[1]
    if block.ear.pid and not (good or lost):
        status, lost = _ask(head, b"w%d" % block.ear.pid)
    block.close_output()
    if good:
        states[number] = (block.ear.pid, block.channel)
        block.channel.setblocking(True)
    else:
        block.channel.close()
    answer = {"step": number if good else None, "killed": block.killed, "status": status, "seconds": seconds}
    control.say(b"X", {**answer, "said": block.ear.good is not None, "lost": lost})
    return lost or block.killed == "ended"


def _ask(head: socket.socket, question: bytes) -> tuple[int, bool]:
    """A number from a state's process (the exit status of a block that it forked, say), and whether it is lost."""
    said = b""
    try:
        head.settimeout(_GRACE_S)
        head.sendall(question)
        while not said.endswith(b".") and len(said) < 16:
            chunk = head.recv(16)
            if not chunk:
                return 0, True
            said += chunk
        return int(said[:-1]), False
    except (OSError, ValueError):
        return 0, True
    finally:
        head.settimeout(None)


def _allow_processes(pid: int, count: int) -> None:
    """Let the state's user have `count` processes: the checkpoints, and a few for the code."""
    with contextlib.suppress(OSError):  # it has gone; the fork will show it
        hard = resource.prlimit(pid, resource.RLIMIT_NPROC)[1]
        resource.prlimit(
            pid, resource.RLIMIT_NPROC, (count if hard < 0 else min(count, hard), hard)
        )  # a hard limit never rises again
