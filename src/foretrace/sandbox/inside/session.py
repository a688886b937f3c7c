"""A session that forks: the process that ran the blocks so far is forked for the next one, and stays as a checkpoint.

For each block, the parent sends `BLOCK` with JSON {"at", "number", "wall_s"}, then `TO_CHILD` with a frame ["block",
code], and `KEEP` when the block reports that it completed. `CANCEL` ends the running block, `FORGET` with JSON {"at",
"step"} a state, and `KILL` the session. For each block, the parent gets `STDOUT`, `STDERR`, `FROM_CHILD` (the block's
frame) and `EXIT` {"step", "killed", "status", "seconds", "cpu_s", "lost"}; at the end it gets one more `EXIT`.
This needs a pid namespace, with which all processes of the session die. Session code cannot fork: the kernel asks the
fork server about each new process, and it allows only the one that it has just ordered.

The process of a state waits on its channel for an order of the fork server: `_FORK` with a number and the four
descriptors of a new process, which runs the block of that number and then is the next state; and `_REPORT_STATUS` with
the pid of a process that it forked. It answers the pid (-1 if the fork failed) or the exit status, and a dot.
"""

from __future__ import annotations

import _socket
import contextlib
import json
import os
import select
import signal
import socket
import struct
import sys
import time
from functools import partial
from typing import Any, NamedTuple

from foretrace.sandbox.inside import child, program
from foretrace.sandbox.inside.child import Confinement
from foretrace.sandbox.inside.parent_connection import ParentConnection, kill_descendants, move_descriptor_up
from foretrace.sandbox.inside.seccomp import answer_fork_request
from foretrace.sandbox.inside.watch_child import WatchedChild
from foretrace.sandbox.inside.wire import BLOCK, EXIT, FORGET, KILL, FrameChannel

_FORK, _REPORT_STATUS = b"f", b"w"
_MAX_CHECKPOINTS = 256
_DESCRIPTOR_SPACE = socket.CMSG_SPACE(4 * struct.calcsize("=i"))
_ANSWER_S = 5.0
"""How long a process of the session gets to start or to answer."""
_KEEP_WAIT_S = 0.5
"""How much longer than its limit a block may wait to be kept: less than the parent waits for the block."""


class _State(NamedTuple):
    """A process that has run blocks and waits to be forked."""

    pid: int
    channel: Any

    def ask(self, order: bytes) -> int | None:
        """The number with which it answers an order; None without an answer."""
        answer = b""
        try:
            self.channel.settimeout(_ANSWER_S)
            self.channel.sendall(order)
            while not answer.endswith(b"."):
                if not (chunk := self.channel.recv(16)) or len(answer) > 16:
                    return None
                answer += chunk
            return int(answer[:-1])
        except (OSError, ValueError):
            return None


class _Session:
    def __init__(self, parent: ParentConnection, limits: dict[str, Any], first: _State, fork_requests: int) -> None:
        self._parent, self._limits, self._fork_requests = parent, limits, fork_requests
        self._states = {0: first}
        self._steps = 0
        self.lost = fork_requests < 0

    def run_block(self, at: int, number: int, wall_s: float) -> None:
        """Run a block on the state `at`, and report how it ended. Its file name has the number."""
        self._steps += 1
        state, requests = self._states[at], self._fork_requests
        block = WatchedChild(self._parent, self._limits, wall_s, _KEEP_WAIT_S)
        pid, status, cpu_s = self._fork(state, number, block.theirs), 0, 0.0
        if pid is None or pid < 0:
            self.lost, block.kill_reason = pid is None, "fork"
            block.close_theirs()
        else:
            block.begin(pid)
            block.watch(block.has_gone, others={requests: partial(answer_fork_request, requests)})
            cpu_s = block.read_cpu_s()  # before it is reaped
            if not block.is_kept:
                answer = state.ask(_REPORT_STATUS + b"%d" % pid)
                status, self.lost = answer or 0, answer is None
        block.finish()
        if block.is_kept:
            block.channel.setblocking(True)
            self._states[self._steps] = _State(block.pid, block.channel)
        else:
            block.channel.close()
        report = {"step": self._steps if block.is_kept else None, "killed": block.kill_reason, "status": status}
        times = {"seconds": time.monotonic() - block.started, "cpu_s": cpu_s}
        self._parent.send_json(EXIT, {**report, **times, "lost": self.lost})
        self.lost = self.lost or block.kill_reason == "ended"

    def _fork(self, state: _State, number: int, theirs: tuple[int, ...]) -> int | None:
        """Have the process of a state fork for a block; return the new pid, -1 if it failed, None without an answer."""
        null = os.open("/dev/null", os.O_RDONLY)
        try:
            socket.send_fds(state.channel, [_FORK + b"%d" % number], [null, *theirs])
        except OSError:
            return None
        finally:
            os.close(null)
        poller = select.poll()
        poller.register(self._fork_requests, select.POLLIN)
        if poller.poll(_ANSWER_S * 1000):
            answer_fork_request(self._fork_requests, allow=True)
        return state.ask(b"")

    def forget(self, at: int, step: int) -> None:
        """End the state `step`, which was forked from the state `at`."""
        state = self._states.pop(step)
        with contextlib.suppress(OSError):
            os.kill(state.pid, signal.SIGKILL)
        state.channel.close()
        self.lost = self._states[at].ask(_REPORT_STATUS + b"%d" % state.pid) is None  # which reaps it

    def close(self) -> None:
        if self._fork_requests >= 0:
            os.close(self._fork_requests)
        for state in self._states.values():
            state.channel.close()


