"""The processes of a session that forks: the one that ran the blocks so far is forked for the next one, and stays.

Such a process is a checkpoint, or state. It waits on its channel for one of three orders of the session supervisor:
`FORK` with the four descriptors of a new process, which runs a block and is a checkpoint itself afterwards; `PING`;
and `REPORT_STATUS` with the pid of a process that it forked. The last two are answered with a number and a dot.
"""

from __future__ import annotations

import os
import socket
import sys
from typing import Any

from foretrace.sandbox.inside import child
from foretrace.sandbox.inside.child import Confinement
from foretrace.sandbox.inside.roles import program
from foretrace.sandbox.inside.wire.frames import FrameChannel

FORK, PING, REPORT_STATUS = b"f", b"p", b"w"
_MAX_CHECKPOINTS = 512


def run_session(confinement: Confinement, request: dict[str, Any], descriptor: int) -> None:
    """Be the empty state, then, in forks, the state after each block. Never returns."""
    code = 1
    try:
        child.place_channel(descriptor)
        rlimits = child.make_rlimits(request["limits"], confinement, checkpoints=_MAX_CHECKPOINTS)
        fork_requests = child.enter_confinement(confinement, rlimits, forks=True)
        channel: Any = socket.socket(fileno=child.CHANNEL_FD)
        socket.send_fds(channel, [b"a"], [fork_requests])
        os.close(fork_requests)
        namespace = program.main_module()
        number = 0
        while True:
            order, descriptors, _, _ = socket.recv_fds(channel, 64, 4)
            if not order:
                code = 0
                break
            if order[:1] == PING:
                channel.sendall(b"0.")
                continue
            if order[:1] == REPORT_STATUS:
                _report_status(channel, int(order[1:]))
                continue
            number += 1
            try:
                pid = os.fork()
            except OSError:
                pid = -1  # the channel that is closed now says so
            if pid:
                for descriptor in descriptors:
                    os.close(descriptor)
                continue
            sys.modules["threading"]._after_fork()  # type: ignore[attr-defined]  # threads of earlier blocks are not here
            channel.detach()
            child.place_descriptors(tuple(descriptors))  # type: ignore[arg-type]
            for descriptor in descriptors:
                os.close(descriptor)
            frames = FrameChannel(child.CHANNEL_FD)
            frames.send(["ready", os.getpid()])
            message = frames.receive()
            if message is None or not program.run_block(frames, message[1], number, namespace):
                break
            channel = socket.socket(fileno=child.CHANNEL_FD)
    finally:
        child.exit_process(code)


def _report_status(channel: Any, pid: int) -> None:
    try:
        status = os.waitpid(pid, 0)[1]
    except OSError:
        status = -1
    channel.sendall(b"%d." % status)
