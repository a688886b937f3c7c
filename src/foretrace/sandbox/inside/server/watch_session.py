"""A session that forks: order a fork for each block, watch it, and kill and reap all of it at the end.

The parent sends `BLOCK` with JSON {"at", "wall_s"} and then `TO_CHILD` with a frame ["block", code] for a block; `KILL`
ends the session. For each block it gets `STDOUT`, `STDERR`, `FROM_CHILD` (the block's frames) and `EXIT` {"step",
"killed", "status", "seconds", "finished", "lost"}; at the end one more `EXIT`.
Only in a pid namespace: everything of the session dies with it. Its code cannot fork: the kernel asks the fork server
about each new process, and it agrees to the one that it has just ordered.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import select
import signal
import socket
import time
from typing import Any

from foretrace.sandbox.inside.child import Confinement
from foretrace.sandbox.inside.confine.seccomp import ForkGate
from foretrace.sandbox.inside.roles.session import FORK, PING, REPORT_STATUS, run_session
from foretrace.sandbox.inside.server.parent_connection import ParentConnection, kill_descendants, move_descriptor_up
from foretrace.sandbox.inside.wire.frames import HEADER
from foretrace.sandbox.inside.wire.messages import BLOCK, EXIT, FROM_CHILD, KILL, STDERR, STDOUT

_SPARE_PROCESSES = 16
"""Threads and processes that a block may make beside the checkpoints."""
_GRACE_S = 0.3
"""How long a process of the session gets to end or to answer."""
_START_S = 5.0
_MAX_FRAME = 1 << 16
_MAX_FRAME_START = 20
"""Bytes at the beginning of a frame that are looked at."""


class _BlockFrames:
    """Reads from a block's frames what the supervisor must know, and holds no more of them than their beginning."""

    def __init__(self) -> None:
        self.pid = 0
        self.succeeded: bool | None = None
        """Whether the block came to its end without an error; None while it has not said."""
        self.broken = False
        self._header = b""
        self._left = 0
        self._start = b""

    def feed(self, chunk: memoryview) -> None:
        """Take in bytes of the channel."""
        at = 0
        while at < len(chunk) and not self.broken and self.succeeded is None:
            if not self._left:
                part = bytes(chunk[at : at + HEADER.size - len(self._header)])
                self._header += part
                at += len(part)
                if len(self._header) == HEADER.size:
                    (self._left,) = HEADER.unpack(self._header)
                    self._header = self._start = b""
                    self.broken = not 0 < self._left <= _MAX_FRAME
                continue
            part = chunk[at : at + self._left]
            self._start += bytes(part[: _MAX_FRAME_START - len(self._start)])
            at += len(part)
            self._left -= len(part)
            if not self._left:
                self._read_frame(self._start)

    def _read_frame(self, start: bytes) -> None:
        if start.startswith(b'["ready",') and not self.pid and start[9:-1].isdigit() and 1 < int(start[9:-1]) < 1 << 31:
            self.pid = int(start[9:-1])
        elif start.startswith(b'["ended",'):
            self.succeeded = start == b'["ended",null]'
        else:
            self.broken = True


class _RunningBlock:
    """One block that runs: its channel, its output, and what its frames said."""

    def __init__(self, parent: ParentConnection, fork_gate: ForkGate, wall_s: float, max_output: int) -> None:
        self.parent, self.fork_gate, self.max_output = parent, fork_gate, max_output
        self.channel, self.child_channel = socket.socketpair()
        self.out, self.child_out = os.pipe()
        self.err, self.child_err = os.pipe()
        self.started = time.monotonic()
        self.deadline = self.started + wall_s
        self.frames = _BlockFrames()
        self.output_bytes = 0
        self.closed = False
        self.kill_reason: str | None = None
        for descriptor in (self.channel.fileno(), self.out, self.err):
            os.set_blocking(descriptor, False)

    def start(self, state: socket.socket) -> bool:
        """Have the process of a state fork; false when it does not listen."""
        null = os.open("/dev/null", os.O_RDONLY)
        descriptors = [null, self.child_out, self.child_err, self.child_channel.fileno()]
        try:
            socket.send_fds(state, [FORK], descriptors)
        except OSError:
            return False
        finally:
            self.child_channel.close()
            for descriptor in (null, self.child_out, self.child_err):
                os.close(descriptor)
        return True

    def wait_for_event(self) -> None:
        """Wait a little for an event, and handle what the block says and what the parent sends."""
        parent = self.parent
        self._handle_messages()
        poller = select.poll()
        for descriptor in (self.out, self.err):
            poller.register(descriptor, select.POLLIN)
        poller.register(self.channel, select.POLLIN | (select.POLLOUT if parent.stream_blocked else 0))
        poller.register(self.fork_gate.descriptor, select.POLLIN)
        if not parent.stream_blocked:
            poller.register(parent.socket, select.POLLIN)
        timeout = max(0.0, min(self.deadline - time.monotonic(), 0.25)) * 1000
        happened = dict(poller.poll(timeout))
        if parent.socket.fileno() in happened:
            parent.fill()
        if happened.get(self.fork_gate.descriptor, 0) & select.POLLIN:
            self.fork_gate.answer_request()
        self._handle_messages()
        self.read_output()
        chunk = parent.queue_from(self.channel.fileno(), FROM_CHILD, time.monotonic() - self.started)
        if chunk is not None:
            self.frames.feed(chunk)
            self.closed = not chunk
            if self.frames.broken:
                self.kill_reason = self.kill_reason or "junk"
        if self.frames.succeeded is not None:
            self.read_output()

    def _handle_messages(self) -> None:
        while self.parent.forward_stream(self.channel.fileno()):
            message = self.parent.take()
            if message is None:
                return
            if message[0] == KILL:
                self.kill_reason = self.kill_reason or "ended"

    def read_output(self) -> None:
        """Queue what was printed."""
        for descriptor, kind in ((self.out, STDOUT), (self.err, STDERR)):
            while self.output_bytes <= self.max_output and (chunk := self.parent.queue_from(descriptor, kind)):
                self.output_bytes += len(chunk)
                if self.output_bytes > self.max_output:
                    self.kill_reason = self.kill_reason or "output"

    def kill(self) -> bool:
        """Kill the block's process; false where it cannot be found."""
        if self.frames.pid:
            with contextlib.suppress(OSError):
                os.kill(self.frames.pid, signal.SIGKILL)
        until = time.monotonic() + _GRACE_S
        while not self.closed and time.monotonic() < until:
            try:
                self.closed = not self.channel.recv(_MAX_FRAME)
            except BlockingIOError:
                time.sleep(0.002)
            except OSError:
                self.closed = True
        return self.closed

    def close_output(self) -> None:
        """Close the descriptors of its output."""
        os.close(self.out)
        os.close(self.err)


