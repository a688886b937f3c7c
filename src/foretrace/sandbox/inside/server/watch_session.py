"""A session that forks: order a fork for each block, watch it, and at the end kill and reap all processes.

For each block, the parent sends `BLOCK` with JSON {"at", "number", "wall_s"}, then `TO_CHILD` with a frame ["block",
code], and `KEEP` when the block reports that it completed. `CANCEL` ends the running block, `FORGET` with JSON {"at",
"step"} a state, and `KILL` the session. For each block, the parent gets `STDOUT`, `STDERR`, `FROM_CHILD` (the block's
frame) and `EXIT` {"step", "killed", "status", "seconds", "cpu_s", "lost"}; at the end it gets one more `EXIT`.
This needs a pid namespace, with which all processes of the session die. Session code cannot fork: the kernel asks the
fork server about each new process, and it allows only the one that it has just ordered.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import time
from typing import Any, NamedTuple

from foretrace.sandbox.inside.child import Confinement
from foretrace.sandbox.inside.confine.seccomp import ForkGate
from foretrace.sandbox.inside.roles.session import FORK, REPORT_STATUS, run_session
from foretrace.sandbox.inside.server.parent_connection import ParentConnection, kill_descendants, move_descriptor_up
from foretrace.sandbox.inside.server.watch_child import WatchedChild
from foretrace.sandbox.inside.wire.messages import BLOCK, EXIT, FORGET, KILL

_ANSWER_S = 5.0
"""How long a process of the session gets to start or to answer."""
_KEEP_WAIT_S = 0.5
"""How much longer than its limit a block may wait to be kept: less than the parent waits for the block."""


class _State(NamedTuple):
    """A process that has run blocks and waits to be forked."""

    pid: int
    channel: Any


class _Session:
    """The states of a session."""

    def __init__(self, parent: ParentConnection, limits: dict[str, Any], first: _State, fork_gate: ForkGate) -> None:
        self._parent, self._limits, self._fork_gate = parent, limits, fork_gate
        self._states = {0: first}
        self.lost = fork_gate.descriptor < 0

    def run_block(self, step: int, at: int, number: int, wall_s: float) -> None:
        """Run a block on the state `at`, and report how it ended.

        Args:
            step: Number of the new state.
            number: The number in the block's file name.
        """
        state, gate = self._states[at], self._fork_gate
        block = WatchedChild(self._parent, self._limits, wall_s, _KEEP_WAIT_S)
        pid, status, cpu_s = self._fork(state, number, block.theirs), 0, 0.0
        if pid is None or pid < 0:
            self.lost, block.kill_reason = pid is None, "fork"
            block.close_theirs()
        else:
            block.begin(pid, reads_at_once=True)
            block.watch(block.has_gone, others={gate.descriptor: gate.answer_request})
            cpu_s = block.read_cpu_s()  # before it is reaped
            if not block.is_kept:
                answer = _ask(state, REPORT_STATUS + b"%d" % pid)
                status, self.lost = answer or 0, answer is None
        block.finish()
        if block.is_kept:
            block.channel.setblocking(True)
            self._states[step] = _State(block.pid, block.channel)
        else:
            block.channel.close()
        report = {"step": step if block.is_kept else None, "killed": block.kill_reason, "status": status}
        times = {"seconds": time.monotonic() - block.started, "cpu_s": cpu_s}
        self._parent.send_json(EXIT, {**report, **times, "lost": self.lost})
        self.lost = self.lost or block.kill_reason == "ended"

    def _fork(self, state: _State, number: int, theirs: tuple[int, ...]) -> int | None:
        """Have the process of a state fork for a block; return the new pid, -1 if it failed, None without an answer."""
        null = os.open("/dev/null", os.O_RDONLY)
        try:
            socket.send_fds(state.channel, [FORK + b"%d" % number], [null, *theirs])
        except OSError:
            return None
        finally:
            os.close(null)
        poller = select.poll()
        poller.register(self._fork_gate.descriptor, select.POLLIN)
        if poller.poll(_ANSWER_S * 1000):
            self._fork_gate.answer_request(allow=True)
        return _ask(state, b"")

    def forget(self, at: int, step: int) -> None:
        """End the state `step`, which was forked from the state `at`."""
        state = self._states.pop(step)
        with contextlib.suppress(OSError):
            os.kill(state.pid, signal.SIGKILL)
        state.channel.close()
        self.lost = _ask(self._states[at], REPORT_STATUS + b"%d" % state.pid) is None  # which reaps it

    def close(self) -> None:
        """Close all descriptors."""
        if self._fork_gate.descriptor >= 0:
            os.close(self._fork_gate.descriptor)
        for state in self._states.values():
            state.channel.close()


def serve_session(parent: ParentConnection, confinement: Confinement, request: dict[str, Any]) -> None:
    """Serve one session until the parent ends it; none of its processes is left then."""
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        run_session(confinement, request, theirs.fileno())
    theirs.close()
    ours.settimeout(_ANSWER_S)
    try:
        fork_gate = ForkGate(move_descriptor_up(socket.recv_fds(ours, 1, 1)[1][0]))
    except (OSError, IndexError):
        fork_gate = ForkGate(-1)
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


def _ask(state: _State, order: bytes) -> int | None:
    """The number with which the process of a state answers an order (sent with a final dot); None without an answer."""
    answer = b""
    try:
        state.channel.settimeout(_ANSWER_S)
        state.channel.sendall(order)
        while not answer.endswith(b"."):
            if not (chunk := state.channel.recv(16)) or len(answer) > 16:
                return None
            answer += chunk
        return int(answer[:-1])
    except (OSError, ValueError):
        return None
