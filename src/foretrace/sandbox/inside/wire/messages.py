"""Messages between the parent and a fork server: a kind (one byte), a length (4 bytes, big-endian), that many bytes."""

from __future__ import annotations

import struct

MESSAGE_HEADER = struct.Struct(">cI")
"""Kind and length."""
TIMESTAMP = struct.Struct(">d")
"""Seconds since the child's start, at the beginning of each `FROM_CHILD` message."""

# From the parent.
CONFIGURE = b"C"
"""JSON: how the fork server is to be set up. The first message."""
STDIN = b"I"
"""What the next run reads from stdin."""
RUN = b"R"
"""JSON: fork a child for a run, or begin a session."""
BLOCK = b"B"
"""JSON: run a block of the session."""
KEEP = b"P"
"""The block that runs has come to its end: its process is a state from now on."""
CANCEL = b"Q"
"""End the block that runs, and leave the session as it was before it."""
FORGET = b"G"
"""JSON: end a state of the session on which nothing was built."""
TO_CHILD = b"S"
"""Bytes for the child's channel."""
KILL = b"K"
"""End the run or the session."""

# To the parent.
READY = b"A"
"""JSON: the fork server is ready, and this is how it is set up."""
FAILED = b"F"
"""JSON: it cannot start, and why."""
FROM_CHILD = b"D"
"""A timestamp and bytes of the child's channel."""
STDOUT = b"O"
STDERR = b"E"
EXIT = b"X"
"""JSON: how the run, the block or the session ended."""
