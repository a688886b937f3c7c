"""A session that forks: order a fork for each block, watch it, and kill and reap all of it at the end.

The parent sends `BLOCK` with JSON {"at", "number", "wall_s"} and then `TO_CHILD` with a frame ["block", code] for a
block; `CANCEL` ends the block that runs, `FORGET` with JSON {"at", "step"} a state, `KILL` the session. For each block
it gets `STDOUT`, `STDERR`, `FROM_CHILD` (the block's frames) and `EXIT` {"step", "killed", "status", "seconds",
"cpu_s", "finished", "lost"}; at the end one more `EXIT`.
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
from foretrace.sandbox.inside.roles.session import FORK, REPORT_STATUS, run_session
from foretrace.sandbox.inside.server.parent_connection import ParentConnection, kill_descendants, move_descriptor_up
from foretrace.sandbox.inside.server.watch_child import ChildStreams, read_cpu_s
from foretrace.sandbox.inside.wire.frames import HEADER
from foretrace.sandbox.inside.wire.messages import BLOCK, CANCEL, EXIT, FORGET, FROM_CHILD, KILL

_SPARE_PROCESSES = 16
"""Threads and processes that a block may make beside the checkpoints."""
_GRACE_S = 1.0
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


class _RunningBlock(ChildStreams):
    """One block: the channel to its process, its output, and what its frames said."""

    def __init__(self, parent: ParentConnection, fork_gate: ForkGate, limits: dict[str, Any], wall_s: float) -> None:
        super().__init__(parent, limits, wall_s)
        self.fork_gate, self.frames, self.closed = fork_gate, _BlockFrames(), False
        self._cancelled = False

    def start(self, state: socket.socket, order: bytes) -> bool:
        """Have the process of a state fork; false when it does not listen."""
        null = os.open("/dev/null", os.O_RDONLY)
        try:
            socket.send_fds(state, [order], [null, *self.theirs])
        except OSError:
            return False
        finally:
            self.close_theirs()
            os.close(null)
        return True

    def handle_message(self, kind: bytes) -> None:
        """Do what the parent asks for."""
        self._cancelled = self._cancelled or kind == CANCEL
        super().handle_message(kind)

    def wait_for_event(self) -> None:
        """Wait a little for an event, and handle what the block says and what the parent sends."""
        parent = self.parent
        self.handle_messages()
        poller = select.poll()
        for descriptor in (self.out, self.err):
            poller.register(descriptor, select.POLLIN)
        poller.register(self.channel, select.POLLIN | (select.POLLOUT if parent.stream_blocked else 0))
        poller.register(self.fork_gate.descriptor, select.POLLIN)
        if not parent.stream_blocked:
            poller.register(parent.incoming, select.POLLIN)
        timeout = max(0.0, min(self.deadline - time.monotonic(), 0.05)) * 1000
        happened = dict(poller.poll(timeout))
        if parent.incoming in happened:
            parent.fill()
        if happened.get(self.fork_gate.descriptor, 0) & select.POLLIN:
            self.fork_gate.answer_request()
        self.handle_messages()
        self.read_printed()
        chunk = parent.queue_from(self.channel.fileno(), FROM_CHILD, time.monotonic() - self.started)
        if chunk is not None:
            self.frames.feed(chunk)
            self.closed = not chunk
            if self.frames.broken:
                self.kill("junk")
        if self.frames.succeeded is not None:
            self.read_printed()
        self.check_limits(self.frames.pid)
        if self._cancelled and self.frames.pid:  # before its pid is known it cannot be killed
            self.kill("cancelled")

    def end_process(self) -> bool:
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


class _State:
    """A process that ran blocks and waits to be forked."""

    def __init__(self, pid: int, channel: Any) -> None:
        self.pid, self.channel = pid, channel


class _Session:
    """The states of a session."""

    def __init__(self, parent: ParentConnection, limits: dict[str, Any], first: _State, fork_gate: ForkGate) -> None:
        self.lost = fork_gate.descriptor < 0
        self._parent, self._limits, self._fork_gate = parent, limits, fork_gate
        self._states = {0: first}

    def run_block(self, step: int, at: int, number: int, wall_s: float) -> None:
        """Run a block, which its file is named after by `number`, on a state, and report how it ended.

        Args:
            step: What the new state is called.
        """
        state = self._states[at]
        block = _RunningBlock(self._parent, self._fork_gate, self._limits, wall_s)
        self._fork_gate.allowed = 1
        _allow_processes(state.pid, self._count_processes())
        self.lost = not block.start(state.channel, FORK + b"%d" % number)
        while not (self.lost or block.closed or block.frames.succeeded is not None or block.kill_reason):
            block.wait_for_event()
        seconds, cpu_s = time.monotonic() - block.started, read_cpu_s(block.frames.pid) if block.frames.pid else 0.0
        self._fork_gate.allowed = 0
        succeeded = block.frames.succeeded is True and not block.kill_reason
        status = 0
        if block.kill_reason and not self.lost:
            self.lost = not block.end_process()
        elif block.closed and not block.frames.pid:
            block.kill_reason = "fork"
        if not (succeeded or self.lost):
            status, self.lost = _ask_status(state.channel, block.frames.pid)
        block.close_printed()
        if succeeded:
            self._states[step] = _State(block.frames.pid, block.channel)
            block.channel.setblocking(True)
        else:
            block.channel.close()
        report = {"step": step if succeeded else None, "killed": block.kill_reason, "status": status}
        how_long = {"seconds": seconds, "cpu_s": cpu_s}
        finished = block.frames.succeeded is not None
        self._parent.send_json(EXIT, {**report, **how_long, "finished": finished, "lost": self.lost})
        self.lost = self.lost or block.kill_reason == "ended"

    def forget(self, at: int, step: int) -> None:
        """End the state `step`, which was made of the state `at`."""
        state = self._states.pop(step)
        with contextlib.suppress(OSError):
            os.kill(state.pid, signal.SIGKILL)
        state.channel.close()
        _, self.lost = _ask_status(self._states[at].channel, state.pid)  # which reaps it

    def _count_processes(self) -> int:
        """How many processes the code's user may have: the states, one more, and a few for the code."""
        return len(self._states) + 1 + min(_SPARE_PROCESSES, int(self._limits["processes"]))

    def close(self) -> None:
        """Close all descriptors."""
        if self._fork_gate.descriptor >= 0:
            os.close(self._fork_gate.descriptor)
        for state in self._states.values():
            state.channel.close()


