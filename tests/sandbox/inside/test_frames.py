"""Frames and messages: what goes in comes out, however it is cut; what is none is said to be none."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrace.sandbox.inside.parent_connection import MESSAGE_HEADER, ParentConnection
from foretrace.sandbox.inside.wire import FrameError, FrameReader, pack_frame

scalars = st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(st.characters())
messages = st.recursive(
    scalars, lambda inner: st.lists(inner | st.none()) | st.dictionaries(st.text(), inner | st.none()), max_leaves=20
)


def everything(frames: FrameReader) -> list[Any]:
    found: list[Any] = []
    while (message := frames.take()) is not None:
        found.append(message)
    return found


@given(st.lists(messages, max_size=6), st.lists(st.integers(0, 40), max_size=30))
def test_any_messages_cut_anywhere(given_: list[Any], cuts: list[int]) -> None:
    data = b"".join(pack_frame(m) for m in given_)
    frames, found = FrameReader(), []
    for cut in [*cuts, len(data)]:
        frames.feed(data[:cut])
        data = data[cut:]
        found += everything(frames)
    assert found == given_ and frames.pending_bytes == 0


@given(st.binary(max_size=40))
def test_any_bytes_give_messages_or_one_kind_of_error(data: bytes) -> None:
    frames = FrameReader(1000)
    frames.feed(data)
    try:
        assert all(m is not None for m in everything(frames))
    except FrameError:
        frames = FrameReader(1000)


def test_the_limit_is_kept_before_the_bytes_are() -> None:
    frames = FrameReader(100)
    frames.feed((101).to_bytes(4, "big"))
    with pytest.raises(FrameError, match="101"):
        frames.take()
    exact = FrameReader(100)
    exact.feed(pack_frame("x" * 98))
    assert exact.take() == "x" * 98


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