def serve_session(parent: ParentConnection, confinement: Confinement, request: dict[str, Any]) -> None:
    """Serve one session until the parent ends it; afterwards none of its processes is left."""
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        run_session(confinement, request, theirs.fileno())
    theirs.close()
    states: dict[int, tuple[int, socket.socket]] = {0: (pid, ours)}  # by number: its process, and the channel to it
    ours.settimeout(_START_S)
    try:
        fork_gate = ForkGate(move_descriptor_up(socket.recv_fds(ours, 1, 1)[1][0]))
    except (OSError, IndexError):
        fork_gate = ForkGate(-1)
    ours.settimeout(None)
    lost = fork_gate.descriptor < 0
    number = 0
    while not lost:
        if not parent.forward_stream(None):
            parent.fill()
            continue
        kind, body = parent.receive()
        if kind == KILL:
            break
        if kind == BLOCK:
            number += 1
            lost = _run_block(parent, request["limits"], states, fork_gate, number, json.loads(body))
    if fork_gate.descriptor >= 0:
        os.close(fork_gate.descriptor)
    for _, channel in states.values():
        channel.close()
    kill_descendants()
    parent.send_json(EXIT, {"session": "ended"})


def _run_block(
    parent: ParentConnection,
    limits: dict[str, Any],
    states: dict[int, tuple[int, socket.socket]],
    fork_gate: ForkGate,
    number: int,
    request: Any,
) -> bool:
    """Run one block; return whether the session is lost."""
    pid, state = states[request["at"]]
    block = _RunningBlock(parent, fork_gate, float(request["wall_s"]), int(limits["output_mb"]) << 20)
    fork_gate.allowed = 1
    _allow_processes(pid, len(states) + 1 + min(_SPARE_PROCESSES, int(limits["processes"])))
    lost = not block.start(state)
    while not (lost or block.closed or block.frames.succeeded is not None or block.kill_reason):
        block.wait_for_event()
        if time.monotonic() >= block.deadline:
            block.kill_reason = "timeout"
    seconds = time.monotonic() - block.started
    succeeded = block.frames.succeeded is True and not block.kill_reason
    status = 0
    if block.kill_reason and not lost:
        lost = not block.kill()
    elif block.closed and not block.frames.pid:
        block.kill_reason = "fork"
        lost = _ask_state(state, PING)[1]
    if block.frames.pid and not (succeeded or lost):
        status, lost = _ask_state(state, REPORT_STATUS + b"%d" % block.frames.pid)
    block.close_output()
    if succeeded:
        states[number] = (block.frames.pid, block.channel)
        block.channel.setblocking(True)
    else:
        block.channel.close()
    report = {"step": number if succeeded else None, "killed": block.kill_reason, "status": status, "seconds": seconds}
    parent.send_json(EXIT, {**report, "finished": block.frames.succeeded is not None, "lost": lost})
    return lost or block.kill_reason == "ended"


def _ask_state(state: socket.socket, order: bytes) -> tuple[int, bool]:
    """A number from a state's process (an exit status, say), and whether the session is lost."""
    answer = b""
    try:
        state.settimeout(_GRACE_S)
        state.sendall(order)
        while not answer.endswith(b".") and len(answer) < 16:
            chunk = state.recv(16)
            if not chunk:
                return 0, True
            answer += chunk
        return int(answer[:-1]), False
    except (OSError, ValueError):
        return 0, True
    finally:
        state.settimeout(None)


def _allow_processes(pid: int, count: int) -> None:
    """Let the state's user have `count` processes: the checkpoints, and a few for the code."""
    with contextlib.suppress(OSError):  # it has gone; the fork will show it
        hard = resource.prlimit(pid, resource.RLIMIT_NPROC)[1]
        soft = count if hard < 0 else min(count, hard)  # a hard limit never rises again
        resource.prlimit(pid, resource.RLIMIT_NPROC, (soft, hard))
