"""The fork server's connection: messages come whole, however they are cut on the way."""

from __future__ import annotations

import socket
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
