"""The untrusted child's end of its channel: frames over one descriptor, with the means at hand kept from the start."""

from __future__ import annotations

import os
from typing import Any

from foretrace.sandbox.inside.wire import frames


class Channel:
    """Sends and receives frames (`wire`), blocking."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        # Kept here: code that patches `os` shall harm itself as little as possible.
        self._read, self._write, self._pack, self._unpack = os.read, os.write, frames.pack, frames.unpack
        self._frames = frames.Frames()

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
            if not self._frames.rest and len(chunk) == 4 + int.from_bytes(chunk[:4], "big"):
                return self._unpack(chunk[4:])  # the rule: one whole frame at a time
            self._frames.feed(chunk)
