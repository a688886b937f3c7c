"""The fork server's connection: messages however they are cut, what it leaves without a parent, and forks."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from foretrace.sandbox.inside.parent_connection import MESSAGE_HEADER, ParentConnection


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, ParentConnection]]:
    """The parent's end and the fork server's."""
    parent, theirs = socket.socketpair()
    parent.settimeout(5)
    with theirs:
        yield parent, ParentConnection(theirs.fileno(), theirs.fileno())
    parent.close()


def message(kind: bytes, body: bytes) -> bytes:
    return MESSAGE_HEADER.pack(kind, len(body)) + body


@pytest.mark.parametrize("step", [1, 3, 7, 1000])
def test_messages_come_whole_wherever_they_are_cut(ends: tuple[socket.socket, ParentConnection], step: int) -> None:
    parent, control = ends
    wanted = [(b"C", b"{}"), (b"K", b""), (b"R", b"x" * 40), (b"B", b"[1]")]
    data = b"".join(message(*one) for one in wanted)
    found = []
    for at in range(0, len(data), step):
        parent.sendall(data[at : at + step])
        control.fill()
        while (one := control.take()) is not None:
            found.append(one)
    assert found == wanted and control.take() is None


LEAVES = """
import os, signal, sys
from foretrace.sandbox.inside.parent_connection import ParentConnection
import socket
parent, theirs = socket.socketpair()
control = ParentConnection(theirs.fileno(), theirs.fileno())
control.scratch = sys.argv[1]
pids = []
for _ in range(3):
    pids.append(os.fork())
    if pids[-1] == 0:
        parent.close()
        os.setsid()
        signal.pause()
print(*pids, flush=True)
if sys.argv[2] == "unread":
    control.send_json(b"A", {})
parent.close()
control.receive()
print("still here")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="children are found in /proc")
@pytest.mark.parametrize("how", ["read", "unread"])
def test_without_a_parent_it_leaves_nothing(tmp_path: object, how: str) -> None:
    folder = f"{tmp_path}/scratch"
    os.makedirs(f"{folder}/below")
    done = subprocess.run([sys.executable, "-c", LEAVES, folder, how], capture_output=True, text=True, timeout=120)
    (line,) = done.stdout.splitlines()
    assert done.returncode == 0 and not os.path.exists(folder), done.stderr
    pids = line.split()
    assert len(pids) == 3 and [pid for pid in pids if os.path.exists(f"/proc/{pid}")] == []


FORKS = """
import json, os, signal, socket, sys
from foretrace.sandbox.inside import syscalls
from foretrace.sandbox.inside.seccomp import SeccompFilter, answer_fork_request, make_child_program
ours, theirs = socket.socketpair()
child = os.fork()
if child == 0:
    syscalls.call("prctl", syscalls.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    filter = SeccompFilter(make_child_program(metadata=True, forks=True), notifies=True)
    socket.send_fds(theirs, [b"a"], [filter.install(os.getpid())])
    while theirs.recv(1):
        try:
            made = os.fork()
        except PermissionError:
            theirs.sendall(b"n")
            continue
        if made == 0:
            try:
                os.fork()  # who was allowed to be made is not thereby allowed to make
            except PermissionError:
                os._exit(7)
            os._exit(0)
        theirs.sendall(bytes([os.waitstatus_to_exitcode(os.waitpid(made, 0)[1])]))
    os._exit(0)
theirs.close()
requests = socket.recv_fds(ours, 1, 1)[1][0]
said = []
for answers in ([False], [True, False], [False], [True, True]):
    ours.sendall(b"g")
    for allow in answers:
        answer_fork_request(requests, allow=allow)
    said.append(ours.recv(1).hex())
ours.sendall(b"g")
import select
select.select([requests], [], [])
os.kill(child, signal.SIGKILL)
os.waitpid(child, 0)
answer_fork_request(requests)  # of one who has gone
print(json.dumps(said))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="seccomp is Linux's")
def test_only_as_many_forks_as_are_allowed() -> None:
    done = subprocess.run([sys.executable, "-c", FORKS], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    # Refused; made, and its own fork refused; refused again; made, with a fork of its own.
    assert json.loads(done.stdout) == ["6e", "07", "6e", "00"]
