"""Frames: a 4-byte big-endian length, then that many bytes of JSON.

The parent and an untrusted child exchange them over the child's channel, whose bytes the fork server forwards (see
`messages`). What a child sends is only ever parsed as JSON of a limited length.

Frames of a child on its channel (file descriptor 3) are JSON lists whose first item is their name:

    run       ["ended", error|null]
    answer    ["loaded"] or ["failed", error]; then an answer to each of the request's calls, in order: ["value",
              encoded, null] or ["raised", error] (`encoded` is the result of `values.encode`). Without calls in the
              request it sends ["loaded", names] and continues as in `calls`
    tests     calls of the answer (see `calls`); ["test", number, records, error|null, []] for each test (see
              `roles.recorder`); at the end ["done", ...], or ["other", why, ...] if one process is needed
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
"""Default for the largest frame that is read, bytes; the reply limit applies to a child's frames."""

_encoder = json.JSONEncoder(separators=(",", ":"))


class FrameError(Exception):
    """The bytes are not a frame, or the frame is too long."""


def pack_frame(message: Any) -> bytes:
    """One frame."""
    body = encode_body(message)
    return HEADER.pack(len(body)) + body


def encode_body(message: Any) -> bytes:
    """The body of a frame, without its header."""
    # ensure_ascii escapes lone surrogates, which cannot be encoded and which model-written code may contain.
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
    """Splits a stream of bytes into frames: `feed` it any chunks, `take` complete frames."""

    def __init__(self, limit: int = MAX_FRAME) -> None:
        self._limit = limit
        self._buffer = bytearray()

    def feed(self, chunk: bytes) -> None:
        self._buffer += chunk

    def take(self) -> Any:
        """The next frame's JSON, or None if none is complete yet (a frame is never JSON null).

        Raises:
            FrameError: too long, or not JSON.
        """
        body = self.take_bytes()
        return None if body is None else unpack_frame(body)

    def take_bytes(self) -> bytes | None:
        """The undecoded bytes of the next frame, or None if none is complete yet.

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
        """Number of bytes that do not form a complete frame yet."""
        return len(self._buffer)


class FrameChannel:
    """The child's end of its channel: sends and receives frames over one descriptor, blocking."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        # Kept here, so that code that patches `os` breaks as little as possible.
        self._read, self._write, self._pack, self._unpack = os.read, os.write, pack_frame, unpack_frame
        self._frames = FrameReader()

    def send(self, message: Any) -> None:
        """Send one frame."""
        left = memoryview(self._pack(message))
        while left:
            left = left[self._write(self._descriptor, left) :]

    def receive(self) -> Any | None:
        """The next frame, or None if the other side has gone."""
        while True:
            message = self._frames.take()
            if message is not None:
                return message
            chunk = self._read(self._descriptor, 1 << 14)
            if not chunk:
                return None
            if not self._frames.pending_bytes and len(chunk) == 4 + int.from_bytes(chunk[:4], "big"):
                return self._unpack(chunk[4:])  # usually one complete frame at a time
            self._frames.feed(chunk)
