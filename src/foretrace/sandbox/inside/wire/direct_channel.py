"""The tests' way to the code: a socket that only these two have, and the parent for all else.

Through the parent and two fork servers each message would cost some ten system calls and three processes' turns. What
the parent sees to where it passes messages on is seen to here: how long a frame may be and how many bytes may come in
all, what it must begin with, and how long the code may take. The parent stays the one that ends the code's process
and that hears the verdict, over a channel that the code's process does not have.

To the parent, beside what `frames` has of a judge child: ["over", why, seconds], after which nothing goes this way any
more. `why` is "done" (the tests are through), "ended" (the code's process is gone), "late" or "flooded" (it has to be
ended); `seconds` is the time that the code had left. But for "done" the parent answers ["gone", why].
From the parent, once the code is loaded: ["ready", seconds], with the time that is left; null says that there is no
such way.
"""

from __future__ import annotations

import os
import select
import time
from typing import Any

from foretrace.sandbox.inside.wire.frames import FrameError, FrameReader, pack_frame, unpack_frame

LINK_FD = 4
"""The socket, in both processes."""
ANSWERS = (b'["v",', b'["x",', b'["q",')
"""What the code may say to the tests: values, exceptions, questions."""
TURN_SLACK_S = 0.01
"""Seconds of each turn of the code's that may be the way's: on a busy machine a message takes its time. Who uses them
to compute is stopped by the limit of CPU time, and who sleeps through them by the end of the process."""
_MAX_BYTES = 64 << 20
"""What the code may say in all."""
_CHUNK = 1 << 16
_now, _read, _write, _close, _poll = time.monotonic, os.read, os.write, os.close, select.poll
"""Held here: tests put other things in the place of these, to see what the code makes of them."""


class DirectChannel:
    """Sends and receives as a `FrameChannel` does: to the code what is for it, to the parent the rest.

    Args:
        parent: the channel to the parent, a `FrameChannel`.
        descriptor: the socket's.
        limit: bytes that a frame of the code's may have.
    """

    def __init__(self, parent: Any, descriptor: int, limit: int) -> None:
        os.set_blocking(descriptor, False)
        self._parent, self._descriptor = parent, descriptor
        self._frames = FrameReader(limit)
        self._bytes_left = _MAX_BYTES
        self._left_s: float | None = None
        """Seconds that the code may still compute; None until it is loaded."""
        self._began = 0.0
        self._is_open = True

    def send(self, message: list[Any]) -> None:
        """Send one message; one for the code begins a turn of the code's."""
        if not self._is_open or message[0] not in ("q", "v", "x"):
            self._parent.send(message)
            return
        if self._left_s is None:
            ready = self._parent.receive()
            if ready is None or ready[1] is None:
                self._stop_talking()
                self._parent.send(message)
                return
            self._left_s = float(ready[1])
        self._began = _now()
        left = memoryview(pack_frame(message))
        while left:
            try:
                left = left[_write(self._descriptor, left) :]
            except BlockingIOError:
                if not self._wait(select.POLLOUT):
                    return  # what is received next is that it is late
            except OSError:
                return  # or that it has ended

    def send_all(self, messages: list[list[Any]]) -> None:
        """Send the parent its last messages; the code is asked for nothing after them."""
        if self._is_open:
            self._stop_talking()
            messages = [["over", "done", self._left_s], *messages]
        self._parent.send_all(messages)

    def receive(self) -> Any | None:
        """The next message of the code; of the parent once nothing goes straight any more.

        Raises:
            FrameError: the code has sent what is no message, or too long.
        """
        if not self._is_open:
            return self._parent.receive()
        while (body := self._frames.take_bytes()) is None:
            if not self._wait(select.POLLIN):
                return self._hand_over("late")
            try:
                chunk = _read(self._descriptor, _CHUNK)
            except BlockingIOError:
                continue
            except OSError:
                chunk = b""
            if not chunk:
                return self._hand_over("ended")
            self._bytes_left -= len(chunk)
            if self._bytes_left < 0:
                return self._hand_over("flooded")
            self._frames.feed(chunk)
        self._end_turn()
        if not body.startswith(ANSWERS):
            raise FrameError("a frame that is no answer")
        return unpack_frame(body)

    def _wait(self, event: int) -> bool:
        """Wait until the code's end is ready for something; false when the code's time is over."""
        assert self._left_s is not None
        left = self._began + max(0.0, self._left_s) + TURN_SLACK_S - _now()
        poller = _poll()
        poller.register(self._descriptor, event)
        return left > 0 and bool(poller.poll(left * 1000 + 1))

    def _end_turn(self) -> None:
        if self._left_s is not None:
            self._left_s -= max(0.0, _now() - self._began - TURN_SLACK_S)

    def _hand_over(self, why: str) -> Any | None:
        self._end_turn()
        self._stop_talking()
        left_s = min(self._left_s or 0.0, 0.0) if why == "late" else self._left_s
        self._parent.send(["over", why, left_s])
        return self._parent.receive()

    def _stop_talking(self) -> None:
        self._is_open = False
        _close(self._descriptor)
