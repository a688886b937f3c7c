"""The processes of a session that forks: the process that ran the blocks so far forks for the next one, and stays.

Such a process is a checkpoint, or state. It waits on its channel for one of two orders of the fork server: `FORK` with
a number and the four descriptors of a new process, which runs the block of that number and then becomes a checkpoint
itself; and `REPORT_STATUS` with the pid of a process that it forked. The answers are the pid of the new process (-1 if
the fork failed) and the exit status, each followed by a dot.
"""

from __future__ import annotations

import _socket
import os
import socket
import struct
import sys
from typing import Any

from foretrace.sandbox.inside import child
from foretrace.sandbox.inside.child import Confinement
from foretrace.sandbox.inside.roles import program
from foretrace.sandbox.inside.wire.frames import FrameChannel

FORK, REPORT_STATUS = b"f", b"w"
_MAX_CHECKPOINTS = 256
_DESCRIPTOR_SPACE = socket.CMSG_SPACE(4 * struct.calcsize("=i"))


def run_session(confinement: Confinement, request: dict[str, Any], descriptor: int) -> None:
    """Serve as the empty state and, in forks, as the state after each block. Never returns."""
    code = 1
    try:
        child.place_channel(descriptor)
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
            if order[:1] == REPORT_STATUS:
                _report_status(channel, int(order[1:]))
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
        child.exit_process(code)


def _open_channel() -> Any:
    """The channel of this process, as a plain socket object: the wrapper of the socket module is expensive after each
    fork, since every memory page that is written to is copied."""
    return _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM, 0, child.CHANNEL_FD)


def _report_status(channel: Any, pid: int) -> None:
    try:
        status = os.waitpid(pid, 0)[1]
    except OSError:
        status = -1
    channel.sendall(b"%d." % status)
