"""What goes over the wires: messages between the parent and a fork server, and frames between the parent and a child.

A message is a kind (one byte), a length (4 bytes, big-endian), and that many bytes. A frame is a 4-byte big-endian
length and that many bytes of JSON; the fork server forwards the bytes of a child's channel (descriptor 3) unread. What
a child sends is only ever parsed as JSON of a limited length. Frames are lists whose first item is their name:

    run       ["ended", error|null]
    answer    ["loaded"] or ["failed", error]; then for each call of the request ["value", encoded, null] or ["raised",
              error]. Without calls in the request: ["loaded", names], and then as in `calls`
    tests     calls of the answer (see `calls`); ["test", number, records, errors, []] for each test (see `recorder`);
              at the end ["done", ...], or ["other", why, ...] if one process is needed
    together  ["loaded"] or ["failed", error]; ["test", number, records, errors, flags, token] for each test; at the end
              ["done", class, flags, token]
    session   for each block ["ended", error|null]

`error` is {"kind", "message", "line", "traceback"} (see `describe_error`); one of `errors` may name the function or
class that raised it as its "test".
"""

from __future__ import annotations

import json
import os
import struct
import traceback
from typing import Any

MESSAGE_HEADER = struct.Struct(">cI")
"""Kind and length."""
TIMESTAMP = struct.Struct(">d")
"""Seconds since the child's start, at the beginning of each `FROM_CHILD` message."""

# From the parent. STDIN: what the next run reads. RUN: fork a child for a run, or start a session. BLOCK: run a block
# of the session. KEEP: the running block is a state from now on. CANCEL: end the running block. FORGET: end a state on
# which no other block ran. TO_CHILD: bytes for the child's channel. KILL: end the run or the session.
CONFIGURE, STDIN, RUN, BLOCK, KEEP, CANCEL, FORGET, TO_CHILD, KILL = (bytes([kind]) for kind in b"CIRBPQGSK")
# To the parent: facts about the fork server, or why it cannot start; bytes of the child; how the run, block or session
# ended.
READY, FAILED, FROM_CHILD, STDOUT, STDERR, EXIT = (bytes([kind]) for kind in b"AFDOEX")

ANSWER_MODULE = "solution"
"""The module as which the answer's code runs."""
HEADER = struct.Struct(">I")
MAX_FRAME = 64 * 1024 * 1024
"""Default for the largest frame that is read, bytes; the reply limit applies to a child's frames."""
_encoder = json.JSONEncoder(separators=(",", ":"))


class FrameError(Exception):
    """The bytes are not a frame, or the frame is too long."""


def pack_frame(message: Any) -> bytes:
    """One frame. (`ensure_ascii` escapes lone surrogates, which code may contain and which cannot be encoded.)"""
    body = _encoder.encode(message).encode("ascii")
    return HEADER.pack(len(body)) + body


def unpack_frame(body: bytes) -> Any:
    """The JSON of one frame; raises FrameError if it is none, or null."""
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
        """The next frame's JSON, or None if none is complete yet; raises FrameError."""
        body = self.take_bytes()
        return None if body is None else unpack_frame(body)

    def take_bytes(self) -> bytes | None:
        """The undecoded bytes of the next frame, or None if none is complete; raises FrameError if it is too long."""
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
        return len(self._buffer)


class FrameChannel:
    """The child's end of its channel: sends and receives frames over one descriptor, blocking."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        # Kept here, since code may patch `os`, and must not easily put something in the place of its own reports.
        self._read, self._write, self._pack = os.read, os.write, pack_frame
        self._frames = FrameReader()

    def send(self, message: Any) -> None:
        left = memoryview(self._pack(message))
        while left:
            left = left[self._write(self._descriptor, left) :]

    def receive(self) -> Any | None:
        while (message := self._frames.take()) is None:
            if not (chunk := self._read(self._descriptor, 1 << 14)):
                return None
            self._frames.feed(chunk)
        return message


# Exceptions, described for the author of the code in bounded size, whatever their methods do.

_MESSAGE, _FRAMES, _TRACEBACK = 500, 12, 2000


def describe_error(error: BaseException) -> dict[str, Any]:
    """Kind, message (500 characters), line (1-based) and traceback (2,000 characters) of `error`.

    Only frames of untrusted code are included; they are recognized by their relative file names.
    """
    try:
        message = str(error.msg if isinstance(error, SyntaxError) else error)[:_MESSAGE]
    except BaseException as again:
        message = f"(its text raised {_describe_kind(again)})"
    try:
        line, shown = _describe_place(error)
    except BaseException:
        line, shown = None, ""
    return {"kind": _describe_kind(error), "message": message, "line": line, "traceback": shown[:_TRACEBACK]}


def _describe_kind(error: BaseException) -> str:
    try:
        return str(type.__getattribute__(type(error), "__name__"))[:100]
    except BaseException:
        return "Exception"


def _describe_place(error: BaseException) -> tuple[int | None, str]:
    if isinstance(error, SyntaxError) and error.lineno is not None and not os.path.isabs(error.filename or ""):
        return int(error.lineno), "".join(traceback.format_exception_only(type(error), error))
    frames: list[tuple[Any, int]] = []
    step = error.__traceback__
    while step is not None:
        if not os.path.isabs(step.tb_frame.f_code.co_filename):
            frames.append((step.tb_frame.f_code, step.tb_lineno))
        step = step.tb_next
    shown = [f'  File "{code.co_filename}", line {line}, in {code.co_name}' for code, line in frames[-_FRAMES:]]
    if len(frames) > _FRAMES:
        shown.insert(0, f"  ... {len(frames) - _FRAMES} more frames")
    return (frames[-1][1] if frames else None), "\n".join(shown)
