"""Frames: a 4-byte big-endian length, then that many bytes of JSON. No pickle anywhere.

The parent and an untrusted child exchange them over the child's channel, whose bytes the fork server passes on (see
`messages`). What a child says is only ever parsed as JSON of a limited length.

Frames of a child on its channel (file descriptor 3), all JSON lists whose first item names them:

    run       ["ended", error|null]
    answer    ["loaded"] or ["failed", error]; then an answer to each of the request's calls, in order: ["value",
              encoded, null] or ["raised", error] (`encoded` is what `values.encode` gives). Without calls in the
              request it says ["loaded", names] and goes on as `calls` has it
    tests     calls of the answer (see `calls`); ["test", number, records, error|null, []] for each test (see
              `roles.recorder`); at the end ["done", ...], or ["other", why, ...] where it takes one process
    together  ["loaded"] or ["failed", error]; ["test", number, records, error|null, flags, token] for each test; at the
              end ["done", class, flags, token]
    session   for each block ["ended", error|null]

`error` is {"kind", "message", "line", "traceback"}.
"""

from __future__ import annotations

import json
import os
import struct
from typing import Any

HEADER = struct.Struct(">I")
MAX_FRAME = 64 * 1024 * 1024
"""Largest frame that is read by default, bytes; a child's frames are held to the reply limit."""

_encoder = json.JSONEncoder(separators=(",", ":"))


class FrameError(Exception):
    """Bytes that are not a frame, or a frame longer than it may be."""


def pack_frame(message: Any) -> bytes:
    """One frame."""
    body = encode_body(message)
    return HEADER.pack(len(body)) + body


def encode_body(message: Any) -> bytes:
    """What a frame holds behind its header."""
    # ensure_ascii keeps lone surrogates, which model-written code may hold, out of the encoder's way.
    return _encoder.encode(message).encode("ascii")


def unpack_frame(body: bytes) -> Any:
    """The JSON of one frame.

    Raises:
        FrameError: it is not JSON, or JSON null.
    """
    try:
        message = json.loads(body.decode("ascii"))
    except (ValueError, RecursionError):
        message = None
    if message is None:
        raise FrameError("a frame that is not JSON")
    return message


class FrameReader:
    """Cuts a stream of bytes into frames; `feed` any chunk, `take` what is whole."""

    def __init__(self, limit: int = MAX_FRAME) -> None:
        self._limit = limit
        self._buffer = bytearray()

    def feed(self, chunk: bytes) -> None:
        self._buffer += chunk

    def take(self) -> Any:
        """The next frame's JSON, or None when none is whole yet (no frame is JSON null).

        Raises:
            FrameError: too long, or not JSON.
        """
        body = self.take_bytes()
        return None if body is None else unpack_frame(body)

    def take_bytes(self) -> bytes | None:
        """The next frame as bytes that nobody has read, or None when none is whole yet.

        Raises:
            FrameError: too long.
        """
        if len(self._buffer) < HEADER.size:
            return None
        (length,) = HEADER.unpack_from(self._buffer)
        if length > self._limit:
            raise FrameError(f"a frame of {length:,} bytes")
        end = HEADER.size + length
        if len(self._buffer) < end:
            return None
        with memoryview(self._buffer) as view:
            body = bytes(view[HEADER.size : end])
        del self._buffer[:end]
        return body

    @property
    def pending_bytes(self) -> int:
        """How many bytes are left that are not a whole frame."""
        return len(self._buffer)


class FrameChannel:
    """The child's end of its channel: sends and receives frames over one descriptor, blocking."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        # Held here: code that patches `os` shall harm itself as little as possible.
        self._read, self._write, self._pack, self._unpack = os.read, os.write, pack_frame, unpack_frame
        self._frames = FrameReader()

    def send(self, message: Any) -> None:
        """Send one frame."""
        left = memoryview(self._pack(message))
        while left:
            left = left[self._write(self._descriptor, left) :]

    def receive(self) -> Any | None:
        """The next frame, or None when the other side has gone."""
        while True:
            message = self._frames.take()
            if message is not None:
                return message
            chunk = self._read(self._descriptor, 1 << 14)
            if not chunk:
                return None
            if not self._frames.pending_bytes and len(chunk) == 4 + int.from_bytes(chunk[:4], "big"):
                return self._unpack(chunk[4:])  # the rule: one whole frame at a time
            self._frames.feed(chunk)
