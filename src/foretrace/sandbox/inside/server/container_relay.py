"""The first process of a container: carries bytes between the engine's pipes and a fork server's socket.

An engine gives a container two pipes, where the fork server wants one socket. When either side ends, so does this
process, and with it the container and all that runs there.
"""

from __future__ import annotations

import os
import socket
import sys

from foretrace.sandbox.inside.confine import syscalls
from foretrace.sandbox.inside.server import fork_server
from foretrace.sandbox.inside.server.parent_connection import CHUNK_SIZE


def main(archive: str) -> None:
    """Start the fork server and carry bytes until one side ends.

    Args:
        archive: the file that these modules were imported from; it is removed, since code may look around here.
    """
    folder = os.path.dirname(archive)
    if not os.path.ismount(folder) or os.listdir(folder) != [os.path.basename(archive)]:
        sys.exit(f"{folder} is not a fresh folder of a container")  # it will be emptied after each run
    sys.path.remove(archive)
    sys.path_importer_cache.pop(archive, None)
    os.unlink(archive)
    ours, theirs = socket.socketpair()
    if os.fork() == 0:
        ours.close()
        os.dup2(theirs.fileno(), 0)
        theirs.close()
        fork_server.main()
    theirs.close()
    if sys.platform == "linux":
        syscalls.call("prctl", syscalls.PR_SET_DUMPABLE, 0, 0, 0, 0)  # the fork server's children have the same user
    import threading  # not where the fork server is: it is to have no part in its forks (see `preload`)

    # Two threads, since each direction may have to wait for the other side while the other one goes on.
    threading.Thread(target=_copy_to_server, args=(ours,), daemon=True).start()
    _copy_from_server(ours)


def _copy_to_server(server: socket.socket) -> None:
    try:
        while chunk := os.read(0, CHUNK_SIZE):
            server.sendall(chunk)
    finally:
        os._exit(0)


def _copy_from_server(server: socket.socket) -> None:
    try:
        while chunk := server.recv(CHUNK_SIZE):
            left = memoryview(chunk)
            while left:
                left = left[os.write(1, left) :]
    finally:
        os._exit(1)
