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
from foretrace.sandbox.inside.roles.session import FORK, FORK_AHEAD, PING, REPORT_STATUS, run_session
from foretrace.sandbox.inside.server.parent_connection import ParentConnection, kill_descendants, move_descriptor_up
from foretrace.sandbox.inside.wire.frames import HEADER
from foretrace.sandbox.inside.wire.messages import BLOCK, EXIT, FROM_CHILD, KILL, STDERR, STDOUT

_SPARE_PROCESSES = 16
"""Threads and processes that a block may make beside the checkpoints."""
_GRACE_S = 1.0
"""How long a process of the session gets to end or to answer."""
_FORK_S = 2.5
"""How long a state gets to fork ahead of time: on a busy machine that takes its time."""
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
    """One block: the channel to its process, its output, and what its frames said. Its time runs once it was begun."""

    def __init__(self, parent: ParentConnection, fork_gate: ForkGate, max_output: int) -> None:
        self.parent, self.fork_gate, self.max_output = parent, fork_gate, max_output
        self.channel, self.child_channel = socket.socketpair()
        self.out, self.child_out = os.pipe()
        self.err, self.child_err = os.pipe()
        self.started = self.deadline = 0.0
        self.frames = _BlockFrames()
        self.output_bytes = 0
        self.closed = False
        self.kill_reason: str | None = None
        for descriptor in (self.channel.fileno(), self.out, self.err):
            os.set_blocking(descriptor, False)

    def start(self, state: socket.socket, order: bytes) -> bool:
        """Have the process of a state fork; false when it does not listen."""
        null = os.open("/dev/null", os.O_RDONLY)
        descriptors = [null, self.child_out, self.child_err, self.child_channel.fileno()]
        try:
            socket.send_fds(state, [order], descriptors)
        except OSError:
            return False
        finally:
            self.child_channel.close()
            for descriptor in (null, self.child_out, self.child_err):
                os.close(descriptor)
        return True

    def begin(self, wall_s: float) -> None:
        """Let its time run."""
        self.started = time.monotonic()
        self.deadline = self.started + wall_s

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

    def wait_until_ready(self) -> bool:
        """Wait until its process was made, before it is sent a block; false when it was not, or has ended."""
        poller = select.poll()
        poller.register(self.channel, select.POLLIN)
        poller.register(self.fork_gate.descriptor, select.POLLIN)
        until = time.monotonic() + _FORK_S
        while not (self.frames.pid or self.closed or self.frames.broken) and (left := until - time.monotonic()) > 0:
            happened = dict(poller.poll(left * 1000))
            if happened.get(self.fork_gate.descriptor, 0) & select.POLLIN:
                self.fork_gate.answer_request()
            if self.channel.fileno() in happened:
                with contextlib.suppress(BlockingIOError):
                    chunk = self.channel.recv(_MAX_FRAME)
                    self.frames.feed(memoryview(chunk))
                    self.closed = not chunk
        return bool(self.frames.pid) and not self.closed

    def close_output(self) -> None:
        """Close the descriptors of its output."""
        os.close(self.out)
        os.close(self.err)


class _State:
    """A process that ran blocks and waits to be forked."""

    def __init__(self, pid: int, channel: socket.socket, number: int) -> None:
        self.pid, self.channel = pid, channel
        self.next_number = number + 1
        """What the next block on this state is called."""