def serve_session(parent: ParentConnection, confinement: Confinement, request: dict[str, Any]) -> None:
    """Serve one session until the parent ends it; none of its processes is left then."""
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        _be_state(confinement, request, theirs.fileno())
    theirs.close()
    ours.settimeout(_ANSWER_S)
    try:
        fork_requests = move_descriptor_up(socket.recv_fds(ours, 1, 1)[1][0])
    except (OSError, IndexError):
        fork_requests = -1
    session = _Session(parent, request["limits"], _State(pid, ours), fork_requests)
    while not session.lost:
        message = parent.take() if parent.forward_stream(None) else None
        if message is None:
            parent.fill()
            continue
        kind, body = message
        if kind == KILL:
            break
        if kind == BLOCK:
            session.run_block(**json.loads(body))
        elif kind == FORGET:
            session.forget(**json.loads(body))
    session.close()
    kill_descendants()
    parent.send_json(EXIT, {"session": "ended"})


# In the processes of the session.


def _be_state(confinement: Confinement, request: dict[str, Any], descriptor: int) -> None:
    """Serve as the empty state and, in forks, as the state after each block. Never returns."""
    code = 1
    try:
        null = os.open("/dev/null", os.O_RDWR)
        child.place_descriptors((null, null, null, descriptor))
        rlimits = child.make_rlimits(request["limits"], confinement, checkpoints=_MAX_CHECKPOINTS)
        fork_requests = child.enter_confinement(confinement, rlimits, forks=True)
        channel = _open_channel()
        socket.send_fds(channel, [b"a"], [fork_requests])
        os.close(fork_requests)
        namespace = program.main_module()
        threading: Any = sys.modules["threading"]
        logging: Any = sys.modules["logging"]
        while True:
            order, beside, _, _ = channel.recvmsg(64, _DESCRIPTOR_SPACE)
            if not order:
                code = 0
                break
            if order[:1] == _REPORT_STATUS:
                channel.sendall(b"%d." % _reap(int(order[1:])))
                continue
            descriptors = [number for *_, part in beside for (number,) in struct.iter_unpack("=i", part)]
            has_threads = len(sys._current_frames()) > 1  # type: ignore[attr-defined]
            try:
                pid = os.fork()
            except OSError:
                pid = -1
            if pid:
                for descriptor in descriptors:
                    os.close(descriptor)
                channel.sendall(b"%d." % pid)
                continue
            if has_threads:  # threads of earlier blocks, which a fork does not have
                threading._after_fork()
                logging._after_at_fork_child_reinit_locks()
            channel.detach()
            child.place_descriptors(tuple(descriptors))
            for descriptor in descriptors:
                os.close(descriptor)
            frames = FrameChannel(child.CHANNEL_FD)
            message = frames.receive()
            if message is None or not program.run_block(frames, message[1], int(order[1:]), namespace):
                break
            channel = _open_channel()
    finally:
        program.exit_process(code)


def _open_channel() -> Any:
    # A plain socket object: the wrapper of the socket module is expensive after each fork, since every memory page that
    # is written to is copied.
    return _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM, 0, child.CHANNEL_FD)


def _reap(pid: int) -> int:
    try:
        return os.waitpid(pid, 0)[1]
    except OSError:
        return -1
