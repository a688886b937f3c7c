"""Messages between the parent and a fork server: a kind (one byte), a length (4 bytes, big-endian), that many bytes."""

from __future__ import annotations

import struct

MESSAGE_HEADER = struct.Struct(">cI")
"""Kind and length."""
TIMESTAMP = struct.Struct(">d")
"""Seconds since the child's start, at the beginning of each `FROM_CHILD` message."""

# From the parent.
CONFIGURE = b"C"
"""JSON: the configuration of the fork server. The first message."""
STDIN = b"I"
"""What the next run reads from stdin."""
RUN = b"R"
"""JSON: fork a child for a run, or start a session."""
BLOCK = b"B"
"""JSON: run a block of the session."""
KEEP = b"P"
"""The running block has completed: its process is a state from now on."""
CANCEL = b"Q"
"""End the running block, and leave the session as it was before it."""
FORGET = b"G"
"""JSON: end a state of the session on which no other block ran."""
TO_CHILD = b"S"
"""Bytes for the child's channel."""
KILL = b"K"
"""End the run or the session."""

# To the parent.
READY = b"A"
"""JSON: the fork server is ready; facts about it."""
FAILED = b"F"
"""JSON: why the fork server cannot start."""
FROM_CHILD = b"D"
"""A timestamp, then bytes of the child's channel."""
STDOUT = b"O"
STDERR = b"E"
EXIT = b"X"
"""JSON: how the run, the block or the session ended."""
