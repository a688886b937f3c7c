"""A session that forks: the process that ran the blocks so far is forked for the next one, and stays as a checkpoint.

Messages of the parent: S with JSON {"at", "code", "wall_s", "stdin"} for a block, K to end the session. For each block
it gets O, E, D (the block's frames) and X {"step", "killed", "status", "seconds", "lost"}; at the end one more X.
Only in a pid namespace: everything that the session's code starts dies with it.
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

from foretrace.sandbox._inside import child, programs, wire
from foretrace.sandbox._inside.channel import Channel
from foretrace.sandbox._inside.child import Guards
from foretrace.sandbox._inside.control import Control, kill_all, open_input

_SPARE = 16
"""Threads and processes that a block may make beside the checkpoints."""
_GRACE_S = 0.3
_FRAME = 1 << 16


# The process of the session's code.


def hold(guards: Guards, request: dict[str, Any], descriptor: int) -> None:
    """Be the empty state, then, in forks, the state after each block. Never returns."""
    code = 1
    try:
        child.take_one(descriptor)
        child.enter(guards, child.limits_of(request["limits"], guards), forks=True)
        channel: Any = socket.socket(fileno=child.CHANNEL)
        namespace = programs.main_module()
        number = 0
        while True:
            word, descriptors, _, _ = socket.recv_fds(channel, 64, 4)
            if not word:
                code = 0
                break
            if word[:1] == b"w":
                _report_status(channel, int(word[1:]))
                continue
            number += 1
            block = os.fork()
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
            if message is None or not programs.run_block(frames, message[1], number, namespace):
                break
            channel = socket.socket(fileno=child.CHANNEL)
    finally:
        os._exit(code)


def _report_status(channel: Any, pid: int) -> None:
    try:
        status = os.waitpid(pid, 0)[1]
    except OSError:
        status = -1
    channel.sendall(b"%d." % status)


# The fork server's side.


class _Block:
    """One block that runs: its channel, its output, and what was heard."""

    def __init__(self, control: Control, number: int, wall_s: float, most_output: int) -> None:
        self.control, self.number, self.most_output = control, number, most_output
        self.channel, self.theirs = socket.socketpair()
        self.out, self.out_theirs = os.pipe()
        self.err, self.err_theirs = os.pipe()
        self.started = time.monotonic()
        self.deadline = self.started + wall_s
        self.frames = wire.Frames(_FRAME)
        self.pid = 0
        self.printed = 0
        self.ended: list[Any] | None = None
        self.gone = False
        self.killed: str | None = None
        self.unsent = b""
        for descriptor in (self.channel.fileno(), self.out, self.err):
            os.set_blocking(descriptor, False)

    def send_to(self, head: socket.socket, stdin: int) -> bool:
        """Have the head fork; false when it does not listen."""
        given = [stdin, self.out_theirs, self.err_theirs, self.theirs.fileno()]
        try:
            socket.send_fds(head, [b"f"], given)
        except OSError:
            return False
        finally:
            self.theirs.close()
            for descriptor in (stdin, self.out_theirs, self.err_theirs):
                os.close(descriptor)
        return True

    def listen(self) -> None:
        """Wait a little for the block, and take in what it says."""
        poller = select.poll()
        for descriptor in (self.out, self.err):
            poller.register(descriptor, select.POLLIN)
        poller.register(self.channel, select.POLLIN | (select.POLLOUT if self.unsent else 0))
        poller.register(self.control.socket, select.POLLIN)
        poller.poll(max(0.0, min(self.deadline - time.monotonic(), 0.25)) * 1000)
        self._feed()
        self.read_output()
        try:
            chunk = self.channel.recv(_FRAME)
        except BlockingIOError:
            return
        except OSError:
            chunk = b""
        self.gone = not chunk
        self.frames.feed(chunk)
        try:
            while self.ended is None and (message := self.frames.take()) is not None:
                self._hear(message)
        except wire.BrokenFrame:
            self.gone = True

    def _hear(self, message: Any) -> None:
        if message[0] == "ready" and not self.pid and type(message[1]) is int and message[1] > 1:
            self.pid = message[1]
            self._feed()
        elif message[0] == "ended":
            self.ended = message
            self.read_output()
        else:
            raise wire.BrokenFrame("out of turn")

    def _feed(self) -> None:
        try:
            while self.unsent and self.pid:
                self.unsent = self.unsent[self.channel.send(self.unsent) :]
        except BlockingIOError:
            pass
        except OSError:
            self.unsent = b""

    def read_output(self) -> None:
        for descriptor, kind in ((self.out, b"O"), (self.err, b"E")):
            while True:
                try:
                    chunk = os.read(descriptor, 1 << 18)
                except BlockingIOError:
                    break
                if not chunk:
                    break
                self.printed += len(chunk)
                if self.printed > self.most_output:
                    self.killed = self.killed or "output"
                    break
                self.control.put(kind, chunk)

    def kill(self) -> bool:
        """End the block's process; false where it cannot be found."""
        if self.pid:
            with contextlib.suppress(OSError):
                os.kill(self.pid, signal.SIGKILL)
        until = time.monotonic() + _GRACE_S
        self.ended = None
        while not self.gone and time.monotonic() < until:
            try:
                self.gone = not self.channel.recv(_FRAME)
            except BlockingIOError:
                time.sleep(0.002)
            except OSError:
                self.gone = True
        return self.gone

    def close_output(self) -> None:
        os.close(self.out)
        os.close(self.err)


