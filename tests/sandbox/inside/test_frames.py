"""Frames: what goes in comes out, however it is cut; what is not a frame is said to be none."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
