"""What judging and sessions need of a child that runs elsewhere: frames both ways, and how it ended."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

import msgspec

from foretrace.core.problem import Ending
from foretrace.sandbox.base import Limits


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """How a child ended, as seen from outside of it."""

    ending: Ending
    exit_code: int | None = None
    signal: int | None = None
    seconds: float = 0.0
    cpu_s: float | None = None
    stdout: str = ""
    stderr: str = ""
    truncated: bool = False


class Conversation(Protocol):
    """A live child. What it says is parsed JSON of a limited size, and no more to be trusted than its code."""

    broken: str | None
    """What was wrong with the child's bytes where they were no frames; nothing is received after it."""
    elapsed: float
    """Seconds from the child's start to the arrival of the last frame received."""

    async def send(self, message: list[Any]) -> None:
        """Send the child a frame."""
        ...

    async def receive(self) -> Any | None:
        """The child's next frame; None when its channel has ended or is broken."""
        ...

    def stop(self) -> None:
        """Have the child ended; what it says after this may be lost."""
        ...

    async def finish(self, within: float | None = None) -> Ended:
        """Wait for the child's end (bring it about where its channel is broken), and say how it ended.

        What it has said that nobody received makes its channel `broken`.

        Args:
            within: seconds after which it is ended; null leaves it its time limit.
        """
        ...


Open = Callable[[dict[str, Any], Limits], AbstractAsyncContextManager[Conversation]]
"""Starts a child for a request (`mode`, `code`, ...) under limits."""