def serve(control: Control, guards: Guards, request: dict[str, Any]) -> None:
    """Serve one session until the parent ends it; afterwards none of its processes is left."""
    ours, theirs = socket.socketpair()
    holder = os.fork()
    if holder == 0:
        hold(guards, request, theirs.fileno())
    theirs.close()
    states: dict[int, tuple[int, socket.socket]] = {0: (holder, ours)}
    lost = False
    number = 0
    while not lost:
        kind, body = control.receive()
        if kind != b"S":
            break
        number += 1
        lost = _run_block(control, request["limits"], states, number, json.loads(body))
    for _, channel in states.values():
        channel.close()
    kill_all()
    control.say(b"X", {"session": "ended"})


def _run_block(
    control: Control, limits: dict[str, Any], states: dict[int, tuple[int, socket.socket]], number: int, asked: Any
) -> bool:
    """Run one block; return whether the session is lost."""
    pid, head = states[asked["at"]]
    block = _Block(control, number, float(asked["wall_s"]), int(limits["output_mb"]) << 20)
    _allow_processes(pid, len(states) + 1 + min(_SPARE, int(limits["processes"])))
    block.unsent = wire.pack(["block", asked["code"]])
    lost = not block.send_to(head, open_input(asked.get("stdin", "")))
    while not (lost or block.gone or block.ended or block.killed):
        block.listen()
        if time.monotonic() >= block.deadline:
            block.killed = "timeout"
        while (message := control.take()) is not None:
            block.killed = block.killed or ("ended" if message[0] == b"K" else None)
    seconds = time.monotonic() - block.started
    good = block.ended is not None and block.ended[1] is None and not block.killed
    status = 0
    if block.killed and not lost:
        lost = not block.kill()
    if block.pid and not (good or lost):
        status, lost = _status(head, block.pid)
    block.close_output()
    if good:
        states[number] = (block.pid, block.channel)
        block.channel.setblocking(True)
    else:
        block.channel.close()
    answer = {"step": number if good else None, "killed": block.killed, "status": status, "seconds": seconds}
    control.say(b"X", {**answer, "error": block.ended and block.ended[1], "lost": lost})
    return lost or block.killed == "ended"


def _status(head: socket.socket, pid: int) -> tuple[int, bool]:
    """The exit status of a block from the process that forked it, and whether that process is lost."""
    said = b""
    try:
        head.settimeout(_GRACE_S)
        head.sendall(b"w%d" % pid)
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
        resource.prlimit(pid, resource.RLIMIT_NPROC, (count, count))