def serve_session(parent: ParentConnection, confinement: Confinement, request: dict[str, Any]) -> None:
    """Serve one session until the parent ends it; afterwards none of its processes is left."""
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        run_session(confinement, request, theirs.fileno())
    theirs.close()
    ours.settimeout(_START_S)
    try:
        fork_gate = ForkGate(move_descriptor_up(socket.recv_fds(ours, 1, 1)[1][0]))
    except (OSError, IndexError):
        fork_gate = ForkGate(-1)
    ours.settimeout(None)
    session = _Session(parent, request["limits"], _State(pid, ours), fork_gate)
    step = 0
    while not session.lost:
        message = parent.take() if parent.forward_stream(None) else None
        if message is None:
            parent.fill()
            continue
        kind, body = message
        if kind == KILL:
            break
        if kind == BLOCK:
            step += 1
            session.run_block(step, **json.loads(body))
        elif kind == FORGET:
            session.forget(**json.loads(body))
    session.close()
    kill_descendants()
    parent.send_json(EXIT, {"session": "ended"})


def _ask_status(state: socket.socket, pid: int) -> tuple[int, bool]:
    """The exit status of a process that a state forked (0: only a sign of life), and whether the session is lost."""
    answer = b""
    try:
        state.settimeout(_GRACE_S)
        state.sendall(REPORT_STATUS + b"%d" % pid)
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
    """Let the user of a process have `count` processes, as far as this process asks for them."""
    with contextlib.suppress(OSError):  # it has gone; the fork will show it
        hard = resource.prlimit(pid, resource.RLIMIT_NPROC)[1]
        soft = count if hard < 0 else min(count, hard)  # a hard limit never rises again
        resource.prlimit(pid, resource.RLIMIT_NPROC, (soft, hard))