class _Session:
    """The states of a session, and the process that was forked ahead of time for the block that is likely to be next.

    A fork costs more than a small block does, and so takes place while the parent makes up its mind.
    """

    def __init__(self, parent: ParentConnection, limits: dict[str, Any], first: _State, fork_gate: ForkGate) -> None:
        self.lost = fork_gate.descriptor < 0
        self._parent, self._limits, self._fork_gate = parent, limits, fork_gate
        self._states = {0: first}
        self._newest = 0
        """State that the last block left."""
        self._ahead: tuple[int, _RunningBlock] | None = None
        """The process that waits for a block, and the number of its state."""

    def wait_for_parent(self) -> None:
        """Wait until the parent has sent something; meanwhile agree to the fork that was ordered."""
        poller = select.poll()
        poller.register(self._parent.socket, select.POLLIN)
        poller.register(self._fork_gate.descriptor, select.POLLIN)
        while self._ahead is not None:
            happened = dict(poller.poll())
            if happened.get(self._fork_gate.descriptor, 0) & select.POLLIN:
                self._fork_gate.answer_request()
            elif self._fork_gate.descriptor in happened:
                return  # nothing that could ask is left
            if self._parent.socket.fileno() in happened:
                return

    def run_block(self, number: int, at: int, wall_s: float) -> None:
        """Run a block on a state, report how it ended, and have a process ready for the next one."""
        state = self._states[at]
        block = self._take_block_process(at)
        block.begin(wall_s)
        while not (self.lost or block.closed or block.frames.succeeded is not None or block.kill_reason):
            block.wait_for_event()
            if time.monotonic() >= block.deadline:
                block.kill_reason = "timeout"
        seconds = time.monotonic() - block.started
        succeeded = block.frames.succeeded is True and not block.kill_reason
        status = 0
        if block.kill_reason and not self.lost:
            self.lost = not block.kill()
        elif block.closed and not block.frames.pid:
            block.kill_reason = "fork"
            self.lost = _ask_state(state.channel, PING)[1]
        if block.frames.pid and not (succeeded or self.lost):
            status, self.lost = _ask_state(state.channel, REPORT_STATUS + b"%d" % block.frames.pid)
        block.close_output()
        if succeeded:
            self._states[number] = _State(block.frames.pid, block.channel, state.next_number)
            block.channel.setblocking(True)
        else:
            block.channel.close()
        state.next_number += 1
        report = {"step": number if succeeded else None, "killed": block.kill_reason, "status": status}
        finished = block.frames.succeeded is not None
        self._parent.send_json(EXIT, {**report, "seconds": seconds, "finished": finished, "lost": self.lost})
        self.lost = self.lost or block.kill_reason == "ended"
        # Who went on from where the last block ended will do so again; who went back tries something else from there.
        left = number if succeeded else at
        if not self.lost:
            self.fork_ahead(left if at == self._newest else at)
        self._newest = left

    def _take_block_process(self, at: int) -> _RunningBlock:
        """The process for a block on this state: the one that was forked ahead of time, or one that is forked now."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            forked_from, block = ahead
            # Until it was made, another process could make one in its place.
            if block.wait_until_ready() and forked_from == at:
                _allow_processes(block.frames.pid, self._count_processes())
                return block
            self._end_ahead(forked_from, block)
        return self._order_fork(at, FORK)

    def fork_ahead(self, at: int) -> None:
        """Have a process made for the next block on this state."""
        self._ahead = at, self._order_fork(at, FORK_AHEAD)

    def _order_fork(self, at: int, order: bytes) -> _RunningBlock:
        state = self._states[at]
        block = _RunningBlock(self._parent, self._fork_gate, int(self._limits["output_mb"]) << 20)
        self._fork_gate.allowed = 1
        _allow_processes(state.pid, self._count_processes())
        self.lost = self.lost or not block.start(state.channel, order + b"%d" % state.next_number)
        return block

    def _end_ahead(self, at: int, block: _RunningBlock) -> None:
        """End a process that waits for a block that does not come, or that was not made."""
        self._fork_gate.allowed = 0
        self.lost = self.lost or not (block.frames.pid or block.closed)
        if block.frames.pid:
            self.lost = self.lost or not block.kill()
            _, unheard = _ask_state(self._states[at].channel, REPORT_STATUS + b"%d" % block.frames.pid)
            self.lost = self.lost or unheard
        block.close_output()
        block.channel.close()

    def _count_processes(self) -> int:
        """How many processes the code's user may have: the states, one more, and a few for the code."""
        return len(self._states) + 1 + min(_SPARE_PROCESSES, int(self._limits["processes"]))

    def close(self) -> None:
        """Close all descriptors."""
        if self._fork_gate.descriptor >= 0:
            os.close(self._fork_gate.descriptor)
        for state in self._states.values():
            state.channel.close()
        if self._ahead is not None:
            self._ahead[1].close_output()
            self._ahead[1].channel.close()


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
    session = _Session(parent, request["limits"], _State(pid, ours, 0), fork_gate)
    if not session.lost:
        session.fork_ahead(0)
    number = 0
    while not session.lost:
        message = parent.take() if parent.forward_stream(None) else None
        if message is None:
            session.wait_for_parent()
            parent.fill()
            continue
        kind, body = message
        if kind == KILL:
            break
        if kind == BLOCK:
            number += 1
            block = json.loads(body)
            session.run_block(number, block["at"], float(block["wall_s"]))
    session.close()
    kill_descendants()
    parent.send_json(EXIT, {"session": "ended"})


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
    """Let the user of a process have `count` processes, as far as this process asks for them."""
    with contextlib.suppress(OSError):  # it has gone; the fork will show it
        hard = resource.prlimit(pid, resource.RLIMIT_NPROC)[1]
        soft = count if hard < 0 else min(count, hard)  # a hard limit never rises again
        resource.prlimit(pid, resource.RLIMIT_NPROC, (soft, hard))
