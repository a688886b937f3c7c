"""Reads one line of a stream of server-sent events."""

from __future__ import annotations

DONE = b"[DONE]"


def sse_data(line: bytes) -> bytes | None:
    """The JSON of one event's line; None for lines without any, `[DONE]` among them.

    Every server writes an event on one line. A line that begins with neither a field nor a comment is given back as it
    is, so that the reader of JSON names what came instead.
    """
    if line.startswith(b"data:"):
        data = line[5:].strip()
        return None if data in (DONE, b"") else data
    if line.startswith(b"error:"):  # llama.cpp before 2025 writes errors in a field of their own
        return b'{"error":' + (line[6:].strip() or b"null") + b"}"
    if line.startswith((b":", b"event:", b"id:", b"retry:")):
        return None
    return line
