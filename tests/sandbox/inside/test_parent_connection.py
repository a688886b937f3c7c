"""The fork server's connection: messages however they are cut, streams, memory that children do not get, and forks."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from foretrace.sandbox.inside.server.parent_connection import (
    MESSAGE_HEADER,
    TIMESTAMP,
    ParentConnection,
    make_wiped_memory,
    read_input,
)

LONG = bytes(range(256)) * 12_000
"""More than a connection keeps at one time."""


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, ParentConnection]]:
    """The parent's end and the fork server's."""
    parent, theirs = socket.socketpair()
    control = ParentConnection(theirs.detach())
    parent.settimeout(5)
    yield parent, control
    parent.close()
    control.socket.close()


def message(kind: bytes, body: bytes) -> bytes:
    return MESSAGE_HEADER.pack(kind, len(body)) + body


def sent(parent: socket.socket) -> list[tuple[bytes, bytes]]:
    """The messages that came to the parent."""
    parent.setblocking(False)
    data, found = b"", []
    try:
        while chunk := parent.recv(1 << 20):
            data += chunk
    except BlockingIOError:
        pass
    while data:
        kind, length = MESSAGE_HEADER.unpack_from(data)
        found.append((kind, data[MESSAGE_HEADER.size : MESSAGE_HEADER.size + length]))
        data = data[MESSAGE_HEADER.size + length :]
    return found


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


def test_many_messages_go_through_a_small_memory(ends: tuple[socket.socket, ParentConnection]) -> None:
    """More than it holds: what is left at its end is moved to its beginning."""
    parent, control = ends
    parent.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 21)
    bodies = [bytes([n]) * 400_001 for n in range(12)]
    data = b"".join(message(b"R", body) for body in bodies)
    got: list[tuple[bytes, bytes]] = []
    for at in range(0, len(data), 70_000):
        parent.sendall(data[at : at + 70_000])
        control.fill()
        while (one := control.take()) is not None:
            got.append(one)
    while len(got) < len(bodies):
        got.append(control.receive())
    assert got == [(b"R", body) for body in bodies]


def test_a_stream_is_passed_on_as_it_comes(ends: tuple[socket.socket, ParentConnection]) -> None:
    parent, control = ends
    reader, writer = socket.socketpair()
    writer.setblocking(False)
    data = message(b"S", LONG) + message(b"K", b"")
    got, stuck = b"", False
    parent.setblocking(False)
    while data or control.stream_left or len(got) < len(LONG):
        with contextlib.suppress(BlockingIOError):
            data = data[parent.send(data) :] if data else data
        if not control.stream_blocked:
            control.fill()
        if not control.stream_left and not got:
            assert control.take() == (b"S", b"") and control.stream_left == len(LONG)
        if control.stream_left:
            assert control.take() is None  # one thing after the other
        done = control.forward_stream(writer.fileno())
        stuck = stuck or control.stream_blocked
        assert done == (not control.stream_left)
        if control.stream_blocked or done:
            got += reader.recv(1 << 20)
    assert got == LONG and stuck
    assert control.receive() == (b"K", b"")
    reader.close()
    writer.close()


@pytest.mark.parametrize("to", ["nobody", "a closed end"])
def test_a_stream_that_nobody_reads_is_thrown_away(ends: tuple[socket.socket, ParentConnection], to: str) -> None:
    parent, control = ends
    reader, writer = socket.socketpair()
    reader.close()
    parent.sendall(message(b"S", b"x" * 100_000) + message(b"K", b""))
    assert control.receive() == (b"S", b"")
    while not control.forward_stream(None if to == "nobody" else writer.fileno()):
        control.fill()
    assert control.receive() == (b"K", b"")
    writer.close()


def test_input_can_be_read_from_its_beginning(ends: tuple[socket.socket, ParentConnection]) -> None:
    parent, control = ends
    parent.sendall(message(b"I", b"x" * 90_000))
    assert control.receive() == (b"I", b"")
    handle = read_input(control)
    assert os.read(handle, 100_000) == b"x" * 90_000
    os.close(handle)


def test_what_is_read_goes_to_the_parent_in_order(ends: tuple[socket.socket, ParentConnection]) -> None:
    parent, control = ends
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    assert control.queue_from(reader, b"O") is None
    os.write(writer, b"one")
    assert bytes(control.queue_from(reader, b"O") or b"") == b"one"
    os.write(writer, b"two")
    assert bytes(control.queue_from(reader, b"D", 1.5) or b"") == b"two"
    assert sent(parent) == []
    os.close(writer)
    assert control.queue_from(reader, b"O") == b""
    control.send_json(b"X", {"status": 0})
    wanted = [(b"O", b"one"), (b"D", TIMESTAMP.pack(1.5) + b"two"), (b"X", b'{"status": 0}')]
    assert sent(parent) == wanted
    os.close(reader)


def test_more_than_the_memory_holds_is_sent_in_between(ends: tuple[socket.socket, ParentConnection]) -> None:
    parent, control = ends
    parent.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 23)
    control.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 23)
    reader, writer = os.pipe()
    got: list[tuple[bytes, bytes]] = []
    for n in range(40):
        os.write(writer, bytes([n]) * 60_000)
        control.queue_from(reader, b"E")
        got += sent(parent)
    control.flush()
    got += sent(parent)
    assert got == [(b"E", bytes([n]) * 60_000) for n in range(40)]
    os.close(reader)
    os.close(writer)


@pytest.mark.skipif(sys.platform != "linux", reason="Linux wipes memory on a fork")
def test_a_forked_child_finds_zeros(ends: tuple[socket.socket, ParentConnection]) -> None:
    memory, wiped = make_wiped_memory()
    plain = bytearray(b"secret")
    memory[:6] = plain
    parent, control = ends
    parent.sendall(message(b"R", b"told") + message(b"S", b"more"))
    control.fill()
    control.queue_from(_pipe(b"said"), b"O")
    pid = os.fork()
    if pid == 0:
        clean = not any(memory) and not any(control._in) and not any(control._out)
        os._exit(0 if clean and plain == b"secret" else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0 and wiped and control.wiped
    assert bytes(memory[:6]) == b"secret" and control.take() == (b"R", b"told") and b"said" in bytes(control._out[:40])


def _pipe(data: bytes) -> int:
    reader, writer = os.pipe()
    os.write(writer, data)
    os.close(writer)
    return reader


LEAVES = """
import os, signal, sys
from foretrace.sandbox.inside.server.parent_connection import ParentConnection
import socket
parent, theirs = socket.socketpair()
control = ParentConnection(theirs.detach())
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
from foretrace.sandbox.inside.confine import syscalls
from foretrace.sandbox.inside.confine.seccomp import ForkGate, SeccompFilter, make_child_program
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
gate = ForkGate(socket.recv_fds(ours, 1, 1)[1][0])
said = []
for allowed, questions in ((0, 1), (1, 2), (0, 1), (2, 2)):
    gate.allowed = allowed
    ours.sendall(b"g")
    for _ in range(questions):
        gate.answer_request()
    said.append([ours.recv(1).hex(), gate.allowed])
gate.allowed = 1
ours.sendall(b"g")
import select
select.select([gate.descriptor], [], [])
os.kill(child, signal.SIGKILL)
os.waitpid(child, 0)
gate.answer_request()  # of one who has gone
said.append(gate.allowed)
print(json.dumps(said))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="seccomp is Linux's")
def test_only_as_many_forks_as_are_allowed() -> None:
    done = subprocess.run([sys.executable, "-c", FORKS], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    # Refused; made, and its own fork refused; refused again; made, with a fork of its own.
    assert json.loads(done.stdout) == [["6e", 0], ["07", 0], ["6e", 0], ["00", 0], 1]
